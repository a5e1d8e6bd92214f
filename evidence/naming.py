"""Names for people: models as the paper writes them, and what a figure is about."""

from __future__ import annotations

from evidence.documents import Document

__all__ = ["MODELS", "about", "model_name", "stem", "subject"]

MODELS = {"distmult": "DistMult", "complex": "ComplEx"}


def model_name(model: str) -> str:
    """As the paper writes it."""
    return MODELS.get(model, model)


def subject(graph: str, model: str, dim: int | None) -> str:
    """What was fitted."""
    return f"{graph}, {model_name(model)}, K = {dim}"


def about(document: Document) -> str:
    """What a document is about: its graph, model and dimension."""
    return subject(document["graph"], document["model"], document["dim"])


def stem(document: Document) -> str:
    """The same in names of files."""
    return f"{document['graph']}-{document['model']}-{document['dim']}"
