"""Time to quality: seconds of training until a filtered MRR on validation, ours beside PyKEEN's, in turns.

Both are measured on the same validation facts, each by its own evaluator; only training counts as time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["TARGETS", "TITLES", "Curve", "plot", "run_in_turns", "seconds_until"]

TARGETS = (0.25, 0.28, 0.30, 0.32, 0.34)  # of FB15k-237; the last is what one model with K = 100 reaches
TURN = 60.0  # seconds of a turn, or an epoch if that takes longer
TITLES = {"ours": "kgem", "pykeen": "PyKEEN, LCWA, published settings", "alike": "PyKEEN, LCWA, our settings"}
Curve = list[tuple[float, float]]  # (seconds of training so far, MRR after them)
Train = Callable[[float], Mapping[str, Any]]  # seconds -> {"points": Curve, "done": whether there is nothing left}


def run_in_turns(
    contestants: Mapping[str, Train], minutes: float, turn: float = TURN, enough: float = TARGETS[-1]
) -> dict[str, Curve]:
    """Curves of all: each goes on until it has `enough`, is done, or has had its minutes, validations included.

    Ctrl-C ends it with what there is.
    """
    curves: dict[str, Curve] = {name: [] for name in contestants}
    left = dict.fromkeys(contestants, 60 * minutes)
    try:
        while left:
            for name in list(left):
                begun = time.monotonic()
                answer = contestants[name](min(turn, left[name]))
                left[name] -= time.monotonic() - begun
                curves[name] += [(float(seconds), float(mrr)) for seconds, mrr in answer["points"]]
                reached = seconds_until(curves[name], enough) is not None
                if answer["done"] or reached or left[name] <= 0:
                    del left[name]
    except KeyboardInterrupt:
        pass
    return curves


def seconds_until(curve: Curve, target: float) -> float | None:
    """When it first was at least that good, or None."""
    return next((seconds for seconds, mrr in curve if mrr >= target), None)


def summarise(curves: Mapping[str, Curve], targets: tuple[float, ...] = TARGETS) -> dict[str, Any]:
    """What is kept of the curves: all points, the best, and when each target was reached."""
    return {
        name: {
            "points": curve,
            "best": max((mrr for _, mrr in curve), default=None),
            "until": {str(target): seconds_until(curve, target) for target in targets},
        }
        for name, curve in curves.items()
    }


def plot(curves: Mapping[str, Curve], graph: str, folder: Path) -> None:
    """quality.svg and quality.png: the best MRR so far against seconds of training."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panel = pyplot.subplots(figsize=(7, 4), layout="constrained")
    for name, curve in curves.items():
        best, heights = 0.0, []
        for _, mrr in curve:
            best = max(best, mrr)
            heights.append(best)
        panel.plot([seconds for seconds, _ in curve], heights, ".-", label=TITLES.get(name, name))
    panel.set_xlabel("seconds of training")
    panel.set_ylabel("filtered MRR on validation, best so far")
    panel.set_title(f"{graph}, ComplEx, K = 100")
    panel.legend(frameon=False)
    for kind in ("svg", "png"):
        figure.savefig(folder / f"quality.{kind}", dpi=120)
    pyplot.close(figure)
