"""A graph ready for training: vocabularies, splits, counts, reciprocal facts (Eq. 7), the two indexes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kgem.data import cache as caching
from kgem.data.index import IntArray, LongArray, QueryIndex, Vocabulary, fact_keys, freeze, reciprocal
from kgem.data.names import Names
from kgem.data.options import FACT, SPLITS, ReadOptions
from kgem.errors import DatasetError
from kgem.tables import Bar, Table, draw_table

if TYPE_CHECKING:
    from kgem.data.triples import ReadReport

__all__ = [
    "SPLITS",
    "Dataset",
    "IntArray",
    "LongArray",
    "QueryIndex",
    "Vocabulary",
    "encode",
    "first_places",
    "reciprocal",
]

SHOWN_RELATIONS = 8  # the most frequent, in a notebook
_NO_FACTS: IntArray = np.empty((0, 3), dtype=np.int32)


@dataclass(frozen=True, eq=False, repr=False)
class Dataset(Table):
    """An immutable graph: ids for labels, and facts (h, r, t) in three splits."""

    name: str
    entities: Vocabulary
    relations: Vocabulary
    train: IntArray  # (n, 3)
    valid: IntArray
    test: IntArray
    duplicates: Mapping[str, int] = field(default_factory=dict)  # facts dropped per split: given twice
    extra: Mapping[str, pl.Series] = field(default_factory=dict)  # per split, a fourth column of its facts
    reports: tuple[ReadReport, ...] = ()  # how reading the files went

    def __post_init__(self) -> None:
        for split in SPLITS:
            given = np.asarray(getattr(self, split))
            facts = np.ascontiguousarray(given, dtype=np.int32).reshape(-1, 3)
            if np.shares_memory(facts, given) and given.flags.writeable:
                facts = facts.copy()  # what the caller can still change is not ours
            self._check_ids(facts, split)
            object.__setattr__(self, split, freeze(facts))
        if not len(self.train):
            raise DatasetError("the training split has no facts", where=self.name, remedy="give it at least one")

    def _check_ids(self, facts: IntArray, split: str) -> None:
        for column, size in enumerate((self.n_entities, self.n_relations, self.n_entities)):
            ids = facts[:, column]
            if len(ids) and (ids.min() < 0 or ids.max() >= size):
                raise DatasetError(
                    f"an id in column {column} of {split} is not in 0 ... {size - 1}",
                    where=self.name,
                    remedy="ids are places in the vocabularies",
                )

    @classmethod
    def load(
        cls,
        source: Any,
        *,
        format: str | None = None,
        header: bool = False,
        columns: Sequence[str] | None = None,
        extra: str | None = None,
        literals: str = "drop",
        skip_bad: bool = False,
        delimiter: str | None = None,
        encoding: str | None = None,
        labels: str | Path | Mapping[str, str] | None = None,
        cache: bool = True,
        name: str | None = None,
    ) -> Dataset:
        """A graph from a file, a folder with train/valid/test, a catalogue name, a frame, an array, or tuples.

        Tuples (head, relation, tail) come as a list, any iterator, or an RDF graph of rdflib. A dict has a graph for
        each split: {"train": ..., "valid": ..., "test": ...}. PyKEEN's TriplesFactory, its data sets and the folders of
        its results are graphs, too. The options are those of `ReadOptions`; `labels` may also be names by label. A
        single source is all for training, unless it has a column called `split`. A large graph that was read before
        comes from the cache (`kgem.data.cache`).
        """
        chosen = None if columns is None else tuple(columns)
        names = None if labels is None or isinstance(labels, Mapping) else str(labels)
        how = ReadOptions(format, header, chosen, extra, literals, skip_bad, delimiter, encoding, names)
        dataset = cls.read(source, how, cache=cache, name=name)
        if not isinstance(labels, Mapping):
            return dataset
        return dataset.with_names(Names({str(label): str(each) for label, each in labels.items()}), where="labels")

    @classmethod
    def read(cls, source: Any, options: ReadOptions, *, cache: bool = True, name: str | None = None) -> Dataset:
        """As `load`, with all options in one."""
        if isinstance(source, Dataset):
            return source._as_it_is(options, name)
        from kgem.data.sources import find, load_names, read  # here and not above: the readers are slow to import

        found, given = find(source, options), load_names(options)
        keep = cache and options.extra is None and caching.worth(found.files)
        key = caching.cache_key(found.files, asdict(found.options)) if keep else ""
        kept = caching.load(key) if keep else None
        if kept:
            dataset = cls._from_parsed(kept, name or found.name, [found.files[split] for split in found.parts])
        else:
            frames, reports, names = read(found)
            dataset = cls.from_frames(**frames, name=name or found.name, reports=reports).with_names(names)
            if keep:
                caching.store(key, dataset._to_parsed())
        return dataset.with_names(given, where=options.labels)

    def _as_it_is(self, options: ReadOptions, name: str | None) -> Dataset:
        """This one, given where a source is asked for: it is read already, so that only names can be added."""
        from kgem.data.sources import load_names

        if replace(options, labels=None) != ReadOptions():
            what, remedy = (
                "is a Dataset, which has been read already",
                "give the options where it is read, or its source",
            )
            raise DatasetError(what, where=self.name, remedy=remedy)
        named = self.with_names(load_names(options), where=options.labels)
        return named if name is None else replace(named, name=name)

    @classmethod
    def from_frames(
        cls,
        train: pl.DataFrame,
        valid: pl.DataFrame | None = None,
        test: pl.DataFrame | None = None,
        name: str = "graph",
        reports: Mapping[str, ReadReport] | None = None,
    ) -> Dataset:
        """Labelled facts (columns head, relation, tail; more are kept as `extra`); ids follow sorted labels."""
        given = {"train": train, "valid": valid, "test": test}
        frames = {split: frame for split, frame in given.items() if frame is not None}
        text = {split: frame.select(pl.col(FACT).cast(pl.String)) for split, frame in frames.items()}
        ends = [frame[column].unique() for frame in text.values() for column in ("head", "tail")]
        entities = pl.concat(ends).unique().sort()
        relations = pl.concat([frame["relation"].unique() for frame in text.values()]).unique().sort()
        facts = {split: encode(frame, entities, relations) for split, frame in text.items()}
        once = {s: first_places(f, len(entities), len(relations)) for s, f in facts.items()}
        again = {split: report.duplicates for split, report in (reports or {}).items()}
        more = {split: frame.drop(FACT) for split, frame in frames.items()}
        for split, frame in more.items():
            if frame.width > 1:
                raise DatasetError(
                    f"{split} has more than one column beside head, relation, tail: {', '.join(frame.columns)}",
                    where=name,
                    remedy="keep one of them, as `extra`",
                )
        return cls(
            name=name,
            entities=Vocabulary(tuple(entities.to_list()), "entity"),
            relations=Vocabulary(tuple(relations.to_list()), "relation"),
            train=facts["train"][once["train"]],
            valid=facts["valid"][once["valid"]] if "valid" in facts else _NO_FACTS,
            test=facts["test"][once["test"]] if "test" in facts else _NO_FACTS,
            duplicates=again | {s: again.get(s, 0) + len(facts[s]) - len(once[s]) for s in facts},
            extra={s: frame.to_series().gather(once[s]) for s, frame in more.items() if frame.width},
            reports=tuple((reports or {}).values()),
        )

    @property
    def names(self) -> Names:
        """What people call the symbols."""
        return self.entities.names

    def with_names(self, names: Names, *, where: str | None = None) -> Dataset:
        """The same graph with further names of its symbols; an error if a file (`where`) has none of them."""
        if not names:
            return self
        kept = names.keep({*self.entities, *self.relations})
        if where is not None and not kept.by_label:
            first = next(iter(names.by_label))
            raise DatasetError(
                f"names no symbol of {self.name}; its first id is {first!r}",
                where=where,
                remedy="each line needs the label that the graph has, a tab, and the name",
            )
        kept = Names(kept.by_label, self._find_prefixes(kept.prefixes))
        merged = self.names.extend(kept)
        entities, relations = (replace(each, names=merged) for each in (self.entities, self.relations))
        return replace(self, entities=entities, relations=relations)

    def _find_prefixes(self, prefixes: Mapping[str, str]) -> dict[str, str]:
        """Those that shorten some label."""
        if not prefixes:
            return {}
        labels = pl.Series([*self.entities, *self.relations])
        return {prefix: iri for prefix, iri in prefixes.items() if labels.str.starts_with(iri).any()}

    def _to_parsed(self) -> caching.Parsed:
        labels = {v.kind: v.labels for v in (self.entities, self.relations)}
        notes = {
            "duplicates": dict(self.duplicates),
            "reports": [asdict(report) for report in self.reports],
            "names": dict(self.names.by_label),
            "prefixes": dict(self.names.prefixes),
        }
        return caching.Parsed(labels, {split: self.split(split) for split in SPLITS}, notes)

    @classmethod
    def _from_parsed(cls, parsed: caching.Parsed, name: str, sources: Sequence[Path]) -> Dataset:
        """A graph out of the cache; the same content may have been read from elsewhere before."""
        from kgem.data.triples import Problem, ReadReport

        reports = [
            ReadReport(**{**kept, "source": str(path), "problems": tuple(Problem(**p) for p in kept["problems"])})
            for kept, path in zip(parsed.notes["reports"], sources, strict=True)
        ]
        names = Names(parsed.notes["names"], parsed.notes["prefixes"])
        return cls(
            name=name,
            entities=Vocabulary(parsed.labels["entity"], "entity", names),
            relations=Vocabulary(parsed.labels["relation"], "relation", names),
            train=freeze(parsed.facts["train"]),
            valid=freeze(parsed.facts["valid"]),
            test=freeze(parsed.facts["test"]),
            duplicates=parsed.notes["duplicates"],
            reports=tuple(reports),
        )

    @property
    def n_entities(self) -> int:
        return len(self.entities)

    @property
    def n_relations(self) -> int:
        """Relations of the graph itself; with reciprocal ones there are twice as many ids."""
        return len(self.relations)

    def split(self, name: str) -> IntArray:
        """The facts (n, 3) of train, valid or test."""
        if name not in SPLITS:
            raise DatasetError(f"no split is called {name!r}", remedy=f"one of {', '.join(SPLITS)}")
        facts: IntArray = getattr(self, name)
        return facts

    def reciprocal(self, facts: IntArray) -> IntArray:
        """Eq. 7: the facts and, below them, (t, r + n_relations, h) for each."""
        return reciprocal(facts, self.n_relations)

    @cached_property
    def entity_counts(self) -> LongArray:
        """n^E: how often each entity is head or tail of a training fact, (N_e,)."""
        return freeze(np.bincount(self.train[:, [0, 2]].ravel(), minlength=self.n_entities))

    @cached_property
    def relation_counts(self) -> LongArray:
        """n^R: how often each relation occurs in training, (N_r,)."""
        return freeze(np.bincount(self.train[:, 1], minlength=self.n_relations))

    @cached_property
    def query_index(self) -> QueryIndex:
        """The distinct queries of the augmented training set S'."""
        return self._index(self.train)

    @cached_property
    def filter_index(self) -> QueryIndex:
        """The known tails of every query, over all splits."""
        held_out = np.concatenate([self.valid, self.test])
        return self._index(np.concatenate([self.train, held_out])) if len(held_out) else self.query_index

    def _index(self, facts: IntArray) -> QueryIndex:
        return QueryIndex.build(self.reciprocal(facts), self.n_entities, 2 * self.n_relations)

    @cached_property
    def content_hash(self) -> str:
        """sha256 over labels and facts: equal for equal graphs, whatever files they came from."""
        digest = hashlib.sha256()
        for vocabulary in (self.entities, self.relations):
            digest.update("\0".join(vocabulary.labels).encode() + b"\0\0")
        for split in SPLITS:
            digest.update(np.ascontiguousarray(self.split(split), dtype="<i4").tobytes() + b"\0\0")
        return digest.hexdigest()

    def knows(self, fact: Sequence[str]) -> bool:
        """Whether it has all three symbols of a fact, by their labels."""
        head, relation, tail = fact
        return head in self.entities and relation in self.relations and tail in self.entities

    def ids(self, facts: Iterable[Sequence[str]]) -> LongArray:
        """Facts of labels by their ids, (n, 3)."""
        found = [(self.entities.id(h), self.relations.id(r), self.entities.id(t)) for h, r, t in facts]
        return np.array(found, dtype=np.int64).reshape(-1, 3)

    def label(self, fact: Sequence[int] | LongArray) -> tuple[str, str, str]:
        """A fact of ids by its labels."""
        head, relation, tail = map(int, fact)
        return self.entities[head], self.relations[relation], self.entities[tail]

    def show(self, fact: Sequence[str]) -> tuple[str, str, str]:
        """A fact of labels for people: by names, with the labels beside them."""
        head, relation, tail = fact
        return self.entities.show(head), self.relations.show(relation), self.entities.show(tail)

    def frame(self, split: str) -> pl.DataFrame:
        """The facts of a split with their labels."""
        facts = self.split(split)
        entities, relations = pl.Series(self.entities.labels), pl.Series(self.relations.labels)
        frame = pl.DataFrame(
            {
                "head": entities.gather(facts[:, 0]),
                "relation": relations.gather(facts[:, 1]),
                "tail": entities.gather(facts[:, 2]),
            }
        )
        return frame.with_columns(self.extra[split]) if split in self.extra else frame

    def to_polars(self) -> pl.DataFrame:
        """All facts with their labels: head, relation, tail, split."""
        return pl.concat(
            self.frame(split).select(*FACT, pl.lit(split).alias("split")) for split in SPLITS if len(self.split(split))
        )

    def _repr_html_(self) -> str:
        """How many facts each split has, and each of the most frequent relations."""
        most = np.argsort(-self.relation_counts, kind="stable")[:SHOWN_RELATIONS].tolist()
        counts = {split: len(self.split(split)) for split in SPLITS}
        counts |= {f"relation {self.relations[r]}": int(self.relation_counts[r]) for r in most}
        full = float(max(counts.values()))
        rows = ((name, Bar(n, full=full), n) for name, n in counts.items())
        title = f"{self.name}: {self._count_symbols()}"
        more = max(self.n_relations - len(most), 0)
        note = f"relations by their facts in train{f'; {more:,} relations more' if more else ''}"
        return draw_table(title, ("", "", "facts"), rows, note=note)

    def __repr__(self) -> str:
        sizes = " / ".join(f"{len(self.split(s)):,}" for s in SPLITS)
        return f"<Dataset {self.name}: {self._count_symbols()}, {sizes} facts>"

    def _count_symbols(self) -> str:
        entities = "entity" if self.n_entities == 1 else "entities"
        return f"{self.n_entities:,} {entities}, {self.n_relations:,} relation{'' if self.n_relations == 1 else 's'}"


def encode(frame: pl.DataFrame, entities: pl.Series, relations: pl.Series) -> IntArray:
    """Labels to ids by hash look-up, (n, 3)."""
    entity, relation = pl.Enum(entities), pl.Enum(relations)
    facts = np.empty((len(frame), 3), dtype=np.int32)
    for place, (column, kind) in enumerate(zip(FACT, (entity, relation, entity), strict=True)):
        facts[:, place] = frame[column].cast(kind).to_physical().to_numpy()
    return facts


def first_places(facts: IntArray, n_entities: int, n_relations: int) -> LongArray:
    """Where each distinct fact is first, ascending."""
    keys = fact_keys(facts, n_entities, n_relations)
    ordered = np.sort(keys)
    if not (ordered[1:] == ordered[:-1]).any():  # the usual case, far quicker than finding the first ones
        return np.arange(len(keys))
    return np.sort(np.unique(keys, return_index=True)[1])
