"""The modes of prediction (end of Section 3.2), and one of them ready to score; without torch, for the command line.

`point` asks the tables that a fit ends with, `mean` the means of q, `bayes` averages softmax probabilities over samples
of q. `blend` asks `point` and `mean` together: the geometric mean of their probabilities. `auto` is the better of
`point` and `mean` on validation, or a mode that costs more where that is clearly ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from torch import Tensor

    from kgem.answer.candidates import Candidates
    from kgem.data.dataset import Dataset, LongArray
    from kgem.evaluate.blocks import Ints, Scorer
    from kgem.evaluate.temperature import Floats, Temperature
    from kgem.model.embeddings import Embeddings

__all__ = ["AUTO", "MODES", "ModeName", "ModeScorer"]

AUTO = "auto"
MODES = {
    "point": "the tables that the fit ends with",
    "mean": "the means of q",
    "bayes": "probabilities averaged over q",
    "blend": "point and mean together",
}
if TYPE_CHECKING:
    ModeName = str
else:  # what a command or a request may ask for
    ModeName = Literal[AUTO, *MODES]


class RanksProposals(Protocol):
    """How often candidates were among hidden facts, by their features (n, F) and relations (n,)."""

    @property
    def hidden(self) -> int:
        """How many facts were hidden from training."""
        ...

    def chance(self, features: Floats, relations: LongArray) -> Floats:
        """How often candidates like these were among them: (n,)."""
        ...

    def chance_in_test(self, features: Floats, relations: LongArray) -> Floats:
        """How often candidates like these, if they are no validation facts, are test facts: (n,)."""
        ...


@dataclass(frozen=True, eq=False)
class ModeScorer:
    """A mode of a model with all that is needed to answer in it."""

    name: str
    candidates: Candidates
    tables: Embeddings  # those that stand for the mode where vectors are asked for
    scorer: Scorer
    temperature: Temperature  # what its scores are divided by, so that their softmax is calibrated
    sample_scorers: Callable[[], Sequence[Scorer]]  # of draws from q, from which ranges come; made when first needed
    ranker: RanksProposals | None = None  # it was learned for one mode

    @property
    def data(self) -> Dataset:
        return self.candidates.data

    def likeness(self, entity: int, others: Ints) -> Tensor:
        """The cosines between an entity's vector and those of others, (n,)."""
        import torch

        table = self.tables.entities
        rows = table[torch.from_numpy(others.astype("int64")).to(table.device)]
        return torch.cosine_similarity(rows, table[entity].unsqueeze(0), dim=1)

    def temperatures(self, queries: Ints, scores: Tensor | None = None) -> Floats:
        """What the scores of questions (b, 2 or more), with reciprocal relations, are divided by: (b,).

        `scores` (b, N_e) of the scorer, as they came, need not be made once more where temperatures depend on them.
        """
        train, effect = self.data.query_index, self.temperature.entropy
        if effect is None:
            return self.temperature.of(queries, train)
        return self.temperature.of(queries, train, self._entropies(queries, effect.reference, scores))

    def _entropies(self, queries: Ints, reference: float, scores: Tensor | None) -> Floats:
        import torch

        from kgem.evaluate.blocks import known_cells
        from kgem.evaluate.softmax import entropies_of
        from kgem.evaluate.temperature import query_entropies

        train = self.data.query_index
        if scores is None:
            return query_entropies(self.scorer, queries, train, reference)
        rows, tails = (torch.from_numpy(ids).to(scores.device) for ids in known_cells(queries, train))
        found: Floats = entropies_of(scores, (rows, tails), reference).cpu().numpy()
        return found

    def as_samples(self) -> list[ModeScorer]:
        """The mode together with each draw from q: what stands for its doubt. That of `bayes` are the draws alone."""
        from kgem.evaluate.averaging import BlendScorer

        return [
            replace(self, scorer=sample if self.averages_samples else BlendScorer([self.scorer, sample]))
            for sample in self.sample_scorers()
        ]

    @property
    def averages_samples(self) -> bool:
        """Whether it scores by the mean of the probabilities under these very samples."""
        return self.name == "bayes"
