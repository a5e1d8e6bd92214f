"""From a model and further facts to a fit that goes on: what is new, the start, short settings, where it came from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from kgem.answer.artifact import find_model
from kgem.answer.features import Known, view_facts
from kgem.answer.model import Model
from kgem.answer.proposals import Decided
from kgem.config import Config
from kgem.data.dataset import SPLITS, Dataset, IntArray
from kgem.data.growth import Changes, grow
from kgem.data.names import NO_NAMES, Names
from kgem.data.options import FACT, ReadOptions
from kgem.errors import ConfigError, InputError
from kgem.evaluate.validation import filtered_mrr
from kgem.files.store import SEAL, hash_file
from kgem.model.prior import Prior
from kgem.runs.configure import configure
from kgem.runs.fitting import Prepared, fit_in_memory
from kgem.runs.review import Fact, Review, is_review
from kgem.runs.watching import Progress, watch_epochs
from kgem.settings import differences
from kgem.train.warm_start import WarmStart, grown_start

if TYPE_CHECKING:
    from kgem.data.triples import ReadReport

__all__ = ["Delta", "PlannedUpdate", "new_folder", "plan_update", "read_delta", "same_questions", "update"]

# Lengths of the phases: new rows are learned by then, and old ones have not drifted far.
EM_EPOCHS, RETRAIN_EPOCHS, DISTIL_EPOCHS = 10, 15, 15
_FIXED = re.compile(r"model\..*|dtype")  # settings that tables are made of


@dataclass(frozen=True, eq=False)
class Delta:
    """Labelled facts to add, by split, and to remove, and where they came from."""

    added: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    removed: pl.DataFrame | None = None
    reports: tuple[ReadReport, ...] = ()  # how reading the files went
    files: Mapping[str, str] = field(default_factory=dict)  # sha256 by path
    review: Mapping[str, int] | None = None  # decisions by what they do: learned, dropped, ranked, without effect
    proposals: Mapping[Fact, bool] = field(
        default_factory=dict
    )  # that people decided about, and whether they are right
    warnings: tuple[str, ...] = ()
    names: Names = NO_NAMES  # of symbols, new and old


@dataclass(frozen=True, eq=False)
class PlannedUpdate:
    """A fit that goes on, ready to begin."""

    prepared: Prepared
    config: Config
    changes: Changes


def update(
    model: Model,
    facts: Any = None,
    *,
    remove: Any = None,
    threads: int | None = None,
    progress: Progress = None,
    reading: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Model:
    """A model of the graph with more facts, or fewer, that goes on from what this one has learned.

    `facts` and `remove` are what Dataset.load takes, a Dataset, or a review file; `reading` holds options of
    Dataset.load for both. Facts are for training unless they come with splits. Settings and progress: as of `fit`; by
    default EM takes 10 epochs, re-training 15 and distillation 15, if the model was distilled. The model that is given
    does not change.
    """
    if facts is None and remove is None:
        raise InputError("no facts are given", remedy="kgem.update(model, facts), or remove=facts, or both")
    given = settings if threads is None else {"run.threads": threads, **settings}
    planned = plan_update(model, read_delta(facts, remove, ReadOptions.from_dict(reading or {})), given)
    with watch_epochs(progress, planned.config) as heard:
        return fit_in_memory(planned.prepared, planned.config, heard)


def read_delta(facts: Any, remove: Any = None, options: ReadOptions | None = None) -> Delta:
    """What a user wants to add and to remove; both may be files, folders, names, frames, and facts a review."""
    options = options or ReadOptions()
    delta = _read_additions(facts, options)
    if remove is None:
        return delta
    frames, reports, files, _ = _read(remove, replace(options, labels=None))
    parts = [frame.select(FACT) for frame in frames.values()]
    parts += [] if delta.removed is None else [delta.removed]
    return replace(delta, removed=pl.concat(parts), reports=(*delta.reports, *reports), files={**delta.files, **files})


def _read_additions(facts: Any, options: ReadOptions) -> Delta:
    if facts is None:
        return Delta()
    if isinstance(facts, str | Path) and str(facts) != "-" and is_review(Path(facts).expanduser()):
        return _from_review(Path(facts).expanduser())
    frames, reports, files, names = _read(facts, options)
    columns = {column for frame in frames.values() for column in frame.columns} - set(FACT)
    warnings = tuple(f"the column {column} is not used in training" for column in sorted(columns))
    return Delta(frames, None, reports, files, warnings=warnings, names=names)


def _read(
    source: Any, options: ReadOptions
) -> tuple[dict[str, pl.DataFrame], tuple[ReadReport, ...], dict[str, str], Names]:
    """Labelled facts by split, how reading went, the files' hashes, and names of symbols."""
    from kgem.data.sources import find, load_names, read

    if isinstance(source, Dataset):
        return {split: source.frame(split) for split in SPLITS if len(source.split(split))}, (), {}, source.names
    found = find(source, options)
    frames, reports, names = read(found)
    hashes = {str(path): hash_file(path) for path in found.files.values()}
    return frames, tuple(reports.values()), hashes, names.extend(load_names(options))


