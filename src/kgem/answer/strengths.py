"""The learned strengths of the regulariser, by label."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kgem.answer.labels import means
from kgem.data.dataset import Dataset, Vocabulary
from kgem.model.prior import Strengths
from kgem.tables import Bar, Table, draw_table, format_number

if TYPE_CHECKING:
    import polars as pl

__all__ = ["SymbolStrengths", "SymbolValues"]


ENDS = 5  # the weakest and the strongest that a notebook shows


@dataclass(frozen=True, eq=False, repr=False)
class SymbolValues(Table):
    """One number per label; `array` has them in the order of ids."""

    vocabulary: Vocabulary
    array: npt.NDArray[np.float64]  # (n,)

    def __getitem__(self, label: str) -> float:
        found = means(self.vocabulary, label)
        return float(self.array[found[0] if len(found) == 1 else self.vocabulary.id(label)])

    def __contains__(self, label: object) -> bool:
        return label in self.vocabulary

    def __len__(self) -> int:
        return len(self.vocabulary)

    def __iter__(self) -> Iterator[str]:
        return iter(self.vocabulary)

    def items(self) -> Iterator[tuple[str, float]]:
        return zip(self.vocabulary, self.array.tolist(), strict=True)

    def to_polars(self) -> pl.DataFrame:
        """The columns label and strength, in the order of ids."""
        import polars as pl

        return pl.DataFrame({"label": list(self.vocabulary), "strength": self.array})

    def _repr_html_(self) -> str:
        order = np.argsort(self.array, kind="stable")
        shown = order if len(order) <= 2 * ENDS else np.concatenate([order[:ENDS], order[-ENDS:]])
        logs = np.log(np.maximum(self.array, np.finfo(np.float64).tiny))
        span = float(np.ptp(logs)) or 1.0
        rows = (
            (self.vocabulary[i], Bar((logs[i] - logs.min()) / span), float(self.array[i])) for i in shown[::-1].tolist()
        )
        note = "the strongest and the weakest; bars on a logarithmic scale"
        return draw_table(self._describe(), (self.vocabulary.kind, "", "strength"), rows, len(order), note)

    def __repr__(self) -> str:
        return f"<SymbolValues: {self._describe()}>"

    def _describe(self) -> str:
        kinds = {"entity": "entities", "relation": "relations"}
        kind = self.vocabulary.kind if len(self) == 1 else kinds[self.vocabulary.kind]
        ends = f", {format_number(self.array.min())} to {format_number(self.array.max())}" if len(self) else ""
        return f"strengths of {len(self):,} {kind}{ends}"


@dataclass(frozen=True, eq=False, repr=False)
class SymbolStrengths(Table):
    """The learned regulariser strengths lambda by label; reciprocal relations have their own."""

    entities: SymbolValues
    relations: SymbolValues
    reciprocals: SymbolValues  # of r^-1, under the label of r; those of r itself in the two-sided mode

    @classmethod
    def of(cls, learned: Strengths, data: Dataset, n_own: int) -> SymbolStrengths:
        """`n_own` is how many rows of relations there are, with reciprocal ones; what follows is of no relation."""
        entities, relations = (lam.detach().cpu().double().numpy() for lam in learned)
        relations, n, labels = relations[:n_own], data.n_relations, data.relations
        return cls(
            SymbolValues(data.entities, entities),
            SymbolValues(labels, relations[:n]),
            SymbolValues(labels, relations[-n:]),
        )

    def to_polars(self) -> pl.DataFrame:
        """The columns kind (entity, relation or reciprocal), label and strength."""
        import polars as pl

        parts = {"entity": self.entities, "relation": self.relations, "reciprocal": self.reciprocals}
        return pl.concat(
            part.to_polars().select(pl.lit(kind).alias("kind"), "label", "strength") for kind, part in parts.items()
        )

    def _repr_html_(self) -> str:
        return self.entities._repr_html_() + self.relations._repr_html_()

    def __repr__(self) -> str:
        return f"<SymbolStrengths: {self.entities._describe()}; {self.relations._describe()}>"
