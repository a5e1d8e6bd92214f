"""The arguments and options that several commands on models have."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["AsCsv", "Device", "Figure", "Mode", "ModeChoice", "Out", "RunFolder", "Split", "SplitChoice"]


class ModeChoice(StrEnum):
    """Which of a model's tables answer."""

    auto = "auto"
    point = "point"
    mean = "mean"
    bayes = "bayes"
    blend = "blend"


class SplitChoice(StrEnum):
    """A part of the graph."""

    train = "train"
    valid = "valid"
    test = "test"


RunFolder = Annotated[
    Path, typer.Argument(metavar="RUN", help="The folder of a run or of a saved model.", show_default=False)
]
Mode = Annotated[
    ModeChoice,
    typer.Option(help="point: re-trained tables; mean: means of q; bayes: average over q; auto: best on validation."),
]
Split = Annotated[SplitChoice, typer.Option(help="Whose facts are ranked.")]
Device = Annotated[str, typer.Option(help="cpu, cuda or cuda:N.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print the result as CSV.")]
Out = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the result to a .parquet, .csv or .json file.", show_default=False),
]
Figure = Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw it (.svg or .png).", show_default=False)]