def _from_review(path: Path) -> Delta:
    """Accepted proposals are learned, rejected facts dropped, and the ranking of proposals learns from both answers."""
    review = Review(path.parent, path.name)
    accepted, rejected, wrong = review.accepted("missing"), review.rejected("doubtful"), review.rejected("missing")
    counts = {
        "learned": len(accepted),
        "dropped": len(rejected),
        "ranked": len(wrong),
        "without_effect": len(review.decisions) - len(accepted) - len(rejected) - len(wrong),
    }
    schema = dict.fromkeys(FACT, pl.String)
    return Delta(
        added={"train": pl.DataFrame(accepted, schema, orient="row")},
        removed=pl.DataFrame(rejected, schema, orient="row"),
        files={str(path): hash_file(path)},
        review=counts,
        proposals=dict.fromkeys(accepted, True) | dict.fromkeys(wrong, False),
        warnings=review.problems,
    )


def plan_update(
    model: Model, delta: Delta, overrides: Mapping[str, Any] | None = None, folder: Path | None = None
) -> PlannedUpdate:
    """What the fit goes on from and by which settings; an error if there is nothing to learn or to forget.

    `folder` is where the model was read from.
    """
    data, changes = grow(model.data, delta.added, delta.removed)
    if not changes.total_new and not changes.total_removed and not delta.proposals:
        raise InputError(
            _nothing(changes), remedy="give facts that the graph does not have, or --remove some that it has"
        )
    data = data.with_names(delta.names)
    config = _update_config(model, overrides or {})
    prior = Prior(config.model.p, model.point.score.complex)
    warm = grown_start(model.data, data, model.point, model.posterior, model.learned, prior, _age(model.provenance))
    warm = WarmStart.from_tensors(warm.tensors(), warm.epochs, config.device)
    source = {"graph_sha256": model.data.content_hash}
    if folder is not None:
        seal = (find_model(folder) / SEAL).read_text(encoding="ascii").split()[0]
        source |= {"folder": str(folder), "manifest_sha256": seal}
    document = {
        "from": source,
        "files": dict(delta.files),
        "age": warm.epochs,
        "changes": changes.to_dict(),
        "before": _before(model, data, changes),
        "earlier": model.provenance.get("update"),
    }
    if delta.review is not None:
        document["review"] = dict(delta.review)
    document["proposals"] = _decided_proposals(model, delta.proposals)
    return PlannedUpdate(Prepared(data, model.provenance.get("split"), warm, document), config, changes)


def _decided_proposals(model: Model, proposals: Mapping[Fact, bool]) -> dict[str, Any]:
    """What people have decided about proposals, as the model that made them saw these, for JSON."""
    data = model.data
    known = {fact: right for fact, right in proposals.items() if data.knows(fact)}
    decided = model.decided
    if known:
        views = view_facts(model.mode_scorer(), data.ids(known), Known.training(data))
        decided = decided.extend(Decided(views.features(), np.array(list(known.values()), dtype=bool)))
    rejected = [fact for fact in model.rejected if not proposals.get(fact)]
    rejected += [fact for fact, right in proposals.items() if not right and fact not in model.rejected]
    return {"decided": decided.to_dict(), "rejected": [list(fact) for fact in rejected]}


