"""The exception tree; every message says what is wrong, where, and what to do.

KgemError
├── InputError            the caller's input is wrong: exit code 2
│   ├── TriplesError      a file or frame of facts, with file and line
│   ├── DatasetError      facts that do not make a graph to fit
│   ├── ConfigError       a setting out of bounds or unknown
│   ├── UnknownLabel      an entity or relation the graph does not have
│   ├── CatalogError      a benchmark graph that is not here, or not what it should be
│   └── RunBusy           another process works in that run folder
├── ArtifactError         files on disk cannot be used or written: missing, too new, disk full
│   └── Damaged           they are not what was written
└── FitError              a run failed: exit code 1
    ├── Diverged          the loss stopped being a number
    ├── PeerLost          another process of the same fit does not answer
    └── Collapsed         the posterior fell back to the prior
"""

from __future__ import annotations

__all__ = [
    "ArtifactError",
    "CatalogError",
    "Collapsed",
    "ConfigError",
    "Damaged",
    "DatasetError",
    "Diverged",
    "FitError",
    "InputError",
    "KgemError",
    "PeerLost",
    "RunBusy",
    "TriplesError",
    "UnknownLabel",
]


class KgemError(Exception):
    """Whatever kgem raises on purpose; `remedy` tells what to do about it."""

    exit_code = 1

    def __init__(self, what: str, *, where: str | None = None, remedy: str | None = None) -> None:
        self.what = what
        self.where = where
        self.remedy = remedy
        super().__init__(self.message)

    @property
    def message(self) -> str:
        """One line for what and where, one for the remedy."""
        head = f"{self.where}: {self.what}" if self.where else self.what
        return f"{head}\n  {self.remedy}" if self.remedy else head


class InputError(KgemError):
    """The caller's input is wrong."""

    exit_code = 2


class TriplesError(InputError):
    """A file or frame of facts is wrong; `where` names file and line."""


class DatasetError(InputError):
    """The facts do not make a graph that can be used."""


class ConfigError(InputError):
    """A setting is unknown, of the wrong type or out of bounds."""


class UnknownLabel(InputError):
    """The graph has no entity or relation of that name."""


class CatalogError(InputError):
    """A catalogued graph cannot be had or is not what it should be."""


class RunBusy(InputError):
    """Another process works in that run folder."""


class ArtifactError(KgemError):
    """Files of kgem's own cannot be used or written: missing, damaged, of a newer format, disk full."""


class Damaged(ArtifactError):
    """What is on disk is not what was written; an older copy may still be good."""


class FitError(KgemError):
    """A run failed."""


class Diverged(FitError):
    """The loss stopped being a finite number, also after a smaller learning rate."""


class Collapsed(FitError):
    """The approximate posterior fell back to the prior: it learned nothing."""


class PeerLost(FitError):
    """Another process of the same fit was killed, or does not answer."""
