"""Mistakes that were planted among the training facts of a small graph, and found by fits without them."""

from __future__ import annotations

import numpy as np
import polars as pl

from kgem.data.dataset import Dataset
from kgem.runs.cross_fit import FOLDS, cross_fit, judge_training
from kgem.runs.fit import fit

SHORT = {"pretrain.epochs": 12, "em.epochs": 3, "retrain.epochs": 2, "companions.epochs": 2, "distil.epochs": 2}
SHORT |= {"pretrain.candidates": (1.0,), "pretrain.extensions": 0, "retrain.candidates": ((1.0, 0.0),)}


def clubs(n: int = 120, kinds: int = 4) -> tuple[Dataset, list[bool]]:
    """People of four kinds with haunts and friends of their own; one fact in twenty leads to another kind's haunt."""
    rng = np.random.default_rng(0)
    rows: dict[tuple[str, str, str], bool] = {}
    for person in range(n):
        kind = person % kinds
        for place in rng.choice(10, 5, replace=False):
            rows[f"person {person}", "visits", f"place {kind * 10 + place}"] = True
        for _ in range(3):
            rows[f"person {person}", "knows", f"person {(person + kinds * int(rng.integers(1, 20))) % n}"] = True
    right = [row for row in rows if row[1] == "visits"]
    for place in rng.choice(len(right), len(rows) // 20, replace=False):
        head, relation, _ = right[place]
        kind = (int(head.split()[1]) + int(rng.integers(1, kinds))) % kinds
        del rows[right[place]]
        rows[head, relation, f"place {kind * 10 + int(rng.integers(10))}"] = False
    facts = [row for row, true in rows.items() if true]
    held_out = {facts[i] for i in rng.choice(len(facts), 90, replace=False)}
    train = [row for row in rows if row not in held_out]
    frames = (pl.DataFrame(part, ["head", "relation", "tail"], orient="row") for part in (train, sorted(held_out)))
    return Dataset.from_frames(*frames, name="clubs"), [rows[row] for row in train]


def area_under_roc(chances: np.ndarray, right: np.ndarray) -> float:
    """How often a right fact is before a wrong one."""
    return float((chances[right][:, None] > chances[~right][None]).mean())


def test_planted_mistakes_are_found() -> None:
    data, truth = clubs()
    right = np.array(truth)
    assert 0.03 < (~right).mean() < 0.07
    model = fit(data, dim=8, seed=0, **SHORT)
    assert model.learned_judge is not None
    seen: list[tuple[int, int]] = []
    chances = judge_training(model, lambda *far: seen.append(far))
    assert seen == [(i + 1, FOLDS) for i in range(FOLDS)] and chances.shape == right.shape
    assert area_under_roc(chances, right) > 0.95
    first = np.argsort(chances)[: (~right).sum()]
    assert (~right[first]).mean() > 0.4  # by chance it would be 0.05


def test_every_training_fact_is_left_out_once() -> None:
    data, _ = clubs(40)
    model = fit(data, dim=4, seed=0, **SHORT)
    folds = list(cross_fit(model, 3))
    np.testing.assert_array_equal(np.sort(np.concatenate([fold.places for fold in folds])), np.arange(len(data.train)))
    known = {tuple(fact) for split in ("train", "valid") for fact in data.split(split).tolist()}
    assert not any(tuple(fact) in known for fold in folds for fact in fold.wrong.tolist())
