"""Settings as text: TOML files, `section.name=value`, durations, and the values that a setting may have."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from kgem.config import NONE, Config
from kgem.errors import ConfigError

__all__ = ["describe_allowed", "differences", "parse_duration", "parse_override", "read_toml", "to_toml"]

SECTIONS: dict[str, type[BaseModel]] = {
    name: field.annotation
    for name, field in Config.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
}
TOP = {name: field for name, field in Config.model_fields.items() if name not in SECTIONS}  # of the file: in no section
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|m|h|d)")
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below", "min_length": "length at least"}


def to_toml(config: Config) -> str:
    """All settings as TOML, each with what it means; `read_toml` reads it."""
    parts = ["\n".join(_line(name, getattr(config, name), field) for name, field in TOP.items())]
    for name, section in SECTIONS.items():
        values = getattr(config, name)
        lines = [_line(key, getattr(values, key), field) for key, field in section.model_fields.items()]
        parts.append("\n".join([f"[{name}]  # {(section.__doc__ or '').splitlines()[0]}", *lines]))
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
    a, b = one.model_dump(), other.model_dump()
    names = [name for name in TOP if a[name] != b[name]]
    return names + [f"{part}.{name}" for part in SECTIONS for name in a[part] if a[part][name] != b[part][name]]


def describe_allowed(*name: int | str) -> str:
    """The values that a setting may have, in words; what lies deeper than it (a place in a tuple) does not count."""
    section, *rest = map(str, name or [""])
    fields, key = (SECTIONS[section].model_fields, "".join(rest[:1])) if section in SECTIONS else (TOP, section)
    return _describe_values(fields[key]) if key in fields else ""


def _line(name: str, value: Any, field: FieldInfo) -> str:
    import tomli_w

    text = tomli_w.dumps({name: _to_toml_value(value)}).strip()
    return f"{' '.join(text.split())}  # {field.description}"


def _to_toml_value(value: Any) -> Any:
    """The value in TOML's types."""
    if isinstance(value, tuple):
        return [_to_toml_value(each) for each in value]
    return NONE if value is None else value


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
