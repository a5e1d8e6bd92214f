"""Settings from defaults and what a user changes, checked against what this machine and this kgem have."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from pydantic import ValidationError

from kgem.config import Config
from kgem.errors import ConfigError
from kgem.model.scores import find_score, get_score
from kgem.settings import SECTIONS, describe_allowed
from kgem.train.optimizer import OPTIMIZERS
from kgem.train.phases import PHASES

__all__ = ["check_device", "configure"]

# What other libraries call our arguments and settings.
ELSEWHERE = {
    "score": ("model",),
    "embedding_dim": ("dim",),
    "k": ("dim",),
    "random_seed": ("seed",),
    "random_state": ("seed",),
    "n_jobs": ("threads",),
    "num_epochs": ("pretrain.epochs", "em.epochs", "retrain.epochs", "companions.epochs", "distil.epochs"),
    "lr": ("pretrain.learning_rate", "em.learning_rate", "retrain.learning_rate"),
}


def configure(config: Config | None, overrides: Mapping[str, Any], *, arguments: Sequence[str] = ()) -> Config:
    """The settings with some of them changed; keys may be dotted, values nested dicts.

    `arguments` are names that the caller takes beside settings: one of them may have been meant by an unknown one.
    """
    if config is not None and not isinstance(config, Config):
        remedy = "make one: kgem.Config(...), or give single settings, as em={'beta': 0.3}"
        raise ConfigError(f"config is a {type(config).__name__}, not a kgem.Config", remedy=remedy)
    content = (config or Config()).model_dump()
    for key, value in overrides.items():
        *sections, name = key.split(".")
        place = content
        for section in sections:
            place = place.get(section, {})
            if not isinstance(place, dict):
                raise ConfigError(
                    f"{section!r} of {key!r} is a setting, not a section", remedy="settings are those of kgem.Config"
                )
        if sections and not place:
            raise ConfigError(f"there is no section {'.'.join(sections)!r}", remedy=f"one of {', '.join(SECTIONS)}")
        both = isinstance(value, Mapping) and isinstance(place.get(name), dict)
        place[name] = {**place[name], **value} if both else value
    if isinstance(content["model"], dict):
        content["model"]["score"] = find_score(content["model"].get("score"))
    try:
        changed = Config.model_validate(content)
    except ValidationError as error:
        raise _explain(error, arguments) from error
    get_score(changed.model.score)
    for phase in PHASES:
        name = getattr(changed, phase).optimizer
        if name not in OPTIMIZERS:
            what = f"{phase}.optimizer = {name!r}: there is no such optimiser"
            raise ConfigError(what, remedy=f"one of {', '.join(OPTIMIZERS)}")
    check_device(changed.device)
    return changed


def _explain(error: ValidationError, arguments: Sequence[str]) -> ConfigError:
    """The first thing that is wrong with the settings."""
    first = error.errors()[0]
    name = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        near = _suggest(name, arguments)
        remedy = f"did you mean {', '.join(near)}?" if near else "settings are those of kgem.Config"
        return ConfigError(f"there is no setting {name!r}", remedy=remedy)
    said = first["msg"].removeprefix("Value error, ")
    may_be = describe_allowed(*first["loc"])
    remedy = f"it may be: {may_be}" if may_be else "docs/settings.md says what settings may be"
    return ConfigError(f"{name} = {first['input']!r}: {said}" if name else said, remedy=remedy)


def _suggest(name: str, arguments: Sequence[str]) -> list[str]:
    """The names that may have been meant: arguments, settings, settings without their section, as others call them."""
    short: dict[str, list[str]] = {key: [key] for key in (*Config.model_fields, *arguments)}
    short |= {key: list(meant) for key, meant in ELSEWHERE.items() if arguments}
    for section, kind in SECTIONS.items():
        for key in kind.model_fields:
            if key not in short or short[key][0].endswith(f".{key}"):
                short.setdefault(key, []).append(f"{section}.{key}")
    dotted = [f"{section}.{key}" for section, kind in SECTIONS.items() for key in kind.model_fields]
    if name in short:
        return short[name]
    near = difflib.get_close_matches(name.casefold(), [*dotted, *short], n=1)
    return list(dict.fromkeys(meant for each in near for meant in short.get(each, [each])))[:4]


def check_device(device: str) -> None:
    """An error if nothing can be computed there."""
    try:
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:  # torch built without CUDA asserts
        raise ConfigError(
            f"the device {device!r} cannot be used here", remedy="cpu, or cuda where there is a GPU"
        ) from error
