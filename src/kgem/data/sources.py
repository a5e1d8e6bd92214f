"""From what a user names or holds (a file, a folder, a catalogue name, a frame, tuples) to labelled facts per split."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from kgem.data.catalog import CATALOG, find_entry, locate
from kgem.data.formats import pykeen
from kgem.data.names import NO_NAMES, Names, read_names
from kgem.data.options import FACT, SPLITS, ReadOptions
from kgem.data.streams import STDIN, Source, split_suffix
from kgem.data.triples import EXTENSIONS, FORMATS, ReadReport, read_triples
from kgem.errors import ConfigError, DatasetError, TriplesError

__all__ = ["Found", "Read", "find", "load_names", "read"]

# How splits are called in file names and in a column `split`.
ALIASES = {
    **{"train": "train", "training": "train", "test": "test", "testing": "test"},
    **{"valid": "valid", "validation": "valid", "dev": "valid"},
}
PYKEEN = {"train": "training", "valid": "validation", "test": "testing"}  # the splits of its data sets
OPENKE = {"train2id.txt": "train", "valid2id.txt": "valid", "test2id.txt": "test"}
OPENKE_LABELS = ("entity2id.txt", "relation2id.txt")
SPLIT_COLUMN = "split"
WHOLE = "all"  # the name of a single source of all splits


@dataclass(frozen=True)
class Found:
    """Where the facts of each split are; one source of all of them is called WHOLE."""

    name: str
    parts: Mapping[str, Any]  # split -> path, or anything read_triples takes
    options: ReadOptions
    files: Mapping[str, Path] = field(default_factory=dict)  # all that reading depends on; none if unknown


def find(source: Any, options: ReadOptions) -> Found:
    """What a user's word for a graph means; a path that exists wins over a catalogue name."""
    if options.format is not None and options.format not in FORMATS:
        raise ConfigError(f"no format is called {options.format!r}", remedy=f"one of {', '.join(FORMATS)}")
    if not isinstance(source, str | Path):
        return _find_in_memory(source, options)
    if str(source) == STDIN:
        return Found("standard input", {WHOLE: STDIN}, options)
    path = Path(source).expanduser()
    if path.is_dir() and str(source):
        return _find_in_folder(path, options)
    if path.is_file():
        return Found(_stem(path), {WHOLE: path}, options, {WHOLE: path})
    if path.exists():  # a pipe, such as the shell's <(command): read once, never cached
        return Found(_stem(path), {WHOLE: path}, options)
    if str(source).strip().casefold() in CATALOG:
        known = find_entry(str(source))
        _refuse_options(known.name, options)
        extra = SPLIT_COLUMN if known.embedded else None
        layout = replace(options, format="tsv", header=known.embedded, columns=None, extra=extra)
        files = locate(known.name)
        return Found(known.name, files, layout, files)
    raise _nothing(str(source), path)


def _find_in_memory(source: Any, options: ReadOptions) -> Found:
    """A dict of splits, each anything that is a graph; a data set of PyKEEN; else one source of all facts."""
    if all(hasattr(source, name) for name in PYKEEN.values()):
        source = {split: part for split, name in PYKEEN.items() if (part := getattr(source, name)) is not None}
    if isinstance(source, Mapping) and set(FACT) <= set(source):
        try:
            source = pl.DataFrame(dict(source), strict=False)
        except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
            what, remedy = f"the columns do not make a table: {error}", "give lists of labels, all of one length"
            raise DatasetError(what, where="<dict>", remedy=remedy) from error
    if not isinstance(source, Mapping):
        return Found("graph", {WHOLE: source}, options)
    parts: dict[str, Any] = {}
    for given, part in source.items():
        split = ALIASES.get(str(given).casefold())
        if split is None or split in parts:
            what = f"a split is called {given!r}" if split is None else f"the split {split} is given twice"
            remedy = "give a dict with train, and perhaps valid and test, or with the columns head, relation and tail"
            raise DatasetError(what, where="<dict>", remedy=remedy)
        if split == "train" or not hasattr(part, "__len__") or len(part):  # an empty list of held-out facts is none
            parts[split] = part
    if "train" not in parts:
        raise DatasetError("the dict has no training facts", where="<dict>", remedy="give them as 'train'")
    return Found("graph", parts, options)


class Read(NamedTuple):
    """What a graph's source has in it."""

    frames: dict[str, pl.DataFrame]  # facts by split: head, relation, tail and perhaps an extra column
    reports: dict[str, ReadReport]
    names: Names  # of symbols, those that are in no fact included


