"""The learned strengths of the regulariser, by label."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kgem.answer.labels import means
from kgem.data.dataset import Dataset, Vocabulary
from kgem.model.prior import Strengths

__all__ = ["SymbolStrengths", "SymbolValues"]


@dataclass(frozen=True, eq=False)
class SymbolValues:
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


@dataclass(frozen=True, eq=False)
class SymbolStrengths:
    """The learned regulariser strengths lambda by label; reciprocal relations have their own."""

    entities: SymbolValues
    relations: SymbolValues
    reciprocals: SymbolValues  # of r^-1, under the label of r; those of r itself in the two-sided mode

    @classmethod
    def of(cls, learned: Strengths, data: Dataset) -> SymbolStrengths:
        entities, relations = (lam.detach().cpu().double().numpy() for lam in learned)
        n, labels = data.n_relations, data.relations
        return cls(
            SymbolValues(data.entities, entities),
            SymbolValues(labels, relations[:n]),
            SymbolValues(labels, relations[-n:]),
        )
