"""Epoch time against entities, dimension and facts, on facts drawn at random; numbers and a plot."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from bench.workers import Worker

__all__ = ["growth", "plot"]

BASE = {"entities": 2000, "dim": 32, "facts": 20_000}
SHORT = {"entities": (500, 1000, 2000, 4000, 8000), "dim": (16, 32, 64, 128), "facts": (10_000, 20_000, 40_000)}
LONG = {
    "entities": (500, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000),
    "dim": (16, 32, 64, 128, 256, 512),
    "facts": (25_000, 50_000, 100_000, 200_000, 400_000, 800_000),
}
RELATIONS = 500  # many, so that the number of queries hardly depends on that of entities
BATCH = 1000


def growth(worker: Worker, folder: Path, long: bool) -> dict[str, Any]:
    """Whole epochs while one size grows and the others stay; the slope is that of log time, 1 is proportional."""
    axes: dict[str, Any] = {}
    for axis, sizes in (LONG if long else SHORT).items():
        points = []
        for size in sizes:
            setting = {**BASE, axis: size}
            answer = worker.ask("random_epoch", relations=RELATIONS, batch=BATCH, **setting)
            points.append({axis: size, "seconds": answer["seconds"], "queries": answer["queries"]})
        slope = _slope([float(p[axis]) for p in points], [float(p["seconds"]) for p in points])
        axes[axis] = {"points": points, "slope": slope}
    result = {"base": BASE, "relations": RELATIONS, "batch": BATCH, "axes": axes}
    plot(result, folder)
    return result


def _slope(sizes: list[float], seconds: list[float]) -> float:
    """Least squares through the logarithms."""
    x, y = ([math.log(v) for v in values] for values in (sizes, seconds))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    across = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return across / sum((a - mean_x) ** 2 for a in x)


def plot(result: dict[str, Any], folder: Path) -> None:
    """growth.svg and growth.png: one panel per size, a dashed line for time proportional to it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, len(result["axes"]), figsize=(11, 3.4), sharey=True, layout="constrained")
    for panel, (axis, measured) in zip(panels, result["axes"].items(), strict=True):
        sizes = [point[axis] for point in measured["points"]]
        seconds = [point["seconds"] for point in measured["points"]]
        panel.loglog(sizes, seconds, "o-", color="tab:blue", label=f"measured, slope {measured['slope']:.2f}")
        proportional = [seconds[-1] * size / sizes[-1] for size in sizes]
        panel.loglog(sizes, proportional, "--", color="grey", label="proportional")
        panel.set_xlabel({"entities": "entities", "dim": "dimension K", "facts": "facts"}[axis])
        panel.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=30)
        panel.minorticks_off()
        panel.legend(frameon=False)
    panels[0].set_ylabel("seconds per epoch")
    others = ", ".join(f"{value:,} {name}" for name, value in result["base"].items())
    figure.suptitle(f"ComplEx, one epoch; where not varied: {others}")
    for kind in ("svg", "png"):
        figure.savefig(folder / f"growth.{kind}", dpi=120)
    pyplot.close(figure)
