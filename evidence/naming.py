"""Names for people: models as the paper writes them, and what a figure is about."""

from __future__ import annotations

from evidence.documents import Document

MODELS = {"distmult": "DistMult", "complex": "ComplEx"}

Key = tuple[str, str, int]  # graph, model, dimension


def key_of(document: Document) -> Key:
    """What a document is of."""
    return document["graph"], document["model"], document["dim"]


def model_name(model: str) -> str:
    """As the paper writes it."""
    return MODELS.get(model, model)


def subject(graph: str, model: str, dim: int | None) -> str:
    """What was fitted."""
    return f"{graph}, {model_name(model)}, K = {dim}"


def about(document: Document) -> str:
    """What a document is about: its graph, model and dimension."""
    return subject(*key_of(document))


def stem(document: Document) -> str:
    """The same in names of files."""
    return "-".join(map(str, key_of(document)))
