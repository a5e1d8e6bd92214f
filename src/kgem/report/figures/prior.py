"""Fig. S1: what a strength means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from kgem.errors import InputError
from kgem.report.figures.drawing import empty_figure, short, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["prior_figure"]


def prior_figure(strengths: Sequence[float] = (1.0, 10.0, 100.0, 1000.0), p: int = 3) -> Figure:
    """Fig. S1: the prior (Eq. 8) of one real coordinate for several strengths."""
    import torch

    from kgem.model.prior import Prior

    if not len(strengths) or min(strengths) <= 0:
        raise InputError("the prior needs strengths above zero", remedy="give one or more positive numbers")
    prior = Prior(p, complex=False)
    reach = 1.7 * (p / min(strengths)) ** (1 / p)
    x = torch.linspace(-reach, reach, 1201, dtype=torch.float64)
    with style():
        from matplotlib import colormaps

        figure = empty_figure(6.4, 4.0)
        axes = figure.add_subplot()
        shades = colormaps["viridis_r"](np.linspace(0.25, 0.95, len(strengths)))
        for strength, shade in zip(sorted(strengths), shades, strict=True):
            lam = torch.tensor([strength], dtype=torch.float64)
            density = (prior.log_normaliser(lam, 1) - strength / p * prior.norm(x[:, None])).exp()
            axes.plot(x.numpy(), density.numpy(), color=shade, label=f"$\\lambda$ = {short(strength)}")
        axes.set(xlim=(-reach, reach), xlabel="one coordinate of an embedding, $x$")
        axes.set_ylabel(f"$p(x\\,|\\,\\lambda) \\propto \\exp(-\\lambda\\,|x|^{p}/{p})$")
        axes.set_ylim(bottom=0)
        axes.legend(loc="upper right")
        return figure
