"""How well `kgem judge --graph` finds mistakes that were planted: 5 % of training facts with a random tail of the role.

`python tools/find_planted.py codex-s --seed 2` plants, fits and judges; the seed is that of the mistakes.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np
from scipy.stats import rankdata

import kgem
from kgem.data.dataset import Dataset
from kgem.runs.cross_fit import judge_training

SHARE = 0.05


def plant(data: Dataset, seed: int) -> tuple[Dataset, np.ndarray]:
    """The graph with mistakes in its training facts, none of them a fact of any split; and which they are: (n,)."""
    rng = np.random.default_rng(seed)
    known = {tuple(fact) for split in ("train", "valid", "test") for fact in data.split(split).tolist()}
    train = data.train.copy()
    planted = np.zeros(len(train), dtype=bool)
    for place in rng.permutation(len(train)):
        if planted.sum() == round(SHARE * len(train)):
            break
        head, relation, _ = train[place].tolist()
        role = np.unique(data.train[data.train[:, 1] == relation, 2])
        wrong = (head, relation, int(rng.choice(role)))
        if wrong not in known:
            known.add(wrong)
            train[place], planted[place] = wrong, True
    return replace(data, train=train), planted


def area_under_roc(chances: np.ndarray, planted: np.ndarray) -> float:
    """How often a right fact has a higher chance than a planted one."""
    n_right, n_planted = (~planted).sum(), planted.sum()
    above = rankdata(chances)[~planted].sum() - n_right * (n_right + 1) / 2
    return float(above / (n_right * n_planted))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("graph")
    parser.add_argument("--dim", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    data, planted = plant(Dataset.load(options.graph), options.seed)
    model = kgem.fit(data, dim=options.dim, seed=0, threads=1)
    chances = judge_training(model)
    first = np.argsort(chances, kind="stable")[: planted.sum()]
    print(
        f"{options.graph}, K = {options.dim}, mistakes of seed {options.seed}: {planted.sum():,} of {len(planted):,} "
        f"planted; area under ROC {area_under_roc(chances, planted):.3f}, precision {planted[first].mean():.3f}"
    )


if __name__ == "__main__":
    main()
