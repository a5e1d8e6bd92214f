"""What others published: figures to stand beside, and the strengths that they found by search."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib import resources
from typing import Any

FILE = "published.toml"
COMPLEX = ("complex",)  # scores whose dimension is that of the published strengths; others have half as many


@dataclass(frozen=True)
class Figure:
    """MRR and Hits@10 of a model on the test facts of a graph."""

    graph: str
    mrr: Decimal  # with as many digits as were published
    hits_at_10: Decimal
    aim_dim: int | None  # the dimension at which we want to be at least as good; None: it is no aim of ours
    model: str
    dim: int | None
    who: str
    source: str

    @property
    def text(self) -> str:
        """MRR / Hits@10 as they were published."""
        return f"{self.mrr} / {self.hits_at_10}"


@dataclass(frozen=True)
class SharedStrength:
    """The factor of Eq. 6 that the conventional model of a graph gets, and where it comes from."""

    value: float
    why: str


@dataclass(frozen=True)
class Published:
    """All that the file has."""

    sources: Mapping[str, str]
    figures: tuple[Figure, ...]
    n3: Mapping[str, Any]

    def strength(self, graph: str, model: str, dim: int, otherwise: float) -> SharedStrength:
        """That of ComplEx with about as many numbers per entity; `otherwise`, for graphs that have none."""
        strengths = self.n3["strengths"]
        if graph not in strengths:
            return SharedStrength(otherwise, f"none is published for {graph}: the first guess of kgem fit")
        rank = dim if model in COMPLEX else max(1, dim // 2)
        by_rank = {int(size): float(reg) for size, reg in strengths[graph].items()}
        nearest = min(by_rank, key=lambda size: abs(math.log(size / rank)))
        reg, factor = by_rank[nearest], float(self.n3["factor"])
        return SharedStrength(factor * reg, f"{factor:g} x {reg:g}, grid-searched for ComplEx of rank {nearest}")


@cache
def published() -> Published:
    """The figures and strengths in the file beside this module."""
    text = resources.files(__package__).joinpath(FILE).read_text(encoding="utf-8")
    content = tomllib.loads(text, parse_float=Decimal)
    figures = []
    for entry in content["figures"]:
        aim = entry.get("aim_dim", entry.get("dim")) if entry.get("aim") else None
        about = {"dim": None} | {name: entry[name] for name in ("model", "dim", "who", "source") if name in entry}
        figures += [Figure(graph, mrr, hits, aim, **about) for graph, (mrr, hits) in entry["of"].items()]
    return Published(content["sources"], tuple(figures), content["n3"])
