"""Updates: what is read and refused, what is recorded, runs that are killed, and how good they are."""

from __future__ import annotations

import hashlib
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

import kgem
from driving import complete, stop_after
from kgem.answer.features import Known, view_facts
from kgem.answer.model import Model
from kgem.data.dataset import Dataset, IntArray
from kgem.data.options import ReadOptions
from kgem.errors import ConfigError, InputError
from kgem.evaluate.metrics import summarise
from kgem.evaluate.ranking import rank
from kgem.model.embeddings import Embeddings
from kgem.model.generate import generate
from kgem.report.history import read_history
from kgem.report.report import render_report
from kgem.runs.configure import configure
from kgem.runs.fit import fit
from kgem.runs.review import Review
from kgem.runs.run import Run, find_origin, read_log
from kgem.runs.update import new_folder, plan_update, read_delta, same_questions, update
from killing import same, starter, tables
from obvious import random_graph
from small_models import random_model

GRAPH = random_graph()
PHASE = {"epochs": 2, "batch_size": 40}
QUICK: dict[str, Any] = {"em.epochs": 2, "retrain.epochs": 2, "distil.epochs": 2}
NEW = [("n1", "r0", "e1"), ("e2", "r1", "n1"), ("n2", "new", "e3"), ("n1", "new", "n2")]
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def model() -> Model:
    torch.set_num_threads(1)
    config = configure(
        None,
        {
            "model.dim": 3,
            "pretrain": {**PHASE, "candidates": (1.0, 4.0), "extensions": 0, "trial_epochs": 1},
            "em": PHASE,
            "retrain": {**PHASE, "candidates": ((1.0, 0.0), (1.0, 2.0)), "trial_epochs": 1},
            "companions": PHASE,
            "distil": PHASE,
            "run": {"checkpoint_seconds": 0.0, "threads": 1},
        },
    )
    return fit(GRAPH, config=config)


def frame(facts: Sequence[tuple[str, ...]]) -> pl.DataFrame:
    return pl.DataFrame(facts, dict.fromkeys(("head", "relation", "tail"), pl.String), orient="row")


def write(path: Path, facts: Sequence[tuple[str, ...]]) -> Path:
    path.write_text("".join("\t".join(fact) + "\n" for fact in facts))
    return path


def test_a_model_learns_new_facts_and_stays_what_it_was(model: Model) -> None:
    before = {name: table.clone() for name, table in zip("er", model.point.tables(), strict=True)}
    heard: list[str] = []
    grown = kgem.update(model, frame(NEW), progress=lambda phase, _: heard.append(phase), **QUICK)
    assert heard == ["em"] * 2 + ["retrain"] * 2 + ["distil"] * 2
    assert grown.data.n_entities == GRAPH.n_entities + 2 and grown.data.n_relations == GRAPH.n_relations + 1
    assert len(grown.predict(head="n1", relation="new", top=3)) == 3
    assert grown.strengths.entities["n1"] > 0 and grown.strengths.reciprocals["new"] > 0
    assert all(torch.equal(t, before[name]) for name, t in zip("er", model.point.tables(), strict=True))
    again = update(model, frame(NEW), **QUICK)
    assert torch.equal(again.point.entities, grown.point.entities)
    other = update(model, frame(NEW), seed=9, **QUICK)
    assert not torch.equal(other.point.entities, grown.point.entities)


def test_it_goes_by_what_the_races_settled_on(model: Model) -> None:
    planned = plan_update(model, read_delta(frame(NEW)))
    config, known = planned.config, model.provenance
    assert config.retrain.candidates == (tuple(known["mix"]),)
    assert config.distil.candidates == (tuple(known["student"]),)
    assert config.pretrain.candidates == (known["shared"],) and config.pretrain.epochs == 0
    assert config.em.beta == known["beta"] and config.em.e_epochs == 0
    assert config.model == model.config.model and config.seed == model.config.seed
    assert planned.prepared.warm is not None
    assert planned.prepared.warm.epochs == known["epochs"]["pretrain"] + known["epochs"]["em"]
    assert (config.em.epochs, config.retrain.epochs, config.distil.epochs) == (10, 15, 15)


def test_a_model_that_was_not_distilled_is_updated_without(model: Model) -> None:
    given, plain = read_delta(frame(NEW)), replace(model, config=configure(model.config, {"distil.epochs": 0}))
    assert plan_update(plain, given).config.distil.epochs == 0
    assert plan_update(plain, given, {"distil.epochs": 3}).config.distil.epochs == 3
    assert update(plain, frame(NEW), **(QUICK | {"distil.epochs": 0})).provenance["epochs"] == {
        "pretrain": 0,
        "em": 2,
        "retrain": 2,
    }


