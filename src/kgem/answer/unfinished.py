"""What the model of a fit that was ended early lacks, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kgem.files.run_folder import PHASE_NAMES

if TYPE_CHECKING:
    from kgem.answer.model import Model

__all__ = ["describe_missing"]


def describe_missing(model: Model) -> str:
    """What the model of a fit that was ended early lacks."""
    names = [PHASE_NAMES[phase] for phase in model.unfinished]
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    guessed = "" if model.provenance["epochs"].get("em") else "; its strengths and ranges are those that EM starts with"
    return f"this fit is not finished: without the end of {listed}{guessed}"
