"""Names beside labels in the JSON and the tables that commands write, for graphs whose symbols have names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kgem.data.names import Names

__all__ = ["NAMED", "add_names", "name_answers", "name_columns"]

NAMED = {each: f"{each}_name" for each in ("head", "relation", "tail")}


def add_names(row: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """A row with the names of head, relation and tail after all else; None for a symbol without one."""
    if not names.by_label:
        return dict(row)
    return {**row, **{column: names.by_label.get(row[label] or "") for label, column in NAMED.items()}}


def name_answers(document: Mapping[str, Any], names: Names) -> dict[str, Any]:
    """A question and its answers, each with its name."""
    if not names.by_label:
        return dict(document)
    answers = [{**answer, "name": names.by_label.get(answer["label"])} for answer in document["answers"]]
    return add_names({**document, "answers": answers}, names)


def name_columns(columns: Sequence[str], names: Names) -> tuple[str, ...]:
    """The columns of a table of such rows."""
    return (*columns, *(NAMED.values() if names.by_label else ()))