def test_where_it_came_from_is_recorded_through_all_updates(model: Model, tmp_path: Path) -> None:
    file = write(tmp_path / "new.tsv", [*NEW, GRAPH.frame("train").row(0), GRAPH.frame("test").row(0)])
    model.save(tmp_path / "model")
    planned = plan_update(model, read_delta(file), QUICK, tmp_path / "model")
    document: Any = planned.prepared.update
    assert document["files"] == {str(file): hashlib.sha256(file.read_bytes()).hexdigest()}
    manifest = hashlib.sha256((tmp_path / "model" / "manifest.json").read_bytes()).hexdigest()
    assert document["from"] == {
        "graph_sha256": GRAPH.content_hash,
        "folder": str(tmp_path / "model"),
        "manifest_sha256": manifest,
    }
    counts = document["changes"]
    assert counts["given"] == 6 == sum(counts["new"].values()) + counts["known"] + counts["held_out"]["test"]
    first = update(model, file, **QUICK)
    second = update(first, frame([("n3", "r0", "e0")]), **QUICK)
    update_of = second.provenance["update"]
    assert update_of["earlier"]["changes"]["new_entities"] == 2 and update_of["earlier"]["earlier"] is None
    assert update_of["age"] == document["age"] + 2  # with the two epochs of EM between them
    assert second.provenance["mix"] == model.provenance["mix"]


def test_before_and_after_are_asked_the_same_questions(model: Model) -> None:
    gone = [GRAPH.frame("test").row(1)]
    more = {"valid": frame([("e0", "r0", "e5")]), "test": frame([("n1", "r0", "e5")]), "train": frame(NEW)}
    given = replace(read_delta(None, frame(gone)), added=more)
    planned = plan_update(model, given, QUICK)
    assert planned.prepared.data.frame("test").row(-1) == ("n1", "r0", "e5")
    kept = [i for i in range(len(GRAPH.test)) if i != 1]
    facts = GRAPH.reciprocal(GRAPH.test[kept])
    before = summarise(rank(model.scorer(), facts, GRAPH.filter_index).of("pessimistic")).mrr
    found = planned.prepared.update
    assert found is not None and found["before"]["test"] == {"n": 2 * len(kept), "mrr": pytest.approx(before)}
    grown = update(model, frame(NEW), remove=frame(gone), **QUICK)
    compared = same_questions(grown)["test"]
    assert compared["mrr"] == pytest.approx(before) and compared["after"] == pytest.approx(
        grown.evaluate("test").overall.mrr
    )


def test_facts_come_from_whatever_a_graph_comes_from(model: Model, tmp_path: Path) -> None:
    folder = tmp_path / "more"
    folder.mkdir()
    write(folder / "train.tsv", NEW)
    write(folder / "test.tsv", [("n1", "r1", "e1")])
    split = frame(NEW).with_columns(split=pl.Series(["train", "train", "train", "test"]))
    split.write_csv(tmp_path / "split.tsv", separator="\t")
    dataset = Dataset.from_frames(frame(NEW))
    sizes = {}
    for name, source, options in (
        ("folder", folder, {}),
        ("column", tmp_path / "split.tsv", {"header": True}),
        ("dataset", dataset, {}),
        ("rows", frame(NEW).to_numpy(), {}),
    ):
        sizes[name] = dict(plan_update(model, read_delta(source, None, ReadOptions(**options))).changes.new)
    assert sizes["folder"] == {"train": 4, "valid": 0, "test": 1}
    assert sizes["column"] == {"train": 3, "valid": 0, "test": 1}
    assert sizes["dataset"] == sizes["rows"] == {"train": 4, "valid": 0, "test": 0}
    weighted = frame(NEW).with_columns(weight=pl.Series(["1"] * 4))
    assert "weight is not used" in read_delta(weighted, None, ReadOptions(extra="weight")).warnings[0]


def test_a_review_teaches_what_was_accepted_and_drops_what_was_rejected(model: Model, tmp_path: Path) -> None:
    review = Review(tmp_path)
    doubtful, confirmed, tested = GRAPH.frame("train").row(2), GRAPH.frame("train").row(3), GRAPH.frame("test").row(2)
    review.decide("e21", "r3", "e0", "accept", "missing")
    review.decide("e0", "r3", "e19", "reject", "missing")
    review.decide(*doubtful, "reject", "doubtful")
    review.decide(*tested, "reject", "doubtful")
    review.decide(*confirmed, "accept", "doubtful")
    review.decide("e1", "r3", "e20", "accept", "missing")
    review.decide("e1", "r3", "e20", "undo", "missing")
    with (tmp_path / "review.tsv").open("a") as file:
        file.write("torn")
    given = read_delta(tmp_path / "review.tsv")
    assert given.review == {"learned": 1, "dropped": 2, "ranked": 1, "without_effect": 1}
    assert "passed over" in given.warnings[0]
    assert given.proposals == {("e21", "r3", "e0"): True, ("e0", "r3", "e19"): False}
    planned = plan_update(model, given)
    grown = planned.prepared.data
    assert planned.changes.removed == {"train": 1, "valid": 0, "test": 1}
    assert grown.frame("train").row(-1) == ("e21", "r3", "e0") and doubtful not in grown.frame("train").rows()
    assert confirmed in grown.frame("train").rows()
    assert planned.prepared.update is not None and planned.prepared.update["review"]["dropped"] == 2