def _nothing(changes: Changes) -> str:
    if not changes.given and not changes.to_remove:
        return "there is nothing in it to learn or to forget"
    parts = {
        "in the graph already": changes.known,
        "kept for validation or test": sum(changes.held_out.values()),
        "to be removed but not there": changes.absent,
    }
    return "nothing would change: " + ", ".join(f"{n:,} facts {what}" for what, n in parts.items() if n)


def _age(provenance: Mapping[str, Any]) -> int:
    """Epochs that the model's tables have seen since they were random."""
    epochs, earlier = provenance.get("epochs") or {}, provenance.get("update") or {}
    return max(1, int(epochs.get("pretrain", 0)) + int(epochs.get("em", 0)) + int(earlier.get("age", 0)))


def _update_config(model: Model, overrides: Mapping[str, Any]) -> Config:
    """The model's own settings with what its races settled on, and short lengths; no phase begins from nothing."""
    config = model.config
    races: dict[str, Any] = {"shared": 1.0, "beta": config.em.beta, "mix": (1.0, 0.0)}  # of first models, without any
    known = {**races, **model.provenance}
    student = known.get("student") or (1.0, 0.0)
    short = {
        "pretrain.epochs": 0,
        "pretrain.candidates": (known["shared"],),
        "em.epochs": EM_EPOCHS,
        "em.e_epochs": 0,
        "em.beta": known["beta"],
        "retrain.epochs": RETRAIN_EPOCHS,
        "retrain.candidates": (tuple(known["mix"]),),
        "retrain.start": "warm",
        "companions.mixes": (),  # those would begin from nothing
        "distil.epochs": DISTIL_EPOCHS if config.distil.epochs else 0,
        "distil.candidates": (tuple(student),),
        "run.time_budget": None,
    }
    chosen = configure(configure(config, short), overrides, arguments=("facts", "remove", "threads", "progress"))
    changed = [name for name in differences(chosen, config) if _FIXED.fullmatch(name)]
    if changed or chosen.pretrain.epochs:
        name = changed[0] if changed else "pretrain.epochs"
        raise ConfigError(f"{name} cannot change in an update", remedy="leave it out, or fit anew: kgem fit")
    return chosen


def _before(model: Model, grown: Dataset, changes: Changes) -> dict[str, dict[str, float]]:
    """Filtered MRR of the model on the held-out facts that stay, by split."""
    before = {}
    for split in SPLITS[1:]:
        kept = grown.split(split)[: changes.kept[split]]
        overall = model.metrics.get(split, {}).get("overall")
        if len(kept):
            untouched = overall is not None and not changes.removed[split]
            before[split] = {"n": 2 * len(kept), "mrr": float(overall["mrr"]) if untouched else _mrr(model, kept)}
    return before


def _mrr(model: Model, facts: IntArray) -> float:
    return filtered_mrr(model.scorer(), model.data.reciprocal(facts), model.data)


def same_questions(model: Model) -> dict[str, dict[str, float]]:
    """Of an updated model: filtered MRR before and after on the held-out facts that both graphs have, by split.

    The model of before chose among the entities that it knew, this one among all; each leaves out what its graph knows.
    """
    document = model.provenance.get("update") or {}
    found = {}
    for split, before in document.get("before", {}).items():
        kept = model.data.split(split)[: document["changes"]["kept"][split]]
        found[split] = {**before, "after": _mrr(model, kept)}
    return found


def new_folder(folder: Path) -> Path:
    """Where an update goes by default: beside the run, with the next number that is free."""
    folder = folder.resolve() if folder.name in ("", "..") else folder  # "." and ".." have no name to number
    in_run = folder.name == "model" and (folder.parent / "config.toml").is_file()
    run = folder.parent if in_run else folder
    stem, number = re.fullmatch(r"(.*?)(?:-(\d+))?", run.name).groups()  # type: ignore[union-attr]
    following = int(number or 1) + 1
    while (found := run.with_name(f"{stem}-{following}")).exists():
        following += 1
    return found
