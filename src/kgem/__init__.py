"""kgem: knowledge graph embeddings whose regularisers tune themselves.

    data = kgem.Dataset.load("graph.tsv")             # or a folder, or a catalogue name
    model = kgem.fit(data, model="complex", dim=100)  # all phases
    model.predict(head="France", relation="borders", top=5)
    model.save("models/world"); kgem.load("models/world")

Nothing heavy is imported before it is used.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kgem import errors

if TYPE_CHECKING:
    from kgem.answer.model import Model, load
    from kgem.answer.predict import Query
    from kgem.config import Config
    from kgem.data.dataset import Dataset
    from kgem.errors import KgemError
    from kgem.runs.export import export
    from kgem.runs.fit import fit
    from kgem.runs.update import update

    __version__: str

if "torch" not in sys.modules and not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"} & os.environ.keys():
    # Threads of OpenMP that wait for each other take the processor from other fits; torch reads this when it starts.
    os.environ["GOMP_SPINCOUNT"] = "10000"
# Tables and scores in pages of 2 MB where the system offers them; torch reads this when it first asks for memory.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

__all__ = [
    "Config",
    "Dataset",
    "KgemError",
    "Model",
    "Query",
    "__version__",
    "errors",
    "export",
    "fit",
    "load",
    "update",
]

_HOMES = {
    "Config": "kgem.config",
    "Dataset": "kgem.data.dataset",
    "KgemError": "kgem.errors",
    "Model": "kgem.answer.model",
    "Query": "kgem.answer.predict",
    "export": "kgem.runs.export",
    "fit": "kgem.runs.fit",
    "load": "kgem.answer.model",
    "update": "kgem.runs.update",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from kgem.files.store import kgem_version

        return kgem_version()
    if name not in _HOMES:
        raise AttributeError(f"module 'kgem' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
