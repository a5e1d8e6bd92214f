"""The commands on fitted models as a person uses them: right and wrong input, what is printed, what is written."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import kgem as library
from kgem.answer.model import Model
from kgem.data.dataset import Dataset
from kgem.data.names import Names
from kgem.model.scores import SCORES, DistMult
from kgem.runs.fit import fit
from kgem.runs.fitting import prepare
from kgem.settings import to_toml

Kgem = Callable[..., tuple[int, str, str]]

SHORT = {"pretrain.epochs": 3, "em.epochs": 3, "retrain.epochs": 2, "companions.epochs": 2, "distil.epochs": 2}
SHORT |= {"retrain.candidates": ((1.0, 0.0),)}
COMMANDS = ("predict", "judge", "similar", "strengths", "evaluate", "compare", "report", "export")


@pytest.fixture(scope="session")
def graph() -> Dataset:
    """The borders, capitals and continents of some countries."""
    world = Dataset.load("world").frame("train")
    few = world.filter(pl.col("relation").is_in(["borders", "has capital", "in continent"]))
    return prepare(Dataset.from_frames(few.head(360), name="countries"), seed=0).data


@pytest.fixture(scope="session")
def fitted(graph: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two run folders, a and b, of short fits with different seeds."""
    folder = tmp_path_factory.mktemp("runs")
    for seed, name in enumerate("ab"):
        records: list[dict[str, Any]] = []

        def heard(phase: str, record: Any, records: list[dict[str, Any]] = records) -> None:
            records.append({"phase": phase, **{k: v for k, v in vars(record).items() if k != "extra"}, **record.extra})

        model = fit(graph, dim=8, seed=seed, progress=heard, **SHORT)
        model.save(folder / name / "model")
        (folder / name / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        (folder / name / "config.toml").write_text(to_toml(model.config))
    return folder


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fitted: Path) -> Path:
    """A folder of its own to work in, with copies of the runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KGEM_DATA", raising=False)
    shutil.copytree(fitted, tmp_path / "runs")
    return tmp_path


@pytest.fixture
def model(here: Path) -> Model:
    return library.load("runs/a")


def json_of(kgem: Kgem, *words: object) -> Any:
    code, out, err = kgem(*words, "--json")
    assert code == 0, err
    return json.loads(out)


# predict


@pytest.mark.parametrize(
    ("options", "query"),
    [
        (("--head", "France", "--relation", "borders"), {"head": "France", "relation": "borders"}),
        (("--relation", "in continent", "--tail", "Europe"), {"relation": "in continent", "tail": "Europe"}),
        (("--head", "France", "--tail", "Europe"), {"head": "France", "tail": "Europe"}),
    ],
)
def test_predict_answers_each_kind_of_question(
    kgem: Kgem, model: Model, options: tuple[str, ...], query: dict[str, str]
) -> None:
    wanted = model.predict(**query, top=3)
    answers = json_of(kgem, "predict", "runs/a", *options, "--top", 3)
    assert answers == json.loads(json.dumps(wanted.to_dict()))
    code, out, err = kgem("predict", "runs/a", *options, "--top", 3)
    assert code == 0 and all(answer.label in out for answer in wanted) and "?" in out.splitlines()[0]
    assert wanted.meaning in err and f"{model.temperature().common:.2f}" in err


def test_predict_new_only_leaves_out_what_is_known(kgem: Kgem) -> None:
    question = ("predict", "runs/a", "--head", "France", "--relation", "borders", "--top", 30)
    assert any(answer["known"] for answer in json_of(kgem, *question)["answers"])
    assert not any(answer["known"] for answer in json_of(kgem, *question, "--new-only")["answers"])


def test_predict_reads_questions_and_writes_tables(kgem: Kgem, model: Model) -> None:
    Path("asked.tsv").write_text("France\tborders\t?\n\n\thas capital\tParis\nFrance\t\tEurope\n", encoding="utf-8")
    code, out, err = kgem("predict", "runs/a", "--queries", "asked.tsv", "--top", 2, "--csv")
    assert code == 0, err
    printed = pl.read_csv(io.StringIO(out))
    assert printed["asked"].to_list() == ["tail", "tail", "head", "head", "relation", "relation"]
    assert printed["tail"][3] == "Paris" and printed["place"].to_list() == [1, 2] * 3
    assert kgem("predict", "runs/a", "--queries", "asked.tsv", "--top", 2, "--out", "found.parquet")[0] == 0
    written = pl.read_parquet("found.parquet")
    assert written["head"].to_list() == printed["head"].to_list()
    np.testing.assert_allclose(written["probability"], printed["probability"])
    assert written["probability"][0] == pytest.approx(model.predict("France", "borders", top=1)[0].probability)
    assert kgem("predict", "runs/a", "--queries", "asked.tsv", "--out", "found.json")[0] == 0
    assert len(json.loads(Path("found.json").read_text())) == 3
    code, out, _ = kgem("predict", "runs/a", "--queries", "asked.tsv", "--top", 1)
    assert code == 0 and "France · borders · ?" in out and "? · has capital · Paris" in out


def test_questions_end_at_newlines_alone(kgem: Kgem) -> None:
    Path("odd.tsv").write_text("x\u2028y\tborders\t?\r\n", encoding="utf-8", newline="")
    code, _, err = kgem("predict", "runs/a", "--queries", "odd.tsv")
    assert code == 2 and "x\\u2028y" in err.replace("\u2028", "\\u2028"), err


def test_evaluate_counts_test_facts_among_proposals(kgem: Kgem, model: Model) -> None:
    from kgem.answer.proposal_quality import measure_proposals

    found = json_of(kgem, "evaluate", "runs/a", "--proposals")["proposals"]
    wanted = measure_proposals(model.mode_scorer()).to_dict()
    assert found == json.loads(json.dumps(wanted))
    code, out, err = kgem("evaluate", "runs/a", "--proposals")
    assert code == 0 and "by frequency alone" in out and "claimed" in out and "test facts" in err


def test_predict_all_lists_missing_facts(kgem: Kgem, model: Model) -> None:
    found = json_of(kgem, "predict", "runs/a", "--all", "--top", 5)
    assert [fact["tail"] for fact in found] == [fact.tail for fact in model.missing_facts(5)]
    narrowed = json_of(kgem, "predict", "runs/a", "--all", "--relation", "in continent", "--top", 4)
    assert {fact["relation"] for fact in narrowed} == {"in continent"}
    code, out, err = kgem("predict", "runs/a", "--all", "--top", 5)
    assert code == 0 and found[0]["head"] in out and "facts hidden from training" in err
    assert set(found[0]) >= {"chance", "against", "like"} and found[0]["chance"] >= found[-1]["chance"]
    code, _, err = kgem("predict", "runs/a", "--all", "--top", 5, "--mode", "bayes")
    assert code == 0 and "share" in err  # the order was learned for another mode
    every = json_of(kgem, "predict", "runs/a", "--all", "--top", 10_000, "--all-values")
    allowed = json_of(kgem, "predict", "runs/a", "--all", "--top", 10_000)
    unbroken = [fact for fact in every if not fact["against"]]
    assert unbroken == allowed[: len(unbroken)] and len(unbroken) < len(every)
    code, _, err = kgem("predict", "runs/a", "--all-values", "--head", "France", "--relation", "borders")
    assert code == 2 and "--all-values goes with --all" in err
    about = json_of(kgem, "predict", "runs/a", "--all", "--about", "France", "--time-budget", "1h", "--top", 4)
    assert about and all("France" in (fact["head"], fact["tail"]) for fact in about)
    code, _, err = kgem("predict", "runs/a", "--about", "France", "--head", "France", "--relation", "borders")
    assert code == 2 and "--about goes with --all" in err
    assert kgem("predict", "runs/a", "--all", "--top", 5, "--out", "missing.csv")[0] == 0
    assert len(pl.read_csv("missing.csv")) == 5


def test_predict_draws_its_answers(kgem: Kgem) -> None:
    question = ("predict", "runs/a", "--head", "France", "--relation", "borders", "--top", 3)
    code, out, err = kgem(*question, "--figure", "answers.svg")
    assert code == 0 and "France · borders" in out and "answers.svg" in err
    assert "<svg" in Path("answers.svg").read_text()
    Path("many.tsv").write_text("France\tborders\t?\n" * 13)
    code, out, err = kgem("predict", "runs/a", "--queries", "many.tsv", "--figure", "many.svg")
    assert (code, out) == (2, "") and "13 questions" in err and not Path("many.svg").exists()


def test_the_name_of_a_graph_is_answered_with_where_its_run_is(kgem: Kgem) -> None:
    code, _, err = kgem("predict", "a", "--head", "France", "--relation", "borders")
    assert code == 2 and "did you mean runs/a?" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "--head"),
        (("--head", "France"), "--head"),
        (("--head", "France", "--relation", "borders", "--tail", "Spain"), "kgem judge"),
        (("--head", "Frnace", "--relation", "borders"), "'France'"),
        (("--head", "France", "--relation", "bordres"), "'borders'"),
        (("--all", "--head", "France"), "--head"),
        (("--all", "--relation", "nonsense"), "nonsense"),
        (("--all", "--queries", "asked.tsv"), "--queries"),
        (("--all", "--figure", "a.svg"), "--all"),
        (("--head", "France", "--relation", "borders", "--figure", "a.pdf"), ".svg"),
        (("--head", "France", "--relation", "borders", "--figure", "taken.csv"), "--force"),
        (("--queries", "asked.tsv", "--head", "France"), "--queries"),
        (("--queries", "absent.tsv"), "absent.tsv"),
        (("--queries", "asked.tsv"), "asked.tsv:2"),
        (("--queries", "empty.tsv"), "empty.tsv"),
        (("--queries", "bytes.tsv"), "bytes.tsv"),
        (("--head", "France", "--relation", "borders", "--top", "0"), "--top"),
        (("--head", "France", "--relation", "borders", "--mode", "median"), "--mode"),
        (("--head", "France", "--relation", "borders", "--json", "--csv"), "--csv"),
        (("--head", "France", "--relation", "borders", "--out", "a.pdf"), ".parquet"),
        (("--head", "France", "--relation", "borders", "--out", "taken.csv"), "--force"),
        (("--head", "France", "--relation", "borders", "--out", "absent/a.csv"), "absent"),
        (("--head", "France", "--relation", "borders", "--device", "abacus"), "--device"),
        (("--head", "France", "--relation", "borders", "--device", "meta"), "--device"),
        (("--head", "France", "--relation", "borders", "--out", "x" * 300 + ".csv"), "xxx"),
    ],
)
def test_predict_refuses_wrong_input(kgem: Kgem, words: tuple[str, ...], told: str) -> None:
    Path("asked.tsv").write_text("France\tborders\t?\nFrance\tborders\n")
    Path("empty.tsv").write_text("\n")
    Path("bytes.tsv").write_bytes(b"\xff\xfe\t\xff\t?\n")
    Path("taken.csv").write_text("mine")
    code, out, err = kgem("predict", "runs/a", *words)
    assert (code, out) == (2, "") and told in err
    assert Path("taken.csv").read_text() == "mine"


def test_force_overwrites(kgem: Kgem) -> None:
    Path("taken.csv").write_text("mine")
    question = ("predict", "runs/a", "--head", "France", "--relation", "borders")
    assert kgem(*question, "--out", "taken.csv", "--force")[0] == 0
    assert Path("taken.csv").read_text().startswith("head,relation,tail")


# judge


def write_facts() -> None:
    rows = ["France\tborders\tSpain", "France\tborders\tJapan", "Frnace\tborders\tSpain", "Paris\tborders\tSpain"]
    Path("facts.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def test_judge_a_file_in_its_order(kgem: Kgem, model: Model) -> None:
    write_facts()
    found = json_of(kgem, "judge", "runs/a", "facts.tsv")
    asked = [tuple(line.split("\t")) for line in Path("facts.tsv").read_text().splitlines()]
    assert found == json.loads(json.dumps([judgement.to_dict() for judgement in model.judge(asked)]))
    assert found[2]["chance"] is None and "did you mean 'France'" in found[2]["note"]
    code, out, err = kgem("judge", "runs/a", "facts.tsv")
    assert code == 0 and "Spain" in out and "facts judged" in err and "not judged" in err
    assert "did you mean 'France'" in err


def test_judge_writes_every_row(kgem: Kgem) -> None:
    write_facts()
    for suffix in ("csv", "parquet", "json"):
        assert kgem("judge", "runs/a", "facts.tsv", "--out", f"judged.{suffix}")[0] == 0
    printed = pl.read_csv(io.StringIO(kgem("judge", "runs/a", "facts.tsv", "--csv")[1]))
    csv, parquet = pl.read_csv("judged.csv"), pl.read_parquet("judged.parquet")
    assert len(json.loads(Path("judged.json").read_text())) == len(parquet) == 4 and printed.equals(csv)
    assert csv["chance"].is_null().to_list()[2] and "France" in csv["note"][2]
    np.testing.assert_allclose(csv["chance"].drop_nulls(), parquet["chance"].drop_nulls())


def test_judge_the_worst_first(kgem: Kgem) -> None:
    write_facts()
    every = json_of(kgem, "judge", "runs/a", "facts.tsv")
    worst = json_of(kgem, "judge", "runs/a", "facts.tsv", "--worst", 2)
    chances = sorted(each["chance"] for each in every if each["chance"] is not None)
    assert [each["chance"] for each in worst] == chances[:2]


def test_judge_one_fact_and_what_speaks_against_it(kgem: Kgem) -> None:
    fact = ("--head", "France", "--relation", "borders", "--tail", "Paris")
    (found,) = json_of(kgem, "judge", "runs/a", *fact)
    assert found["low"] <= found["high"] and found["known"] is None and found["against"]
    code, out, _ = kgem("judge", "runs/a", *fact)
    assert code == 0 and "France · borders · Paris" in out and found["against"][0] in out


def test_judge_learns_from_given_negatives(kgem: Kgem, graph: Dataset) -> None:
    write_facts()
    labels = graph.entities.labels
    Path("wrong.tsv").write_text("".join(f"{labels[i]}\tborders\t{labels[-i - 1]}\n" for i in range(60)))
    own = json_of(kgem, "judge", "runs/a", "facts.tsv")
    taught = json_of(kgem, "judge", "runs/a", "facts.tsv", "--negatives", "wrong.tsv")
    assert [each["chance"] for each in own] != [each["chance"] for each in taught]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "--head"),
        (("--head", "France", "--relation", "borders"), "no fact to judge"),
        (("--head", "Frnace", "--relation", "borders", "--tail", "Spain"), "'France'"),
        (("facts.tsv", "--head", "France"), "exclude"),
        (("absent.tsv",), "absent.tsv"),
        (("short.tsv",), "short.tsv:2"),
        (("facts.tsv", "--negatives", "few.tsv"), "too few"),
        (("facts.tsv", "--worst", "0"), "--worst"),
        (("facts.tsv", "--json", "--csv"), "--csv"),
        (("facts.tsv", "--out", "taken.csv"), "--force"),
    ],
)
def test_judge_refuses_wrong_input(kgem: Kgem, words: tuple[str, ...], told: str) -> None:
    write_facts()
    Path("short.tsv").write_text("France\tborders\tSpain\nFrance\tborders\n")
    Path("few.tsv").write_text("France\tborders\tSpain\n")
    Path("taken.csv").write_text("mine")
    code, out, err = kgem("judge", "runs/a", *words)
    assert (code, out) == (2, "") and told in err
    assert Path("taken.csv").read_text() == "mine"


def test_names_stand_beside_labels(kgem: Kgem, model: Model) -> None:
    names = Names({"France": "French Republic", "borders": "has a border with"})
    replace(model, data=model.data.with_names(names)).save("named")
    question = ("--head", "French Republic", "--relation", "borders")
    asked = json_of(kgem, "predict", "named", *question, "--top", 1000)
    assert (asked["head"], asked["head_name"]) == ("France", "French Republic")
    assert asked["relation_name"] == "has a border with" and asked["tail_name"] is None
    assert all(each["name"] is None for each in asked["answers"])
    back = json_of(kgem, "predict", "named", "--relation", "borders", "--tail", "Spain", "--top", 1000)
    assert {each["label"]: each["name"] for each in back["answers"]}["France"] == "French Republic"
    for listed in (
        json_of(kgem, "predict", "named", "--all", "--top", 5),
        json_of(kgem, "judge", "named", *question, "--tail", "Spain"),
    ):
        assert all(each["head_name"] == names.by_label.get(each["head"]) for each in listed)
    frame = pl.read_csv(io.StringIO(kgem("predict", "named", *question, "--csv")[1]))
    assert frame["head_name"].unique().to_list() == ["French Republic"]
    assert "head_name" not in json_of(kgem, "predict", "runs/a", "--head", "France", "--relation", "borders")


# similar and strengths


def test_similar(kgem: Kgem, model: Model) -> None:
    found = json_of(kgem, "similar", "runs/a", "France", "--top", 4)
    assert [each["label"] for each in found["similar"]] == [each.label for each in model.similar("France", 4)]
    code, out, _ = kgem("similar", "runs/a", "France", "--top", 4)
    assert code == 0 and found["similar"][0]["label"] in out
    code, out, err = kgem("similar", "runs/a", "Frnace")
    assert (code, out) == (2, "") and "'France'" in err


def test_strengths_in_order_and_beside_frequency(kgem: Kgem, model: Model) -> None:
    found = json_of(kgem, "strengths", "runs/a")
    entities = found["entities"]["symbols"]
    assert len(entities) == model.data.n_entities and len(found["relations"]["symbols"]) == 2 * model.data.n_relations
    values = [row["strength"] for row in entities]
    assert values == sorted(values, reverse=True)
    for row in entities[:5]:
        assert row["strength"] == pytest.approx(model.strengths.entities[row["label"]])
        assert row["frequency"] == model.data.entity_counts[model.data.entities.id(row["label"])]
    logs = np.log([row["ratio"] for row in entities])
    assert abs(logs.mean()) < 1e-6  # the ratio is to the fitted power law
    code, out, _ = kgem("strengths", "runs/a", "--of", "entities", "--top", 2, "--figure", "s.svg")
    assert code == 0 and entities[0]["label"] in out and entities[-1]["label"] in out and "relations" not in out
    assert Path("s.svg").read_text().startswith("<?xml")
    assert kgem("strengths", "runs/a", "--figure", "s.svg")[0] == 2
    assert kgem("strengths", "runs/a", "--figure", "s.gif")[0] == 2
    assert kgem("strengths", "runs/a", "--out", "s.parquet")[0] == 0
    assert len(pl.read_parquet("s.parquet")) == model.data.n_entities + 2 * model.data.n_relations


# evaluate and compare


def test_evaluate_gives_the_figures_of_the_library(kgem: Kgem, model: Model) -> None:
    found = json_of(kgem, "evaluate", "runs/a", "--mode", "mean")
    assert found["overall"]["mrr"] == model.evaluate("test", "mean").mrr
    assert found["mode"] == "mean" and found["temperature"] == model.temperature("mean").common
    assert {"by_relation", "by_side", "by_frequency", "by_category"} <= set(found)
    assert "by_relation" not in json_of(kgem, "evaluate", "runs/a", "--by", "side")
    code, out, _ = kgem("evaluate", "runs/a", "--split", "valid", "--by", "side", "--by", "relation")
    assert code == 0 and f"{model.evaluate('valid').mrr:.3f}" in out and "in continent" in out


def test_evaluate_raw_and_within_memory(kgem: Kgem, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    found = json_of(kgem, "evaluate", "runs/a", "--raw")
    assert found["overall"]["mrr"] == model.evaluate(filtered=False).mrr != model.evaluate().mrr
    assert found["filtered"] is False and json_of(kgem, "evaluate", "runs/a")["filtered"] is True
    assert "raw" in kgem("evaluate", "runs/a", "--raw")[1]
    limits = []
    evaluate = Model.evaluate

    def noted(self: Model, *args: Any, **kwargs: Any) -> Any:
        limits.append(kwargs.get("memory"))
        return evaluate(self, *args, **kwargs)

    monkeypatch.setattr(Model, "evaluate", noted)
    for size in ("512MB", "1.5 GiB", "64k", "100000"):
        assert kgem("evaluate", "runs/a", "--memory", size)[0] == 0
    assert limits == [512_000_000, 3 * 2**29, 64_000, 100_000]


@pytest.mark.parametrize("size", ["much", "-1MB", "0", "5 parsecs", ""])
def test_evaluate_refuses_what_is_no_size(kgem: Kgem, size: str) -> None:
    code, out, err = kgem("evaluate", "runs/a", "--memory", size)
    assert (code, out) == (2, "") and "--memory" in err


def test_evaluate_measures_calibration(kgem: Kgem, model: Model) -> None:
    found = json_of(kgem, "evaluate", "runs/a", "--calibration")["calibration"]
    assert found["temperature"] == model.temperature().common and found["n"] == 2 * len(model.data.test)
    code, out, err = kgem("evaluate", "runs/a", "--figure", "reliability.png")
    assert code == 0 and f"{found['ece']:.3f}" in out and "ECE" in err
    assert Path("reliability.png").read_bytes().startswith(b"\x89PNG")


def test_compare_shows_gain_and_interval(kgem: Kgem, model: Model) -> None:
    found = json_of(kgem, "compare", "runs/a", "runs/b", "runs/a")
    first, second, third = found["runs"]
    gain = second["gain"]
    assert gain["value"] == pytest.approx(second["mrr"] - first["mrr"])
    assert gain["low"] <= gain["value"] <= gain["high"] and "gain" not in first
    assert third["gain"]["value"] == third["gain"]["high"] == 0 and not third["gain"]["clear"]
    code, out, err = kgem("compare", "runs/a", "runs/b", "runs/a")
    assert code == 0 and f"{gain['value']:+.4f}" in out and "runs/a" in err


def test_a_folder_of_runs_is_no_run(kgem: Kgem, graph: Dataset) -> None:
    for words in (("evaluate", "runs"), ("compare", "runs/a", "runs")):
        code, out, err = kgem(*words)
        assert (code, out) == (2, "") and "neither a run nor a saved model" in err and "kgem runs runs" in err


def test_compare_refuses_what_cannot_be_compared(kgem: Kgem, graph: Dataset) -> None:
    assert kgem("compare", "runs/a")[:2] == (2, "")
    other = Dataset("other", graph.entities, graph.relations, graph.train, graph.test, graph.valid)
    fit(other, dim=2, **(SHORT | {"pretrain.epochs": 1, "em.epochs": 1, "retrain.epochs": 1})).save("other")
    code, out, err = kgem("compare", "runs/a", "other")
    assert (code, out) == (2, "") and "graph" in err


# search


def test_search_shows_trials_and_their_cost(kgem: Kgem, graph: Dataset) -> None:
    graph.frame("train").write_csv("facts.tsv", separator="\t", include_header=False)
    words = ("search", "facts.tsv", "--trials", 2, "--dim", 4, "--epochs", 2)
    found = json_of(kgem, *words)
    assert len(found["trials"]) == 2 and found["cost"]["epochs"] == 4
    assert found["best"]["mrr"] == max(trial["mrr"] for trial in found["trials"]) and found["test"]["n"] > 0
    code, out, err = kgem(*words, "--rate")
    assert code == 0 and "4 epochs" in out and "trial 2" in err
    assert kgem(*words, "--out", "trials.csv")[0] == 0 and len(pl.read_csv("trials.csv")) == 2


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("absent.tsv",), "absent.tsv"),
        (("world", "--trials", "0"), "--trials"),
        (("world", "--dim", "2", "--strengths", "1", "0.1"), "0 < low <= high"),
        (("world", "--model", "nonsense"), "nonsense"),
        (("world", "--device", "abacus"), "abacus"),
        (("world", "--out", "trials.pdf"), ".parquet"),
    ],
)
def test_search_refuses_wrong_input(kgem: Kgem, words: tuple[str, ...], told: str) -> None:
    code, out, err = kgem("search", *words)
    assert (code, out) == (2, "") and told in err


# scores of one's own

MODULE = """
from kgem.model.scores import SCORES, DistMult