def test_the_ranking_of_proposals_learns_from_a_review_and_what_was_rejected_does_not_come_again(
    model: Model, tmp_path: Path
) -> None:
    """Also where nothing else was decided, and in the update after the next."""
    first, second, *_ = ((f.head, f.relation, f.tail) for f in model.missing_facts(10))
    review = Review(tmp_path)
    review.decide(*first, "reject", "missing")
    planned = plan_update(model, read_delta(tmp_path / "review.tsv"), QUICK)
    assert planned.changes.total_new == planned.changes.total_removed == 0
    updated = update(model, tmp_path / "review.tsv", **QUICK)
    assert updated.rejected == (first,) and updated.decided.right.tolist() == [False]
    assert "proposals" not in updated.provenance["update"]
    assert first not in [(f.head, f.relation, f.tail) for f in updated.missing_facts(10**6, all_values=True)]
    later = update(updated, frame(NEW), **QUICK)
    assert later.rejected == (first,) and later.decided.right.tolist() == [False]
    review.decide(*first, "accept", "missing")
    review.decide(*second, "accept", "missing")
    convinced = update(updated, tmp_path / "review.tsv", **QUICK)
    assert convinced.rejected == () and convinced.decided.right.tolist() == [False, True, True]
    known = Known.of(model.data, model.data.train)
    ids = np.array(
        [[model.data.entities.id(first[0]), model.data.relations.id(first[1]), model.data.entities.id(first[2])]]
    )
    seen = view_facts(model.mode_scorer(), ids, known).features()
    np.testing.assert_allclose(updated.decided.features, seen)


def test_what_cannot_be_done_is_an_error_that_says_so(model: Model) -> None:
    known, held_out = GRAPH.frame("train").head(3), GRAPH.frame("test").head(2)
    with pytest.raises(InputError, match="3 facts in the graph already, 2 facts kept for validation or test"):
        update(model, pl.concat([known, held_out]))
    with pytest.raises(InputError, match="no facts are given"):
        update(model)
    with pytest.raises(InputError, match="nothing in it"):
        plan_update(model, read_delta(None), {})  # a review without decisions
    with pytest.raises(InputError, match="1 facts to be removed but not there"):
        update(model, remove=frame([("e0", "r0", "nobody")]))
    with pytest.raises(InputError, match="to be added and to be removed"):
        update(model, known, remove=known)
    for name, value in (("model.dim", 4), ("dtype", "float64"), ("pretrain.epochs", 1)):
        with pytest.raises(ConfigError, match=f"{name} cannot change"):
            update(model, frame(NEW), **{name: value})
    with pytest.raises(ConfigError, match=r"did you mean em\.beta"):
        update(model, frame(NEW), **{"em.betta": 1})
    with pytest.raises(ConfigError, match="no reading option"):
        update(model, frame(NEW), reading={"heading": True})
    with pytest.raises(InputError):
        update(model, "nowhere.tsv")


@pytest.mark.parametrize(("score", "reciprocal"), [("cp", True), ("complex", False), ("tucker", True)])
def test_every_kind_of_table_grows(score: str, reciprocal: bool) -> None:
    old = random_model(score=score, reciprocal=reciprocal, dtype="float32", metrics={})
    grown = update(old, frame(NEW), **QUICK)
    assert grown.point.n_entities == GRAPH.n_entities + 2 and grown.point.reciprocal == reciprocal


def test_the_next_folder_that_is_free(tmp_path: Path) -> None:
    for name in ("a", "a-2", "b-7", "c"):
        (tmp_path / name / "model").mkdir(parents=True)
    (tmp_path / "c" / "config.toml").touch()
    found = {name: new_folder(tmp_path / name).name for name in ("a", "a-2", "b-7", "c", "c/model", "a/model")}
    assert found == {"a": "a-3", "a-2": "a-3", "b-7": "b-8", "c": "c-2", "c/model": "c-2", "a/model": "model-2"}


# run folders


