"""How help is set: prose that wraps wherever the terminal ends, and examples that stay whole."""

from __future__ import annotations

import inspect

__all__ = ["list_examples", "unwrap"]


def unwrap(text: str | None) -> str:
    """A docstring with one line per paragraph: the terminal breaks it, and not where the source did."""
    return "\n\n".join(" ".join(part.split()) for part in inspect.cleandoc(text or "").split("\n\n"))


def list_examples(text: str) -> str:
    """Commands, one a line, below a heading; each is a paragraph, or they would run into each other."""
    commands = [line.strip() for line in text.strip().splitlines()]
    return "\n\n".join(["Example:" if len(commands) == 1 else "Examples:", *commands])