class Twice(DistMult):
    name = "{name}"

SCORES["{name}"] = Twice()
"""


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test imports, and the scores it adds, are gone after it."""
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delenv("KGEM_IMPORT", raising=False)
    before = dict(SCORES)
    yield
    SCORES.clear()
    SCORES.update(before)
    for name in [name for name in sys.modules if name.endswith("_score")]:
        del sys.modules[name]


@pytest.mark.usefixtures("clean")
def test_a_saved_model_with_a_score_of_ones_own(kgem: Kgem, graph: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("twice", "thrice"):
        Path(f"{name}_score.py").write_text(MODULE.format(name=name))
    SCORES["twice"] = DistMult()
    fit(graph, model="twice", dim=2, **(SHORT | {"pretrain.epochs": 1, "em.epochs": 1})).save("own")
    del SCORES["twice"]
    question = ("similar", "own", "France")
    code, out, err = kgem(*question)
    assert (code, out) == (2, "") and "'twice'" in err and "--import" in err
    code, _, err = kgem("--import", "twice_score", "--import", "thrice_score", *question)
    assert code == 0 and {"twice", "thrice"} <= set(SCORES), err
    for name in ("twice", "thrice"):
        del SCORES[name], sys.modules[f"{name}_score"]
    monkeypatch.setenv("KGEM_IMPORT", "twice_score, thrice_score")
    assert kgem(*question)[0] == 0 and {"twice", "thrice"} <= set(SCORES)


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(
    ("module", "told"),
    [
        ("absent_score", "No module named"),
        ("broken_score", "ZeroDivisionError"),
        ("wrong_score", "SyntaxError"),
        ("wrong_score.py", "without .py"),
        (".relative", "relative"),
    ],
)
def test_a_module_that_cannot_be_imported(kgem: Kgem, module: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("broken_score.py").write_text("1 / 0\n")
    Path("wrong_score.py").write_text("def\n")
    code, out, err = kgem("--import", module, "similar", "runs/a", "France")
    assert (code, out) == (2, "") and repr(module) in err and told in err
    monkeypatch.setenv("KGEM_IMPORT", module)
    assert kgem("similar", "runs/a", "France")[0] == 2


# report and export


def test_report_is_written_once(kgem: Kgem, model: Model) -> None:
    code, out, err = kgem("report", "runs/a")
    page = Path("runs/a/report.html")
    assert code == 0 and out == f"{page}\n", err
    text = page.read_text(encoding="utf-8")
    assert f"{model.evaluate('test').mrr:.3f}" in text and "elbo" in text and "<script" not in text
    page.write_text("mine")
    code, out, err = kgem("report", "runs/a")
    assert (code, out) == (2, "") and "--force" in err and page.read_text() == "mine"
    assert kgem("report", "runs/a", "--force", "--mode", "mean")[0] == 0
    assert "mode <b>mean</b>" in page.read_text(encoding="utf-8")
    assert kgem("report", "runs/a", "--out", "page.pdf")[0] == 2
    assert kgem("report", "runs/a", "--out", "absent/page.html")[0] == 2
    Path("runs/a/log.jsonl").write_text("{\n")
    code, out, err = kgem("report", "runs/a", "--out", "page.html")
    assert (code, out) == (2, "") and "log" in err and not Path("page.html").exists()


@pytest.mark.parametrize("to", ["parquet", "npz", "word2vec", "vectors", "pykeen", "huggingface"])
def test_export_writes_a_folder(kgem: Kgem, to: str) -> None:
    found = json_of(kgem, "export", "runs/a", "--to", to)
    folder = Path("runs/a/export") / to
    assert found["files"] == [str(path) for path in sorted(folder.iterdir())] and found["files"]
    code, out, err = kgem("export", "runs/a", "--to", to)
    assert (code, out) == (2, "") and "--force" in err
    assert kgem("export", "runs/a", "--to", to, "--force")[0] == 0
    assert kgem("export", "runs/a/model", "--to", to, "--out", "elsewhere")[0] == 0
    assert sorted(p.name for p in Path("elsewhere").iterdir()) == sorted(p.name for p in folder.iterdir())


def test_export_refuses_wrong_input(kgem: Kgem) -> None:
    assert kgem("export", "runs/a", "--to", "pickle")[0] == 2
    assert kgem("export", "runs/a")[0] == 2
    Path("file").write_text("mine")
    assert kgem("export", "runs/a", "--to", "npz", "--out", "file", "--force")[0] == 2
    assert Path("file").read_text() == "mine"


# every command


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("folder", ["absent", "asked.tsv", "empty", "unfinished", "damaged"])
def test_a_folder_without_a_good_model_is_wrong_input(kgem: Kgem, command: str, folder: str) -> None:
    Path("asked.tsv").write_text("a\tb\t?\n")
    Path("empty").mkdir()
    Path("unfinished").mkdir()
    Path("unfinished/config.toml").write_text("")
    shutil.copytree("runs/a", "damaged")
    tables = Path("damaged/model/point.safetensors")
    content = bytearray(tables.read_bytes())
    content[-1] ^= 1
    tables.write_bytes(content)
    more = {
        "predict": ["--head", "France", "--relation", "borders"],
        "judge": ["--head", "France", "--relation", "borders", "--tail", "Spain"],
        "similar": ["France"],
        "compare": ["runs/a"],
        "export": ["--to", "npz"],
    }
    before = sorted(Path().rglob("*"))
    code, out, err = kgem(command, folder, *more.get(command, []))
    assert (code, out) == (2, "") and err.startswith(f"error: {folder}") and len(err.splitlines()) == 2
    assert sorted(Path().rglob("*")) == before
