"""How help is set: prose that wraps wherever the terminal ends, examples that stay whole, values by plain words."""

from __future__ import annotations

import inspect
from typing import Any

from typer.core import TyperCommand, TyperGroup

__all__ = ["PlainCommand", "PlainGroup", "list_examples", "unwrap"]

_VALUES = {"str": "TEXT", "text": "TEXT", "int": "NUMBER", "integer": "NUMBER", "float": "NUMBER"}  # by type


class PlainCommand(TyperCommand):
    """A command whose help says TEXT and NUMBER, not a type of Python, and nothing beside a switch."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its arguments and options, --help among them."""
        return _name_values(super().get_params(ctx))


class PlainGroup(TyperGroup):
    """Likewise a command that has commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options, --help among them."""
        return _name_values(super().get_params(ctx))


def _name_values(parameters: list[Any]) -> list[Any]:
    """Mutates each: what a user gives for it, in a plain word. An argument's own name is enough."""
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            parameter.display_type_rich = _say_nothing
        elif parameter.metavar is None:
            parameter.metavar = "" if parameter.is_flag else _VALUES.get(_type_name(parameter))
    return parameters


def _say_nothing(ctx: Any) -> str:
    return ""


def _type_name(parameter: Any) -> str:
    """The first word for it that typer has: 'int' or, in older versions, 'integer range'."""
    if hasattr(parameter, "type"):
        return str(parameter.type.name).split()[0]
    return str(parameter.bare_type())


def unwrap(text: str | None) -> str:
    """A docstring with one line per paragraph: the terminal breaks it, and not where the source did."""
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text or "").split("\n\n"))


def list_examples(text: str) -> str:
    """Commands, one a line, below a heading; each is a paragraph, or they would run into each other."""
    commands = [line.strip() for line in text.strip().splitlines()]
    return "\n\n".join(["Example:" if len(commands) == 1 else "Examples:", *commands])
