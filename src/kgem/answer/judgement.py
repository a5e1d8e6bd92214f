"""What is said of a fact: how credible it is and what speaks against it, one by one as they come, and as a table."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from kgem.tables import SHOWN, Bar, Rows, Table

if TYPE_CHECKING:
    import polars as pl

__all__ = ["JudgedFacts", "Judgement", "Judgements"]


@dataclass(frozen=True, repr=False)
class Judgement:
    """A fact, how credible it is, and what speaks against it."""

    head: str
    relation: str
    tail: str
    chance: float | None = None  # that it is right rather than a plausible mistake; None if a label is unknown
    low: float | None = None  # 5 % quantile of the chance over samples of q; None if not asked for
    high: float | None = None
    rank_tail: int | None = None  # of the tail among the answers to (h, r, ?) that are not known
    rank_head: int | None = None
    against: tuple[str, ...] = ()
    known: str | None = None  # the split that has the fact, or None
    note: str | None = None  # why it could not be judged

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "against": list(self.against)}

    def __repr__(self) -> str:
        how = self.note if self.chance is None else f"chance {self.chance:.3g}"
        return f"<Judgement {self.head} {self.relation} {self.tail}: {how}>"


class JudgedFacts(Rows[Judgement]):
    """Facts and how credible each is."""

    item, one = "judged facts", "judged fact"
    schema: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("head", "relation", "tail"), "text"),
        **dict.fromkeys(("chance", "low", "high"), "number"),
        **dict.fromkeys(("rank_tail", "rank_head"), "count"),
        "against": "texts",
        **dict.fromkeys(("known", "note"), "text"),
    }

    def to_rows(self) -> Iterator[dict[str, Any]]:
        """One row for each fact."""
        return (judged.to_dict() for judged in self)

    def draw_rows(self) -> tuple[Sequence[str], Callable[[Judgement], Sequence[Any]]]:
        """The chance as a bar, and what speaks against a fact."""

        def cells(j: Judgement) -> tuple[Any, ...]:
            against = "; ".join(j.against) or j.note
            return j.head, j.relation, j.tail, Bar(j.chance, j.low, j.high), j.chance, j.known, against

        return ("head", "relation", "tail", "", "chance", "known in", "against"), cells


class Judgements(Iterator[Judgement], Table):
    """Judgements as they come, each once; `to_list` and the frames have those that are left, however often asked."""

    def __init__(self, judged: Iterator[Judgement]) -> None:
        self._coming = judged
        self._seen: deque[Judgement] = deque()  # made, to be shown, and not yet given out
        self._rest: JudgedFacts | None = None  # all that were left when first asked for

    def __next__(self) -> Judgement:
        return self._seen.popleft() if self._seen else next(self._coming)

    def to_list(self) -> JudgedFacts:
        """All that are left; the same again when asked again."""
        if self._rest is None:
            self._rest = JudgedFacts(self)
        return self._rest

    def to_polars(self) -> pl.DataFrame:
        """All that are left, one row for each."""
        return self.to_list().to_polars()

    def _repr_html_(self) -> str:
        """The first of those that are left, which stay to be given out."""
        if self._rest is not None:
            return self._rest._repr_html_()
        self._seen.extend(islice(self._coming, SHOWN - len(self._seen)))
        return JudgedFacts(self._seen)._repr_html_()

    def __repr__(self) -> str:
        return "<Judgements, as they come: iterate, or take .to_list(), .to_pandas() or .to_polars()>"
