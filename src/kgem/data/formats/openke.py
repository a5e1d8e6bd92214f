"""Facts as OpenKE's folders of ids: train2id.txt (head, tail, relation) beside entity2id.txt and relation2id.txt."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl

from kgem.data.formats.pages import decode_rows, read_pages
from kgem.data.options import FACT, SPLITS, ReadOptions
from kgem.data.rows import Intake, Problem
from kgem.data.streams import CODECS, Source, split_suffix, write_to
from kgem.errors import TriplesError

__all__ = ["holds_openke", "read_openke", "write_openke"]

_COUNT = re.compile(r"[ \t]*[0-9]{1,18}[ \t]*")
_IDS = r"^[ \t]*([0-9]{1,10})[ \t]+([0-9]{1,10})[ \t]+([0-9]{1,10})[ \t]*$"
# A label may have blanks in it: it ends at the last tab, or before the last run of blanks if there is no tab.
_BY_TAB = r"^(?<label>.*)\t *(?<id>[0-9]{1,10}) *$"
_BY_BLANK = r"^(?<label>.*?) +(?<id>[0-9]{1,10}) *$"


def holds_openke(folder: Path) -> bool:
    """Whether the folder has at least one of OpenKE's files of facts."""
    return any(_find_member(folder, f"{split}2id.txt") for split in SPLITS)


def _find_member(folder: Path, name: str) -> Path | None:
    candidates = (folder / f"{name}{suffix}" for suffix in ("", *CODECS))
    return next((path for path in candidates if path.is_file()), None)


def read_openke(source: Source, intake: Intake) -> None:
    """One split of the folder, its ids replaced by labels."""
    folder = source.path
    if folder is None or not folder.is_dir():
        remedy = "give a folder with train2id.txt, entity2id.txt and relation2id.txt"
        raise TriplesError("OpenKE's format is a folder", where=source.name, remedy=remedy)
    if intake.options.extra or intake.options.columns or intake.options.header:
        what = "OpenKE's folders have neither header, nor a choice of columns, nor an extra one"
        raise TriplesError(what, where=source.name, remedy="leave out header, columns and extra")
    entities, relations = _read_vocabulary(folder, "entity"), _read_vocabulary(folder, "relation")
    path = _need(folder, f"{intake.split}2id.txt")
    intake.source = str(path)
    ids, lines = _facts(path, intake)
    joined = (
        ids.join(entities.rename({"label": "head"}), left_on="h", right_on="id", how="left", maintain_order="left")
        .join(relations.rename({"label": "relation"}), left_on="r", right_on="id", how="left", maintain_order="left")
        .join(entities.rename({"label": "tail"}), left_on="t", right_on="id", how="left", maintain_order="left")
    )
    good = joined.select(pl.all_horizontal(pl.col(FACT).is_not_null())).to_series()
    bad = (~good).arg_true()
    intake.reject((_problem(lines, joined, int(row)) for row in bad), len(bad))
    intake.keep(joined.filter(good).select(FACT))


def _need(folder: Path, name: str) -> Path:
    path = _find_member(folder, name)
    if path is None:
        remedy = "an OpenKE folder has train2id.txt, entity2id.txt and relation2id.txt"
        raise TriplesError(f"the folder has no {name}", where=str(folder), remedy=remedy)
    return path


def _lines(path: Path, intake: Intake) -> pl.Series:
    """All lines but the count on the first, which must be true; null where not UTF-8."""
    with Source.of(path).open() as stream:
        rows = [row for page in read_pages(stream, intake) for row in page.rows]
    text = decode_rows(rows).str.strip_suffix("\r")
    count = text[0] if len(text) else None
    if count is None or not _COUNT.fullmatch(count):
        what, remedy = "the first line must be the number of rows", "OpenKE's files begin with a count"
        raise TriplesError(what, where=f"{path}:1", remedy=remedy)
    if int(count) != len(text) - 1:
        what = f"the first line says {int(count):,} rows, but {len(text) - 1:,} follow"
        remedy = "the file may be cut short; get it anew, or correct the count"
        raise TriplesError(what, where=f"{path}:1", remedy=remedy)
    return text[1:]


def _facts(path: Path, intake: Intake) -> tuple[pl.DataFrame, pl.Series]:
    """Ids (h, t, r) per row, null where a row has no three of them, and the text of the rows."""
    text = _lines(path, intake)
    if text.str.contains("\0", literal=True).any():
        text = text.set(text.str.contains("\0", literal=True).fill_null(True), None)
    ids = text.str.extract_groups(_IDS).struct.rename_fields(["h", "t", "r"]).struct.unnest()
    return ids.cast(pl.Int64), text