def begin(folder: Path, model: Model) -> Run:
    planned = plan_update(model, read_delta(frame(NEW)), {**QUICK, "run.checkpoint_seconds": 0.0})
    return Run.create(folder, planned.prepared, planned.config, origin="update")


@pytest.fixture(scope="module")
def whole(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("whole") / "run"
    with begin(folder, model) as run:
        complete(run)
    return folder


def test_a_run_has_everything_and_comes_to_what_the_library_does(model: Model, whole: Path) -> None:
    grown = update(model, frame(NEW), **QUICK)
    assert torch.equal(tables(whole)["point/entities"], grown.point.entities)
    assert find_origin(whole) == "update"
    assert [record["phase"] for record in read_log(whole)] == ["em"] * 2 + ["retrain"] * 2 + ["distil"] * 2
    with Run.open(whole) as run:
        found = run.model()
        assert found is not None and found.provenance["update"]["changes"]["new_relations"] == 1
    page = render_report(found, read_history(whole))
    assert "kgem update" in page and "went on from an earlier one" in page


@pytest.mark.parametrize("epoch", [1, 2, 3, 4, 5, 6])
def test_stopped_and_resumed_it_ends_the_same(epoch: int, model: Model, whole: Path, tmp_path: Path) -> None:
    with begin(tmp_path / "run", model) as run:
        stop_after(run, epoch)
    with Run.open(tmp_path / "run") as run:
        complete(run)
    assert same(tmp_path / "run", whole)


@pytest.fixture(scope="module")
def start() -> Callable[..., Any]:
    return starter()


def test_killed_inside_writes_and_resumed_it_ends_the_same_to_the_bit(
    model: Model, whole: Path, tmp_path: Path, start: Callable[..., Any]
) -> None:
    begin(tmp_path / "run", model).close()
    rng, killed = random.Random(0), 0
    for _ in range(3):
        process = start(tmp_path / "run", rng.randrange(5, 40))
        process.join()
        killed += process.exitcode == -signal.SIGKILL
    assert killed
    process = start(tmp_path / "run")
    process.join()
    assert process.exitcode == 0 and same(tmp_path / "run", whole)


# how good it is


def point_mrr(model: Model, data: Dataset, facts: IntArray, point: Embeddings | None = None) -> float:
    """Filtered, of facts of a graph with the same labels whose ids may be others; by the tables of mode `point`."""
    point = point or model.point
    entities = model.data.entities.ids(data.entities.labels)
    relations = model.data.relations.ids(data.relations.labels)
    rows = np.concatenate([relations, relations + model.data.n_relations])
    mine = point.with_tables(point.entities[torch.from_numpy(entities)], point.relations[torch.from_numpy(rows)])
    return summarise(rank(mine, data.reciprocal(facts), data.filter_index).of("pessimistic")).mrr


def test_new_entities_are_learned_about_as_well_as_from_scratch() -> None:
    """A planted graph; ten of 80 entities come later, with all of their facts."""
    strengths = {"entity_strengths": (0.3, 3.0), "relation_strengths": (0.05, 0.15)}
    full = generate(80, 6, 3000, 4, rng=np.random.default_rng(0), head_exponent=0.3, **strengths).dataset
    late = np.arange(full.n_entities) % 8 == 0
    frames = {s: full.frame(s) for s in ("train", "valid", "test")}
    about = {s: late[full.split(s)[:, 0]] | late[full.split(s)[:, 2]] for s in frames}
    early = Dataset.from_frames(**{s: f.filter(~about[s]) for s, f in frames.items()})
    config = {
        "model.dim": 6,
        "pretrain": {"epochs": 15, "candidates": (1.0,)},
        "em.epochs": 10,
        "retrain": {"epochs": 15, "candidates": ((1.0, 0.3),)},
        "distil.epochs": 15,
    }
    old, scratch = (fit(data, **config) for data in (early, full))
    more = frames["train"].filter(about["train"])
    grown = update(old, more)
    warm = plan_update(old, read_delta(more)).prepared.warm
    assert warm is not None
    drawn = warm.posterior.sample(torch.Generator().manual_seed(0))
    tables = (torch.where(new[:, None], x, t) for new, x, t in zip(warm.new, drawn, warm.point, strict=True))
    untrained = point_mrr(grown, full, full.test[about["test"]], grown.point.with_tables(*tables))
    for facts in (full.test[about["test"]], full.test[~about["test"]]):
        assert point_mrr(grown, full, facts) > 0.85 * point_mrr(scratch, full, facts)
    assert point_mrr(grown, full, full.test[about["test"]]) > 2 * untrained
    assert grown.provenance["epochs"] == {"pretrain": 0, "em": 10, "retrain": 15, "distil": 15}
