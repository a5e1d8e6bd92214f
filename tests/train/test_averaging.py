"""Averages that are brought up to date row by row, against averages of whole tables after every step."""

from __future__ import annotations

import pytest
import torch

from kgem.model.rows import ALL, Rows, Touched
from kgem.train.averaging import Averaging
from obvious import random_embeddings, random_graph

DATA = random_graph()


@pytest.mark.parametrize("window", [0.5, 1.0, 3.0, 4.7, 100.0])
@pytest.mark.parametrize("sparse", [True, False])
def test_averages_of_touched_rows_are_those_of_whole_tables(window: float, sparse: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    tables, averages = random_embeddings(DATA, "complex"), random_embeddings(DATA, "complex", seed=2)
    wanted = averages.clone()
    step = 0
    for epoch in range(3):
        averaging = Averaging(tables, averages, step, window)
        for _ in range(5 + epoch):
            ids = [torch.randperm(len(t), generator=generator)[: len(t) // 3].sort()[0] for t in tables.tables()]
            touched = Touched(*map(Rows, ids)) if sparse else ALL
            averaging.before_step(touched)
            for table, rows in zip(tables.tables(), ids, strict=True):
                table[rows] += torch.randn(len(rows), table.shape[1], generator=generator, dtype=table.dtype)
            step += 1
            for table, average in zip(tables.tables(), wanted.tables(), strict=True):
                average.lerp_(table, 1 / min(step, max(window, 1.0)))
        averaging.finish()
        for got, want in zip(averages.tables(), wanted.tables(), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-12)
