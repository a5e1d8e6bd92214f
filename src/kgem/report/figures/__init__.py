"""Pictures of a graph and of a run: the paper's Figs. 1, 3 and S1, learning curves, the parts of the ELBO.

Every function returns a matplotlib Figure; `save_figure` and `figure_svg` bring it to a file and into HTML.
"""

from kgem.report.figures.counts import counts_figure
from kgem.report.figures.curves import elbo_figure, learning_curves
from kgem.report.figures.drawing import figure_svg, save_figure
from kgem.report.figures.prior import prior_figure
from kgem.report.figures.reliability import reliability_figure
from kgem.report.figures.strengths import strengths_figure

__all__ = [
    "counts_figure",
    "elbo_figure",
    "figure_svg",
    "learning_curves",
    "prior_figure",
    "reliability_figure",
    "save_figure",
    "strengths_figure",
]
