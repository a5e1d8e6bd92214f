"""A contestant that cannot be beaten: the three matrix products of a step, alone, at the machine's best rate."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from bench.protocol import THREADS, Channel, serve
from kgem.model.products import multiply

BLOCKS = (128, 256, 512, 1024)
SQUARE = 2048


def rates(n_entities: int, width: int, repeats: int = 2) -> dict[str, Any]:
    """GFLOP/s of scores, the tails' gradient, the queries' gradient, and of a large aligned product; each the best of
    several block sizes, with rows of scores as long as the table and rounded up to cache lines."""
    best = dict.fromkeys(("scores", "tails", "queries", "square"), 0.0)
    a, b, c = (torch.randn(SQUARE, SQUARE) for _ in range(3))
    best["square"] = _rate(lambda: multiply(a, b, out=c), 2.0 * SQUARE**3, repeats)
    table, grad_table = torch.randn(n_entities, width), torch.empty(n_entities, width)
    for block in BLOCKS:
        queries, grad_queries = torch.randn(block, width), torch.empty(block, width)
        flop = 2.0 * block * n_entities * width
        for stride in {n_entities, -(-n_entities // 16) * 16 + 16}:
            scores = torch.zeros(block, stride)[:, :n_entities]
            for name, product in _products(queries, table, scores, grad_queries, grad_table).items():
                best[name] = max(best[name], _rate(product, flop, repeats))
    return {"gflops": best}


def _products(
    queries: torch.Tensor,
    table: torch.Tensor,
    scores: torch.Tensor,
    grad_queries: torch.Tensor,
    grad_table: torch.Tensor,
) -> dict[str, Callable[[], object]]:
    return {
        "scores": lambda: multiply(queries, table.T, out=scores),
        "tails": lambda: multiply(scores.T, queries, out=grad_table),
        "queries": lambda: multiply(scores, table, out=grad_queries),
    }


def _rate(product: Callable[[], object], flop: float, repeats: int) -> float:
    product()
    shortest = float("inf")
    for _ in range(repeats):
        begun = time.perf_counter()
        product()
        shortest = min(shortest, time.perf_counter() - begun)
    return flop / shortest / 1e9


if __name__ == "__main__":
    torch.set_num_threads(THREADS)
    serve(Channel(), {"rates": rates})
