"""The modes of prediction (end of Section 3.2), and one of them ready to score; without torch, for the command line.

`point` asks the tables that a fit ends with, `mean` the means of q, `bayes` averages softmax probabilities over samples
of q. `blend` asks `point` and `mean` together: the geometric mean of their probabilities. `auto` is the better of
`point` and `mean` on validation, or a mode that costs more where that is clearly ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from kgem.answer.candidates import Candidates
    from kgem.data.dataset import Dataset
    from kgem.evaluate.blocks import Scorer
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


@dataclass(frozen=True, eq=False)
class ModeScorer:
    """A mode of a model with all that is needed to answer in it."""

    name: str
    candidates: Candidates
    tables: Embeddings  # those that stand for the mode where vectors are asked for
    scorer: Scorer
    temperature: float  # what its scores are divided by, so that their softmax is calibrated
    sample_scorers: Callable[[], Sequence[Scorer]]  # of draws from q, from which ranges come; made when first needed
    sample_temperature: float

    @property
    def data(self) -> Dataset:
        return self.candidates.data

    def as_samples(self) -> list[ModeScorer]:
        """Each draw from q as if it were a mode of its own."""
        return [replace(self, scorer=scorer, temperature=self.sample_temperature) for scorer in self.sample_scorers()]

    @property
    def averages_samples(self) -> bool:
        """Whether it scores by the mean of the probabilities under these very samples."""
        return self.name == "bayes"
