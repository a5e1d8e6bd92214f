"""One run as one HTML page: the graph, how it learned, how good it is, what it trusts, and how to repeat it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from kgem.answer.artifact import find_model
from kgem.answer.model import Model, load
from kgem.data.streams import write_to
from kgem.errors import ArtifactError, InputError
from kgem.files.store import MANIFEST
from kgem.report import html as page
from kgem.report import sections as chapters
from kgem.report.html import Section, esc
from kgem.report.samples import calibrated, samples
from kgem.report.sections import Origin
from kgem.runs.run import read_log

__all__ = ["Origin", "check_target", "default_target", "read_origin", "report_html", "write_report"]


def read_origin(folder: Path) -> Origin:
    """The log, the settings and the hashes beside a model; what is not there is left out."""
    place = find_model(folder)
    run = place.parent if place != folder or (place.parent / "log.jsonl").is_file() else None
    try:
        manifest = json.loads((place / MANIFEST).read_bytes())
        versions = json.loads((place / "model.json").read_bytes()).get("versions", {})
        hashes = {name: record["sha256"] for name, record in manifest["files"].items()}
        records = [record for record in read_log(run) if "phase" in record] if run else []
        return Origin(records, _config(run), {"kgem": str(manifest["kgem"]), **versions}, hashes)
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = f"log, settings or manifest are not what kgem writes: {error}"
        raise ArtifactError(what, where=str(folder), remedy="restore them from a copy, or fit again") from error


def _config(run: Path | None) -> str | None:
    path = None if run is None else run / "config.toml"
    return path.read_text(encoding="utf-8") if path is not None and path.is_file() else None


def write_report(
    folder: str | Path,
    target: Path | None = None,
    mode: str = "auto",
    *,
    model: Model | None = None,
    step: Callable[[str], None] | None = None,
) -> Path:
    """Write the page on a run, whole or not at all, and return where it is; an older one is replaced.

    `model` is the run's if it is loaded already; `step` hears what is being worked on.
    """
    run = Path(folder)
    path = target or default_target(run)
    content = report_html(model or load(run), read_origin(run), mode, step=step)
    with write_to(path) as file:
        file.write(content.encode())
    return path


def report_html(
    model: Model, origin: Origin | None = None, mode: str = "auto", *, step: Callable[[str], None] | None = None
) -> str:
    """The page, self-contained: no script, nothing loaded from anywhere."""
    origin, tell = origin or Origin(), step or (lambda _: None)
    chosen = model.resolve(mode)
    split = next((name for name in ("test", "valid", "train") if len(model.data.split(name))), "train")
    tell("ranking")
    evaluation = model.evaluate(split, chosen)
    tell("calibration")
    calibration = calibrated(model, split, chosen)
    tell("predictions")
    asked = list(samples(model, split, chosen))
    tell("figures")
    sections = [
        Section("predictions", "Predictions", "What it predicts", chapters.predictions(asked, split)),
        Section("quality", "Quality", "How good it is", chapters.quality(model, evaluation, split, chosen)),
        Section(
            "calibration",
            "Calibration",
            "How far to trust the probabilities",
            chapters.trust(calibration, chosen, split),
        ),
        Section("strengths", "Strengths", "What the regularisers learned", chapters.strengths(model)),
        Section("learning", "Learning", "How it learned", chapters.learning(model, origin)),
        Section("graph", "Graph", "The graph", chapters.graph(model)),
        Section("repeat", "Repeat", "How to repeat it", chapters.repeat(model, origin)),
    ]
    settings = model.config.model
    lead = (
        f"{esc(settings.score)} embeddings in {settings.dim} dimensions, {len(model.data.train):,} training facts, "
        f"answers from mode <b>{chosen}</b>"
    )
    kgem = (origin.versions or {}).get("kgem", "")
    footer = (
        f"Made by kgem {esc(kgem)}. This page loads nothing and runs no scripts: it can be kept, mailed and printed."
    )
    return page.page(model.data.name, lead, chapters.tiles(model, evaluation, calibration, split), sections, footer)


def default_target(folder: Path) -> Path:
    """report.html in a run folder; beside a model that stands alone."""
    place = find_model(folder)
    if place != folder:
        return folder / "report.html"
    if place.name == "model" and (place.parent / "config.toml").is_file():
        return place.parent / "report.html"
    return place.with_name(f"{place.name}-report.html")


def check_target(target: Path) -> None:
    """A page has the extension of one."""
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError("a report is an HTML page", where=str(target), remedy="name a file that ends in .html")
