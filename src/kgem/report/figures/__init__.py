"""Pictures of a graph and of a run: the paper's Figs. 1 and 3, learning curves, the parts of the ELBO.

Every function returns a matplotlib Figure; `save_figure` and `figure_svg` bring it to a file and into HTML.
"""

from kgem.report.figures.counts import counts_figure
from kgem.report.figures.curves import elbo_figure, learning_curves
from kgem.report.figures.drawing import figure_svg, save_figure
from kgem.report.figures.reliability import reliability_figure
from kgem.report.figures.strengths import draw_strengths, strengths_figure

__all__ = [
    "counts_figure",
    "draw_strengths",
    "elbo_figure",
    "figure_svg",
    "learning_curves",
    "reliability_figure",
    "save_figure",
    "strengths_figure",
]
