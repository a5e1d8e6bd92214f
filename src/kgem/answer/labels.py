"""Finds labels while somebody types: exact first, then beginnings, beginnings of words, anything inside."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kgem.data.index import LongArray

__all__ = ["LabelSearch", "fold"]

EXACT, BEGINNING, WORD, INSIDE, NOWHERE = range(5)  # how a label matches, best first
NEIGHBOURS = 100  # labels that a mistyped one is compared with
COMPARED = 100  # characters of them
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

    def __init__(self, labels: Sequence[str], counts: npt.NDArray[np.integer[Any]]) -> None:
        self.labels, self.counts = labels, counts
        pieces = [fold(label).encode("utf-8", "replace") for label in labels]
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

    def find(self, text: str, limit: int) -> tuple[int, LongArray]:
        """How many labels match, and the ids of the best ones: as good matches go, by frequency."""
        wanted = fold(text).encode("utf-8", "replace")
        if not wanted:
            return len(self.labels), self._order[:limit]
        how = self._matches(wanted)
        found = np.flatnonzero(how < NOWHERE)
        keys = how[found].astype(np.int64) * len(how) + self._place[found]
        if len(found) > limit > 0:
            best = np.argpartition(keys, limit - 1)[:limit]
            best = best[np.argsort(keys[best])]
        else:
            best = np.argsort(keys)[:limit]
        return len(found), found[best]

    def near(self, text: str, most: int = 3) -> list[str]:
        """Labels that may have been meant by one that is not there: alike as a whole, or with the text inside."""
        wanted = fold(text)[:COMPARED]
        if not wanted:
            return []
        names = {fold(self.labels[i])[:COMPARED]: self.labels[i] for i in reversed(self._alike(wanted).tolist())}
        close = [names[name] for name in difflib.get_close_matches(wanted, names, n=most, cutoff=ALIKE)]
        inside = [self.labels[i] for i in self.find(wanted, most)[1].tolist()]
        return list(dict.fromkeys(close + inside))[:most]

    def _alike(self, wanted: str) -> LongArray:
        """The labels that have most pairs of letters in common with a text, for their length; the frequent first."""
        end = bytes([_END])
        ours = np.frombuffer(end + wanted.encode("utf-8", "replace") + end, dtype=np.uint8)
        asked = np.zeros((256, 256), dtype=bool)
        asked[ours[:-1], ours[1:]] = True
        text = np.concatenate([ours[:1], self._bytes])  # with an end before the first label too
        shared = np.bincount(self._owner[asked[text[:-1], text[1:]]], minlength=len(self.labels))
        return np.lexsort((self._place, -2 * shared / (self._sizes + len(ours))))[:NEIGHBOURS]

    def _matches(self, wanted: bytes) -> npt.NDArray[np.uint8]:
        """How each label matches: (n,)."""
        how = np.full(len(self.labels), NOWHERE, dtype=np.uint8)
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
