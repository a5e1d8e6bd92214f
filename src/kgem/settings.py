"""Settings as text: TOML files, `section.name=value`, durations, and the page docs/settings.md."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from kgem.config import NONE, Config
from kgem.errors import ConfigError

__all__ = [
    "describe_allowed",
    "differences",
    "parse_duration",
    "parse_override",
    "read_toml",
    "settings_page",
    "to_toml",
]

_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)")
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below", "min_length": "length at least"}


def to_toml(config: Config) -> str:
    """All settings as TOML, each with what it means; `read_toml` reads it."""
    own = [_line(name, getattr(config, name), field) for name, field in _plain(Config)]
    parts = ["\n".join(own)]
    for name, section in _sections(Config):
        values = getattr(config, name)
        lines = [_line(key, getattr(values, key), field) for key, field in section.model_fields.items()]
        parts.append("\n".join([f"[{name}]  # {_first_line(section)}", *lines]))
    return "\n\n".join(parts) + "\n"


def read_toml(path: Path) -> dict[str, Any]:
    """What a settings file says; whether these are settings is for `Config` to tell."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError("there is no such file", where=str(path), remedy="check the path") from error
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", where=str(path), remedy="check the path") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        remedy = "write `name = value` lines below [section] lines, as in docs/settings.md"
        raise ConfigError(f"is not TOML: {error}", where=str(path), remedy=remedy) from error


def parse_override(text: str) -> tuple[str, Any]:
    """`em.beta=0.3` as name and value; values are TOML, and what is none is taken as it stands."""
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name or not value:
        raise ConfigError(f"{text!r} does not set anything", where="--set", remedy="write it as em.beta=0.3")
    try:
        return name, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name, value


def parse_duration(text: str) -> float:
    """Seconds of `90s`, `20m`, `1h30m` or `2 h`."""
    compact = text.strip().lower()
    found = _DURATION.findall(compact)
    if not found or _DURATION.sub("", compact).strip():
        remedy = "write it as 90s, 20m, 1h30m or 2h"
        raise ConfigError(f"{text!r} is not a time", where="--time-budget", remedy=remedy)
    seconds = sum(float(amount) * _UNITS[unit] for amount, unit in found)
    if not seconds:
        raise ConfigError("there is no time in it", where="--time-budget", remedy="give it some, as 20m")
    return seconds


def differences(one: Config, other: Config) -> list[str]:
    """The names of the settings that are not the same."""
    names = [name for name, _ in _plain(Config) if getattr(one, name) != getattr(other, name)]
    for section, kind in _sections(Config):
        a, b = getattr(one, section), getattr(other, section)
        names += [f"{section}.{name}" for name in kind.model_fields if getattr(a, name) != getattr(b, name)]
    return names


def describe_allowed(*name: int | str) -> str:
    """The values that a setting may have, in words; what lies deeper than it (a place in a tuple) does not count."""
    kind: type[BaseModel] = Config
    for part in map(str, name):
        sections = dict(_sections(kind))
        if part not in sections:
            return _describe_values(kind.model_fields[part]) if part in kind.model_fields else ""
        kind = sections[part]
    return ""


def settings_page() -> str:
    """docs/settings.md: every setting with its default, bounds and meaning."""
    parts = [
        "# Settings",
        "Every setting has a default that works. Change some with `--set em.beta=0.3` (as often as needed), with a\n"
        'TOML file and `--config`, or in Python with `kgem.fit(data, em={"beta": 0.3})`. `none` stands for no value.\n'
        "The `config.toml` of a run folder is such a file, with all settings in it. `--recipe paper` starts from the\n"
        "paper's own recipe instead of the defaults.",
        "This page is written by `python tools/settings_page.py` from `src/kgem/config.py`.",
        "## At the top of the file",
        _table(dict(_plain(Config))),
    ]
    for name, section in _sections(Config):
        parts += [f"## [{name}]", section.__doc__ or "", _table(section.model_fields)]
    return "\n\n".join(parts) + "\n"


def _plain(kind: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """The settings that are not sections."""
    sections = dict(_sections(kind))
    return ((name, field) for name, field in kind.model_fields.items() if name not in sections)


def _sections(kind: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in kind.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield name, field.annotation


def _first_line(section: type[BaseModel]) -> str:
    return (section.__doc__ or "").splitlines()[0]


def _line(name: str, value: Any, field: FieldInfo) -> str:
    import tomli_w

    text = tomli_w.dumps({name: _to_toml_value(value)}).strip()
    return f"{' '.join(text.split())}  # {field.description}"


def _to_toml_value(value: Any) -> Any:
    """The value in TOML's types."""
    if isinstance(value, tuple):
        return [_to_toml_value(each) for each in value]
    return NONE if value is None else value


def _table(fields: dict[str, FieldInfo]) -> str:
    rows = ["| setting | default | may be | meaning |", "|---|---|---|---|"]
    for name, field in fields.items():
        assert field.default is not PydanticUndefined, f"{name} has no default"
        default = _to_text(field.default)
        rows.append(
            f"| `{name}` | `{default}` | {_describe_values(field)} | {(field.description or '').replace('|', '/')} |"
        )
    return "\n".join(rows)


def _to_text(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_to_text, value))}]"
    if isinstance(value, bool):
        return str(value).lower()
    return NONE if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _describe_values(field: FieldInfo) -> str:
    """The values that a setting may have, in words."""
    if get_origin(field.annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(field.annotation))
    bounds = [
        f"{words} {getattr(limit, name):g}"
        for limit in field.metadata
        for name, words in _BOUNDS.items()
        if getattr(limit, name, None) is not None
    ]
    kinds = get_args(field.annotation) or (field.annotation,)
    names = {bool: "true, false", int: "whole number", float: "number", str: "text", type(None): f"`{NONE}`"}
    named = [names.get(kind, "") for kind in kinds]
    if get_origin(field.annotation) is tuple:
        named = ["pairs of numbers" if get_origin(get_args(field.annotation)[0]) is tuple else "numbers"]
    first, *rest = [name for name in named if name]
    return " or ".join([" ".join([first, ", ".join(bounds)]).strip(), *rest])
