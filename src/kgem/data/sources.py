"""From what a user names (a file, a folder, a catalogue name, a frame) to labelled facts per split."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from kgem.data.catalog import CATALOG, entry, locate
from kgem.data.triples import ReadReport, read_triples
from kgem.errors import DatasetError

__all__ = ["Found", "find", "read"]

# How splits are called in file names and in a column `split`.
ALIASES = {"train": "train", "valid": "valid", "validation": "valid", "dev": "valid", "test": "test"}
OPENKE = {"train2id.txt": "train", "valid2id.txt": "valid", "test2id.txt": "test"}
SPLIT_COLUMN = "split"
WHOLE = "all"  # the name of a single source of all splits


@dataclass(frozen=True)
class Found:
    """Where the facts of each split are; one source of all of them is called WHOLE."""

    name: str
    parts: Mapping[str, Any]  # split -> path, or anything read_triples takes
    options: Mapping[str, Any]  # of read_triples

    @property
    def only_files(self) -> bool:
        """Whether all that is read can be read again."""
        return len(self.files) == len(self.parts)

    @property
    def files(self) -> dict[str, Path]:
        """The files behind the parts, as far as they are files."""
        return {split: part for split, part in self.parts.items() if isinstance(part, Path) and part.is_file()}


def find(source: Any, options: Mapping[str, Any]) -> Found:
    """What a user's word for a graph means; a path that exists wins over a catalogue name."""
    if not isinstance(source, str | Path):
        return Found("graph", {WHOLE: source}, options)
    if str(source) == "-":
        return Found("standard input", {WHOLE: "-"}, options)
    path = Path(source).expanduser()
    if path.is_dir():
        return _folder(path, options)
    if path.exists():
        return Found(_stem(path), {WHOLE: path}, options)
    if str(source).strip().casefold() in CATALOG:
        known = entry(str(source))
        how = {"header": known.embedded, "columns": None, "extra": SPLIT_COLUMN if known.embedded else None}
        return Found(known.name, locate(known.name), {**options, "format": "tsv", **how})
    raise _nothing(str(source), path)


def read(found: Found) -> tuple[dict[str, pl.DataFrame], dict[str, ReadReport]]:
    """The facts of each split (columns head, relation, tail and perhaps an extra one), and how reading went."""
    if WHOLE in found.parts:
        return _read_whole(found.parts[WHOLE], found.options)
    triples = {s: read_triples(part, split=s, **found.options) for s, part in found.parts.items()}
    return {s: t.frame for s, t in triples.items()}, {s: t.report for s, t in triples.items()}


def _read_whole(source: Any, options: Mapping[str, Any]) -> tuple[dict[str, pl.DataFrame], dict[str, ReadReport]]:
    """One source: all facts are for training, unless a column says which split each is in."""
    triples = read_triples(source, **options)
    if SPLIT_COLUMN not in triples.frame.columns:
        return {"train": triples.frame}, {"train": triples.report}
    named = pl.col(SPLIT_COLUMN).cast(pl.String).str.to_lowercase().replace_strict(ALIASES, default=None)
    frame = triples.frame.with_columns(named.alias("_split"))
    wrong = frame.filter(pl.col("_split").is_null())
    if len(wrong):
        raise DatasetError(
            f"{len(wrong):,} facts are in a split called {wrong[SPLIT_COLUMN][0]!r}",
            where=triples.report.source,
            remedy=f"the column {SPLIT_COLUMN!r} may hold train, valid (validation, dev) and test",
        )
    frames = {
        split: frame.filter(pl.col("_split") == split).drop("_split", SPLIT_COLUMN)
        for split in ("train", "valid", "test")
    }
    return frames, {WHOLE: triples.report}


def _folder(folder: Path, options: Mapping[str, Any]) -> Found:
    """A folder with one file per split, by labels or (OpenKE) by ids."""
    candidates: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        split = OPENKE.get(path.name) or ALIASES.get(_stem(path).casefold())
        if split and path.is_file():
            candidates.setdefault(split, []).append(path)
    ids = {OPENKE[p.name]: p for paths in candidates.values() for p in paths if p.name in OPENKE}
    if "train" in ids and options["format"] in (None, "openke"):
        labelled = [p for paths in candidates.values() for p in paths if p.name not in OPENKE]
        if options["format"] == "openke" or not labelled:
            return Found(folder.resolve().name, ids, {**options, "format": "openke"})
    for split, paths in candidates.items():
        if len(paths) > 1:
            raise DatasetError(
                f"{len(paths)} files could be the split {split}: {', '.join(p.name for p in paths)}",
                where=str(folder),
                remedy="keep one of them in the folder",
            )
    if "train" not in candidates:
        raise DatasetError(
            "the folder has no training facts",
            where=str(folder),
            remedy="name the file with them train.tsv (or .csv, .parquet, .nt, .ttl, ...; OpenKE: train2id.txt)",
        )
    order = [split for split in ("train", "valid", "test") if split in candidates]
    return Found(folder.resolve().name, {split: candidates[split][0] for split in order}, options)


def _stem(path: Path) -> str:
    """The name up to its first dot."""
    return path.name.split(".")[0] or path.name


def _nothing(word: str, path: Path) -> DatasetError:
    """Neither a path nor a name: say what is near to either."""
    names = difflib.get_close_matches(word.casefold(), CATALOG, n=3, cutoff=0.5)
    beside = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    paths = [str(path.parent / near) for near in difflib.get_close_matches(path.name, beside, n=3)]
    near = [*names, *paths]
    hint = f"did you mean {', '.join(near)}?" if near else f"graphs known by name: {', '.join(sorted(CATALOG))}"
    return DatasetError(f"{word!r} is neither a file or folder nor the name of a known graph", remedy=hint)
