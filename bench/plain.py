"""A contestant: the PyTorch loop over facts that a user would write; autograd and cross-entropy over all entities."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bench.graph_file import GraphFile
from bench.protocol import THREADS, Channel, serve


class ComplExModule(nn.Module):
    """Scores of (h, r, all tails), and the factors that the N3 penalty wants."""

    def __init__(self, graph: GraphFile) -> None:
        super().__init__()
        self.entities = nn.Embedding(graph.n_entities, graph.entities.shape[1])
        self.relations = nn.Embedding(2 * graph.n_relations, graph.relations.shape[1])
        with torch.no_grad():
            self.entities.weight.copy_(torch.from_numpy(graph.entities))
            self.relations.weight.copy_(torch.from_numpy(graph.relations))

    def forward(self, facts: Tensor) -> tuple[Tensor, list[Tensor]]:
        h, r, t = self.entities(facts[:, 0]), self.relations(facts[:, 1]), self.entities(facts[:, 2])
        (h_re, h_im), (r_re, r_im) = h.chunk(2, dim=1), r.chunk(2, dim=1)
        return self.scores(h_re * r_re - h_im * r_im, h_re * r_im + h_im * r_re), [h, r, t]

    def scores(self, q_re: Tensor, q_im: Tensor) -> Tensor:
        """Eq. 4 as it is usually written: real parts times real parts plus imaginary times imaginary."""
        e_re, e_im = self.entities.weight.chunk(2, dim=1)
        return q_re @ e_re.T + q_im @ e_im.T


def n3(factors: list[Tensor]) -> Tensor:
    """The mean over facts of the cubed moduli's sum."""
    total = factors[0].new_zeros(())
    for factor in factors:
        re, im = factor.chunk(2, dim=1)
        total = total + torch.sqrt(re**2 + im**2 + 1e-12).pow(3).sum() / len(factor)
    return total


class Plain:
    """The loop, paused and resumed by requests."""

    def __init__(self, module: type[ComplExModule] = ComplExModule) -> None:
        self.module = module

    def load(self, path: str, batch: int) -> dict[str, Any]:
        graph = GraphFile.read(path)
        self.facts = torch.from_numpy(graph.reciprocal(graph.train))
        self.model = self.module(graph)
        self.optimizer = torch.optim.Adagrad(self.model.parameters(), lr=0.1)
        self.batch = batch
        return {"items": len(self.facts), "torch": torch.__version__}

    def steps(self, steps: int) -> dict[str, Any]:
        begun = time.perf_counter()
        order = torch.randperm(len(self.facts))
        done, loss = 0, float("nan")
        for batch in torch.split(order, self.batch)[:steps]:
            facts = self.facts[batch]
            scores, factors = self.model(facts)
            objective = functional.cross_entropy(scores, facts[:, 2]) + 1e-2 * n3(factors)
            self.optimizer.zero_grad()
            torch.autograd.backward(objective)
            self.optimizer.step()
            done, loss = done + len(facts), objective.item()
        return {"seconds": time.perf_counter() - begun, "items": done, "loss": loss}


def main(module: type[ComplExModule]) -> None:
    """Answer requests with a loop over this module."""
    torch.set_num_threads(THREADS)
    plain = Plain(module)
    serve(Channel(), {"load": plain.load, "steps": plain.steps})


if __name__ == "__main__":
    main(ComplExModule)
