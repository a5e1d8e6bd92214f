"""Finds symbols by what people write: labels while somebody types, and the one symbol that a label or a name means."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kgem.data.dataset import Dataset
from kgem.data.index import LongArray, Vocabulary
from kgem.errors import UnknownLabel

__all__ = ["LabelSearch", "entity_id", "entity_ids", "explain", "fold", "means", "relation_id", "relation_ids"]

EXACT, BEGINNING, WORD, INSIDE, NOWHERE = range(5)  # how a label matches, best first
NEIGHBOURS = 100  # labels that a mistyped one is compared with
COMPARED = 100  # characters of them
SEVERAL = 5  # symbols of the same name that an error lists
ALIKE = 0.6  # at least, from 0 to 1, to be taken for what was meant

_MARKS = re.compile("[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]")
_SPACES = re.compile(r"[\s_]+")
_LETTERS = str.maketrans({"ø": "o", "ł": "l", "đ": "d", "ð": "d", "þ": "th", "æ": "ae", "œ": "oe", "ı": "i"})
_END = 0xFF  # between labels: a byte that UTF-8 never has


def fold(text: str) -> str:
    """Text without case and accents; underscores and runs of white space are one space."""
    text = text.casefold()
    if not text.isascii():
        text = _MARKS.sub("", unicodedata.normalize("NFKD", text)).casefold().translate(_LETTERS)
    return _SPACES.sub(" ", text).strip()


class LabelSearch:
    """All labels as one row of bytes, which is looked through as a whole: milliseconds for a hundred thousand."""

    def __init__(
        self, labels: Sequence[str], counts: npt.NDArray[np.integer[Any]], names: Mapping[str, str] | None = None
    ) -> None:
        self.labels, self.counts = labels, counts
        named = [i for i, label in enumerate(labels) if label in names] if names else []
        self._symbols = np.concatenate([np.arange(len(labels)), np.array(named, dtype=np.int64)])  # whose text it is
        self._texts = [*labels, *(names[labels[i]] for i in named)] if names else labels
        pieces = [fold(text).encode("utf-8", "replace") for text in self._texts]
        sizes = np.fromiter(map(len, pieces), dtype=np.int64, count=len(pieces))
        self._bytes = np.frombuffer(bytes([_END]).join([*pieces, b""]), dtype=np.uint8)  # each ends with _END
        self._owner = np.repeat(np.arange(len(pieces), dtype=np.int32), sizes + 1)  # whose byte it is
        self._starts = np.cumsum(sizes + 1) - sizes - 1
        self._sizes = sizes
        self._word_starts = _word_starts(self._bytes)
        order = np.argsort(-counts, kind="stable")  # the most frequent first, then as in the vocabulary
        self._place = np.empty(len(order), dtype=np.int64)
        self._place[order] = np.arange(len(order))
        self._order = order

    @classmethod
    def of(cls, vocabulary: Vocabulary, counts: npt.NDArray[np.integer[Any]]) -> LabelSearch:
        """Through the labels and the names of a vocabulary."""
        return cls(vocabulary.labels, counts, vocabulary.names.by_label)

    def find(self, text: str, limit: int, *, by_frequency: bool = False) -> tuple[int, LongArray]:
        """How many symbols match, and the ids of the best: as good matches go, then by frequency.

        `by_frequency`: only a match as a whole comes before the most frequent.
        """
        wanted = fold(text).encode("utf-8", "replace")
        if not wanted:
            return len(self.labels), self._order[:limit]
        how = np.full(len(self.labels), NOWHERE, dtype=np.uint8)
        np.minimum.at(how, self._symbols, self._matches(wanted))
        if by_frequency:
            how[(how > EXACT) & (how < NOWHERE)] = INSIDE
        found = np.flatnonzero(how < NOWHERE)
        keys = how[found].astype(np.int64) * len(how) + self._place[found]
        if len(found) > limit > 0:
            best = np.argpartition(keys, limit - 1)[:limit]
            best = best[np.argsort(keys[best])]
        else:
            best = np.argsort(keys)[:limit]
        return len(found), found[best]

    def near(self, text: str, most: int = 3) -> list[str]:
        """Labels that may have been meant by one that is not there: with the text as a word, alike, or with it inside.

        Who writes numpy means python3-numpy rather than snimpy.
        """
        wanted = fold(text)[:COMPARED]
        if not wanted:
            return []
        alike = {
            fold(self._texts[i])[:COMPARED]: self.labels[self._symbols[i]] for i in self._alike(wanted)[::-1].tolist()
        }
        close = [alike[name] for name in difflib.get_close_matches(wanted, alike, n=most, cutoff=ALIKE)]
        inside = self.find(wanted, NEIGHBOURS, by_frequency=True)[1]
        words, others = ([self.labels[i] for i in inside[kind].tolist()] for kind in self._split_words(inside, wanted))
        return list(dict.fromkeys([*words, *close[:1], *others[:most], *close]))[:most]

    def _split_words(self, symbols: LongArray, wanted: str) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Which of some symbols have a text as a word, or as words, of their own; and which have not."""
        word = re.compile(rf"(?<!\w){re.escape(wanted)}(?!\w)")
        places = np.flatnonzero(np.isin(self._symbols, symbols)).tolist()
        having = [self._symbols[place] for place in places if word.search(fold(self._texts[place]))]
        words = np.isin(symbols, having)
        return words, ~words

    def _alike(self, wanted: str) -> LongArray:
        """The labels that have most pairs of letters in common with a text, for their length; the frequent first."""
        end = bytes([_END])
        ours = np.frombuffer(end + wanted.encode("utf-8", "replace") + end, dtype=np.uint8)
        asked = np.zeros((256, 256), dtype=bool)
        asked[ours[:-1], ours[1:]] = True
        text = np.concatenate([ours[:1], self._bytes])  # with an end before the first label too
        shared = np.bincount(self._owner[asked[text[:-1], text[1:]]], minlength=len(self._texts))
        return np.lexsort((self._place[self._symbols], -2 * shared / (self._sizes + len(ours))))[:NEIGHBOURS]

    def _matches(self, wanted: bytes) -> npt.NDArray[np.uint8]:
        """How each text matches: (n,)."""
        how = np.full(len(self._texts), NOWHERE, dtype=np.uint8)
        places = np.flatnonzero(self._bytes[: max(0, len(self._bytes) - len(wanted))] == wanted[0])
        for offset, byte in enumerate(wanted[1:], 1):
            places = places[self._bytes[places + offset] == byte]
            if not len(places):
                return how
        owners = self._owner[places]
        how[owners] = INSIDE
        how[owners[self._word_starts[places]]] = WORD
        first = owners[self._starts[owners] == places]
        how[first] = BEGINNING
        how[first[self._sizes[first] == len(wanted)]] = EXACT
        return how


