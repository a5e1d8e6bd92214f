"""Facts as PyKEEN has them: a TriplesFactory, or the folder of one, as it is in `training_triples` of a result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from kgem.data.options import FACT
from kgem.data.rows import Intake, Problem, find_sound
from kgem.data.streams import Source
from kgem.errors import TriplesError

__all__ = ["FACTS", "IDS", "find_factory", "is_factory", "read_factory", "read_factory_folder"]

FACTS, IDS = "numeric_triples.tsv.gz", ("entity_to_id.tsv.gz", "relation_to_id.tsv.gz")
RESULT = "training_triples"  # where a result has its training facts


def is_factory(given: Any) -> bool:
    """Whether it is a TriplesFactory; PyKEEN need not be installed."""
    return hasattr(given, "mapped_triples")


def read_factory(factory: Any, intake: Intake) -> None:
    """The facts of a TriplesFactory by their labels; inverse facts, which kgem makes itself, are none of them."""
    maps: list[Any] = [getattr(factory, name, None) for name in ("entity_to_id", "relation_to_id")]
    if not all(maps):
        what = f"a {type(factory).__name__} has no labels"
        remedy = "give a TriplesFactory, or its ids as an array: factory.mapped_triples.numpy()"
        raise TriplesError(what, where=intake.source, remedy=remedy)
    ids = np.asarray(factory.mapped_triples.cpu() if hasattr(factory.mapped_triples, "cpu") else factory.mapped_triples)
    names = [pl.DataFrame({"id": list(each.values()), "label": list(map(str, each))}) for each in maps]
    _take(pl.DataFrame(ids.astype(np.int64), schema=list(FACT)), names[0], names[1], intake)


def find_factory(folder: Path) -> Path | None:
    """The folder that has the facts: this one, or the one of a result in it."""
    places = (folder, folder / RESULT)
    return next((place for place in places if all((place / name).is_file() for name in (FACTS, *IDS))), None)


def read_factory_folder(folder: Path, intake: Intake) -> None:
    """What `TriplesFactory.to_path_binary` wrote; its pickle is not opened, and not needed."""
    intake.source = str(folder / FACTS)
    entities, relations = (_read(folder / name, ("id", "label")) for name in IDS)
    _take(_read(folder / FACTS, FACT), entities, relations, intake)


def _read(path: Path, columns: tuple[str, ...]) -> pl.DataFrame:
    types = {name: pl.String if name == "label" else pl.Int64 for name in columns}
    with Source.of(path).open() as stream:
        text = stream.read()
    try:
        frame = pl.read_csv(text, separator="\t", schema_overrides=types)
        return frame.select(pl.col(name).cast(kind) for name, kind in types.items())
    except pl.exceptions.PolarsError as error:
        what = f"is not PyKEEN's: {str(error).splitlines()[0]}"
        remedy = f"it has a header and the columns {', '.join(columns)}, with tabs between"
        raise TriplesError(what, where=str(path), remedy=remedy) from error


def _take(ids: pl.DataFrame, entities: pl.DataFrame, relations: pl.DataFrame, intake: Intake) -> None:
    """Ids by their labels; an id without one is a row that is no fact."""
    if intake.options.extra or intake.options.columns or intake.options.header:
        what = "facts of PyKEEN have neither header, nor a choice of columns, nor an extra one"
        raise TriplesError(what, where=intake.source, remedy="leave out header, columns and extra")
    frame = ids.select(
        pl.col(name).replace_strict(
            *(relations if name == "relation" else entities).select("id", "label"), default=None, return_dtype=pl.String
        )
        for name in FACT
    )
    good = find_sound(frame)
    bad = (~good).arg_true()
    intake.reject((_problem(ids, frame, int(row)) for row in bad), len(bad))
    intake.keep(frame.filter(good))


def _problem(ids: pl.DataFrame, frame: pl.DataFrame, row: int) -> Problem:
    wrong = next((name for name in FACT if not frame[name][row]), None)
    if wrong is None:
        return Problem(row + 1, "a label with a NUL character", "labels cannot hold one")
    kind = "relation" if wrong == "relation" else "entity"
    return Problem(row + 1, f"no {kind} has the id {ids[wrong][row]}, or its label is empty", f"check {kind}_to_id")
