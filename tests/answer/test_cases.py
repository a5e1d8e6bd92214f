"""The classifier by cases against its equations written out, and an interaction that no sum of effects has."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from kgem.answer.cases import ALIKE, ALIKE_IN_RELATION, ANSWER, FAR, LINEAR, RELATION, Cases
from kgem.answer.logistic import weigh_alike


def examples(n: int = 300) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Right where the first two features have the same sign, unless the tail is 3."""
    rng = np.random.default_rng(0)
    features, facts = rng.normal(size=(n, 4)), rng.integers(5, size=(n, 3))
    return features, facts, (features[:, 0] * features[:, 1] > 0) & (facts[:, 2] != 3)


def test_logits_against_loops() -> None:
    features, facts, right = examples(40)
    cases = Cases.fit(features, facts, right, np.ones(40))
    fresh, others, _ = examples(50)
    fresh[0] = 100.0  # far away
    found = cases.logit(fresh, others)
    limits = (cases.centre - FAR * cases.scale, cases.centre + FAR * cases.scale)

    def standard(row: np.ndarray) -> list[float]:
        return ((np.clip(row, *limits) - cases.centre) / cases.scale).tolist()

    for i in range(50):
        total = 0.0
        for a, row, fact in zip(cases.weights, features, facts, strict=True):
            x, z = standard(fresh[i]), standard(row)
            alike = math.exp(-sum((p - q) ** 2 for p, q in zip(x, z, strict=True)) / 2 / len(x))
            k = 1 + LINEAR * sum(p * q for p, q in zip(x, z, strict=True)) + ALIKE * alike
            if fact[1] == others[i, 1]:
                k += RELATION + ALIKE_IN_RELATION * alike + ANSWER * (fact[2] == others[i, 2])
            total += a * k
        assert found[i] == pytest.approx(total, abs=1e-3)


def test_weights_are_where_the_penalised_loss_is_flat() -> None:
    """The slope of a K a / 2 + loss(K a) is K (a - weight (right - chance))."""
    features, facts, right = examples()
    right &= facts[:, 0] > 0  # fewer right than wrong
    weight = weigh_alike(right)
    cases = Cases.fit(features, facts, right, weight)
    np.testing.assert_allclose(cases.weights, weight * (right - cases.chance(features, facts)), atol=5e-3)


def test_it_learns_what_is_no_sum() -> None:
    features, facts, right = examples(800)
    cases = Cases.fit(features[:600], facts[:600], right[:600], weigh_alike(right[:600]))
    told = cases.chance(features[600:], facts[600:]) > 0.5
    assert (told == right[600:]).mean() > 0.85
    assert told[facts[600:, 2] == 3].mean() < 0.1


def test_stored_and_read_again() -> None:
    features, facts, right = examples()
    cases = Cases.fit(features, facts, right, np.ones(len(right)))
    document = json.loads(json.dumps(cases.to_dict()))
    again = Cases.from_dict(document, 4)
    np.testing.assert_array_equal(again.logit(features, facts), cases.logit(features, facts))
    with pytest.raises(ValueError, match="centre of cases"):
        Cases.from_dict(document, 5)
    with pytest.raises(ValueError, match="rows of cases"):
        Cases.from_dict(document | {"rows": document["rows"][:-1]}, 4)
    with pytest.raises(ValueError, match="weights of cases"):
        Cases.from_dict(document | {"weights": [math.nan, *document["weights"][1:]]}, 4)