def read(found: Found) -> Read:
    """The facts of each split, how reading went, and the names that the source has."""
    if WHOLE in found.parts:
        return _read_whole(found.parts[WHOLE], found.options)
    triples = {s: read_triples(part, found.options, split=s) for s, part in found.parts.items()}
    names = reduce(Names.extend, (t.names for t in triples.values()), NO_NAMES)
    return Read({s: t.frame for s, t in triples.items()}, {s: t.report for s, t in triples.items()}, names)


def load_names(options: ReadOptions) -> Names:
    """The names in the file that the options tell, if they do."""
    if options.labels is None:
        return NO_NAMES
    with Source.of(Path(options.labels).expanduser()).open() as file:
        try:
            return read_names(file.read().decode("utf-8-sig"), options.labels)
        except UnicodeDecodeError as error:
            raise TriplesError("is not text in UTF-8", where=options.labels, remedy="save it as UTF-8") from error


def _read_whole(source: Any, options: ReadOptions) -> Read:
    """One source: all facts are for training, unless a column says which split each is in."""
    triples = read_triples(source, options, extra_if_named=SPLIT_COLUMN)
    if SPLIT_COLUMN not in triples.frame.columns:
        return Read({"train": triples.frame}, {"train": triples.report}, triples.names)
    named = pl.col(SPLIT_COLUMN).cast(pl.String).str.to_lowercase().replace_strict(ALIASES, default=None)
    frame = triples.frame.with_columns(named.alias("_split"))
    wrong = frame.filter(pl.col("_split").is_null())
    if len(wrong):
        raise DatasetError(
            f"{len(wrong):,} facts are in a split called {wrong[SPLIT_COLUMN][0]!r}",
            where=triples.report.source,
            remedy=f"the column {SPLIT_COLUMN!r} may hold train, valid (validation, dev) and test",
        )
    frames = {split: frame.filter(pl.col("_split") == split).drop("_split", SPLIT_COLUMN) for split in SPLITS}
    return Read(frames, {WHOLE: triples.report}, triples.names)


def _find_in_folder(folder: Path, options: ReadOptions) -> Found:
    """A folder with one file per split, by labels or (OpenKE) by ids."""
    name = folder.resolve().name
    if options.format is None and (place := pykeen.find_factory(folder)):
        files = {"train": place / pykeen.FACTS, **{kind: place / kind for kind in pykeen.IDS}}
        return Found(name, {"train": place}, options, files)
    labelled: dict[str, list[Path]] = {}
    ids: dict[str, Path] = {}
    vocabularies: dict[str, Path] = {}
    for path in sorted(p for p in folder.iterdir() if p.is_file()):
        plain = split_suffix(path.name)[0]
        if plain in OPENKE:
            ids[OPENKE[plain]] = path
        elif plain in OPENKE_LABELS:
            vocabularies[plain] = path
        elif (split := ALIASES.get(_stem(path).casefold())) and (
            options.format or Path(plain).suffix.lower() in EXTENSIONS
        ):
            labelled.setdefault(split, []).append(path)
    if "train" in ids and (options.format == "openke" or (options.format is None and not labelled)):
        parts = {split: folder for split in OPENKE.values() if split in ids}
        return Found(name, parts, replace(options, format="openke"), {**ids, **vocabularies})
    candidates = {s: [*labelled.get(s, ()), *([ids[s]] if s in ids else ())] for s in OPENKE.values()}
    for split, paths in candidates.items():
        if len(paths) > 1:
            raise DatasetError(
                f"{len(paths)} files could be the split {split}: {', '.join(p.name for p in paths)}",
                where=str(folder),
                remedy="keep one of them in the folder (format='openke', --format openke, takes the files of ids)",
            )
    if not candidates["train"]:
        raise DatasetError(
            "the folder has no training facts",
            where=str(folder),
            remedy="name the file with them train.tsv (or .csv, .parquet, .nt, .ttl, ...; OpenKE: train2id.txt)",
        )
    files = {split: paths[0] for split, paths in candidates.items() if paths}
    return Found(name, files, options, files)


def _refuse_options(name: str, options: ReadOptions) -> None:
    """A graph of the catalogue is read as the catalogue says: options that would change that are refused."""
    given = [
        option
        for option in ("format", "header", "columns", "extra", "delimiter", "encoding")
        if getattr(options, option)
    ]
    given += ["literals"] if options.literals == "keep" else []
    if given:
        raise ConfigError(
            f"is a graph known by name, whose layout is known, too: {', '.join(given)} cannot be chosen",
            where=name,
            remedy=f"leave out {', '.join(f'--{option}' for option in given)}, or give the path of a file or folder",
        )


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
    return DatasetError(f"{word!r} is neither a file, nor a folder, nor the name of a known graph", remedy=hint)