def _problem(lines: pl.Series, joined: pl.DataFrame, row: int) -> Problem:
    line = row + 2  # the first line is the count
    if lines[row] is None:
        return Problem(line, "bytes that are not UTF-8, or a NUL byte", "the file is not OpenKE's, or damaged")
    if joined["h"][row] is None:
        return Problem(line, f"not three ids: {lines[row]!r}", "a row is: head tail relation, as numbers")
    unknown = next(name for name in FACT if joined[name][row] is None)
    kind = "relation" if unknown == "relation" else "entity"
    number = joined[unknown[0]][row]
    return Problem(
        line, f"no {kind} has the id {number}", f"{kind}2id.txt must list it; the order is head tail relation"
    )


def _read_vocabulary(folder: Path, kind: str) -> pl.DataFrame:
    """The columns id and label of entity2id.txt or relation2id.txt; every fault in it is an error."""
    path = _need(folder, f"{kind}2id.txt")
    text = _lines(path, Intake(str(path), ReadOptions()))
    found = pl.DataFrame({"text": text}).select(
        pl.coalesce(
            pl.col("text").str.extract_groups(pattern).struct.field(field) for pattern in (_BY_TAB, _BY_BLANK)
        ).alias(field)
        for field in ("label", "id")
    )
    label, number = pl.col("label"), pl.col("id")
    faults = {
        "not a label and its id": label.is_null() | number.is_null() | label.str.contains("\0", literal=True),
        "the label is empty": label == "",
        "an id given twice": number.cast(pl.Int64).is_duplicated(),
        "a label given twice": label.is_duplicated(),
    }
    for reason, fault in faults.items():
        bad = found.select(fault).to_series().arg_true()
        if len(bad):
            where, remedy = f"{path}:{int(bad[0]) + 2}", "a row is: label, tab, id; each once"
            raise TriplesError(reason, where=where, remedy=remedy)
    return found.with_columns(number.cast(pl.Int64))


def write_openke(frame: pl.DataFrame, target: Path, split: str = "train") -> None:
    """One split into a folder; labels the folder knows keep their ids, new ones are added behind them."""
    folder, suffix = target, split_suffix(target.name)[1]
    if frame.width > len(FACT):
        what = "OpenKE's folders cannot hold an extra column"
        raise TriplesError(what, where=str(target), remedy="leave it out, or write TSV, CSV or Parquet")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remedy = "give another folder"
        raise TriplesError(f"cannot be made: {error.strerror}", where=str(folder), remedy=remedy) from error
    entities = _extend_vocabulary(folder, "entity", pl.concat([frame["head"], frame["tail"]]))
    relations = _extend_vocabulary(folder, "relation", frame["relation"])
    ids = frame.select(
        pl.col("head").replace_strict(entities["label"], entities["id"], return_dtype=pl.Int64),
        pl.col("tail").replace_strict(entities["label"], entities["id"], return_dtype=pl.Int64),
        pl.col("relation").replace_strict(relations["label"], relations["id"], return_dtype=pl.Int64),
    )
    # The vocabularies first: a file of facts never has ids that the folder does not know.
    _write_counted(entities.select("label", "id"), folder / f"entity2id.txt{suffix}", "\t")
    _write_counted(relations.select("label", "id"), folder / f"relation2id.txt{suffix}", "\t")
    _write_counted(ids, folder / f"{split}2id.txt{suffix}", " ")


def _extend_vocabulary(folder: Path, kind: str, labels: pl.Series) -> pl.DataFrame:
    labels = labels.unique(maintain_order=True)
    broken = labels.str.contains(r"[\n\r]").arg_true()
    if len(broken):
        what = f"a label has a line break: {labels[int(broken[0])]!r}"
        remedy = "OpenKE's format cannot hold it: write CSV or Parquet instead"
        raise TriplesError(what, where=str(folder), remedy=remedy)
    if _find_member(folder, f"{kind}2id.txt") is None:
        return pl.DataFrame({"label": labels, "id": pl.int_range(len(labels), eager=True)})
    known = _read_vocabulary(folder, kind)
    added = labels.filter(~labels.is_in(known["label"].implode()))
    start = int(known.select(pl.col("id").max()).item() or 0) + 1 if len(known) else 0
    return pl.concat([known, pl.DataFrame({"label": added, "id": pl.int_range(start, start + len(added), eager=True)})])


def _write_counted(frame: pl.DataFrame, path: Path, separator: str) -> None:
    with write_to(path) as stream:
        stream.write(f"{len(frame)}\n".encode())
        frame.write_csv(stream, include_header=False, separator=separator, quote_style="never")
