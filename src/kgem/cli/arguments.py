"""The arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from kgem.answer.modes import AUTO, MODES, ModeName
from kgem.cli.progress import want_progress

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run or of a saved model.")]
Mode = Annotated[
    ModeName,
    typer.Option(
        metavar="MODE",
        help="; ".join(f"{name}: {what}" for name, what in MODES.items())
        + f"; {AUTO}: the best on validation, where one model counts as better unless more are clearly ahead.",
    ),
]
Split = Annotated[Literal["train", "valid", "test"], typer.Option(help="Whose facts are ranked.")]
Device = Annotated[str, typer.Option(metavar="NAME", help="cpu, cuda or cuda:N.")]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="No progress; warnings and the result alone.", callback=want_progress),
]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads of the CPU.")]
TimeBudget = Annotated[str | None, typer.Option(metavar="TIME", help="Choose lengths that fit: 90s, 20m, 1h30m.")]
Share = Annotated[float, typer.Option(min=0, help="Share (below 1) or number of facts.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same result.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print the result as CSV.")]
Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the result to a .parquet, .csv or .json file.")]
Force = Annotated[bool, typer.Option("--force", help="Overwrite files that are there already.")]
Figure = Annotated[Path | None, typer.Option(metavar="FILE", help="Also draw it (.svg or .png).")]