def _word_starts(text: npt.NDArray[np.uint8]) -> npt.NDArray[np.bool_]:
    """Where a byte follows one that is neither letter nor digit; bytes of letters beyond ASCII are letters."""
    letter = np.zeros(256, dtype=bool)
    letter[128:_END] = True
    letter[[*range(ord("0"), ord("9") + 1), *range(ord("a"), ord("z") + 1)]] = True
    starts = np.ones(len(text), dtype=bool)
    starts[1:] = ~letter[text[:-1]]
    return starts


def means(vocabulary: Vocabulary, text: str) -> list[int]:
    """The ids of the symbols that a text may mean: of its label, else of its name, else as it is shown (wd:Q64)."""
    if text in vocabulary:
        return [vocabulary.id(text)]
    if not vocabulary.names:
        return []
    if text in vocabulary.by_name:
        return vocabulary.by_name[text]
    short = vocabulary.names.expand(text)
    if short is not None and short in vocabulary:
        return [vocabulary.id(short)]
    for place in (found.end() for found in re.finditer(r" \(", text) if text.endswith(")")):  # Berlin (wd:Q64)
        inner = text[place:-1]
        for label in (inner, vocabulary.names.expand(inner)):
            if label is not None and label in vocabulary and vocabulary.show(label) == text:
                return [vocabulary.id(label)]
    return []


def explain(
    vocabulary: Vocabulary, text: str, counts: npt.NDArray[np.integer[Any]], search: LabelSearch | None = None
) -> UnknownLabel:
    """The error for a text that means no symbol, or several, with those that may have been meant."""
    found = means(vocabulary, text)
    if found:
        those = ", ".join(repr(vocabulary[i]) for i in found[:SEVERAL])
        more = f" and {len(found) - SEVERAL} more" if len(found) > SEVERAL else ""
        plural = "entities" if vocabulary.kind == "entity" else f"{vocabulary.kind}s"
        return UnknownLabel(f"{len(found)} {plural} are called {text!r}", remedy=f"say which one: {those}{more}")
    near = (search or LabelSearch.of(vocabulary, counts)).near(text)
    shown = ", ".join(repr(vocabulary.show(label)) for label in near)
    remedy = f"did you mean {shown}?" if near else "labels are compared exactly"
    return UnknownLabel(f"no {vocabulary.kind} is called {text!r}", remedy=remedy)


def entity_id(data: Dataset, text: object) -> int:
    """The entity that a label or a name means; an error with suggestions if it is none, or not one."""
    text = str(text)  # as labels are read: 3 is '3'
    found = means(data.entities, text)
    if len(found) != 1:
        raise explain(data.entities, text, data.entity_counts)
    return found[0]


def relation_id(data: Dataset, text: object) -> int:
    """The relation that a label or a name means; an error with suggestions if it is none, or not one."""
    text = str(text)  # as labels are read: 3 is '3'
    found = means(data.relations, text)
    if len(found) != 1:
        raise explain(data.relations, text, data.relation_counts)
    return found[0]


def entity_ids(data: Dataset, texts: Iterable[object]) -> LongArray:
    """As `entity_id`, of many."""
    return np.array([entity_id(data, text) for text in texts], dtype=np.int64)


def relation_ids(data: Dataset, texts: Iterable[object]) -> LongArray:
    """As `relation_id`, of many."""
    return np.array([relation_id(data, text) for text in texts], dtype=np.int64)
