"""Similar entities against all cosines."""

from __future__ import annotations

import numpy as np
import pytest

from kgem.answer.modes import MODES
from kgem.errors import InputError, UnknownLabel
from obvious import random_graph
from small_models import random_model


def test_similar_entities_by_cosine() -> None:
    model = random_model()
    for mode in MODES:
        table = model.point.entities if mode in ("point", "blend") else model.posterior.entities.mean
        unit = table / table.norm(dim=1, keepdim=True)
        cosines = (unit @ unit[4]).tolist()
        others = sorted((i for i in range(len(cosines)) if i != 4), key=lambda i: -cosines[i])
        found = model.similar("e4", top=5, mode=mode)
        assert [s.label for s in found] == [f"e{i}" for i in others[:5]]
        np.testing.assert_allclose([s.cosine for s in found], [cosines[i] for i in others[:5]], rtol=1e-9)
        assert len(model.similar("e4", top=999)) == model.data.n_entities - 1


def test_wrong_questions_are_explained() -> None:
    model = random_model(random_graph(30))
    with pytest.raises(UnknownLabel, match="did you mean"):
        model.similar("e 17")
    with pytest.raises(InputError, match="at least one"):
        model.similar("e17", top=0)
