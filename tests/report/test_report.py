"""The report: self-contained, safe with hostile labels, and what it says is what the model says."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest

from kgem.answer.judge import Judge, judge_facts
from kgem.answer.model import Model
from kgem.answer.predict import MEANING
from kgem.data.dataset import Dataset
from kgem.errors import ArtifactError, InputError
from kgem.report.examples import draw_examples
from kgem.report.formatting import percent
from kgem.report.history import RunHistory, find_run, read_history
from kgem.report.html import breakable, esc
from kgem.report.reasons import find_reasons, render_reasons
from kgem.report.report import check_target, default_target, render_report, write_report
from kgem.report.sections import render_learning
from kgem.settings import to_toml
from small_models import random_model

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</title></svg><b>",
    "${title}&amp;",
    "\u202etxt\u0000\u2028",
    "$\\frac{1}$",
)
LOG = [
    {"phase": "pretrain", "epoch": 1, "loss": 3.0, "mrr": 0.1, "seconds": 1.0},
    {"phase": "em", "epoch": 1, "loss": 2.0, "mrr": 0.2, "seconds": 1.0}
    | {"log_likelihood": -9.0, "prior": -2.0, "entropy": 1.0, "elbo": -10.0},
    {"phase": "retrain", "epoch": 1, "loss": 1.0, "mrr": 0.3, "seconds": 1.0},
]


class Page(HTMLParser):
    """Elements, attributes and visible text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def hostile_model() -> Model:
    rows = [(a, f"r {a}", b) for a in HOSTILE for b in HOSTILE if a != b]
    frame = pl.DataFrame(rows, schema=["head", "relation", "tail"], orient="row")
    return random_model(Dataset.from_frames(frame[:20], frame[20:25], frame[25:], name=HOSTILE[1]), dtype="float32")


@pytest.fixture(scope="module")
def plain_page() -> tuple[Model, str]:
    model = random_model(dtype="float32")
    return model, render_report(model, RunHistory(records=LOG, versions={"kgem": "9"}, hashes={"a.json": "0" * 64}))


@pytest.fixture(scope="module")
def hostile_page() -> str:
    return render_report(hostile_model(), RunHistory(records=LOG))


@pytest.mark.parametrize("which", ["plain", "hostile"])
def test_nothing_is_loaded_and_nothing_runs(which: str, plain_page: tuple[Model, str], hostile_page: str) -> None:
    text = plain_page[1] if which == "plain" else hostile_page
    page = Page(text)
    assert not {"script", "link", "iframe", "object", "embed", "base", "form"} & set(page.tags)
    links = [value for _, name, value in page.attributes if name in ("src", "href", "xlink:href", "srcset")]
    assert links and all(link.startswith(("#", "data:image/png")) for link in links)
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert not re.findall(r"url\((?!#|&quot;#|'#)", text) and "@import" not in text
    policy = [value for _, name, value in page.attributes if name == "content" and "default-src" in value]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    assert text.isprintable() or not re.search("[\u202e\u2028\x00]", text)


def test_hostile_labels_are_shown_as_text(hostile_page: str) -> None:
    page = Page(hostile_page)
    shown = "".join(page.text)
    assert HOSTILE[0] in shown and HOSTILE[1] in shown and "${title}&amp;" in shown and "\\u{202e}txt" in shown
    assert "img" not in page.tags and page.tags.count("title") <= 1 + page.tags.count("svg")
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))


def test_it_says_what_the_model_says(plain_page: tuple[Model, str]) -> None:
    model, text = plain_page
    shown = " ".join(Page(text).text)
    result = model.evaluate("test")
    assert f"{result.mrr:.3f}" in shown and f"{result.hits_at_10:.0%}" in shown
    assert model.data.content_hash in shown and MEANING["tail"] in shown
    assert all(f"{mrr:.3f}" in shown for mrr in model.validation.values())
    strongest = model.data.entities[int(model.learned.entities.argmax())]
    assert strongest in shown and "0" * 64 in shown and "kgem 9" in shown
    for chapter in ("predictions", "quality", "calibration", "strengths", "learning", "graph", "repeat"):
        assert f'href="#{chapter}"' in text and f'id="{chapter}"' in text
    assert to_toml(model.config).splitlines()[-1].split("=")[0] in shown


def test_it_explains_the_phases_that_there_were(plain_page: tuple[Model, str]) -> None:
    model, distilled = plain_page[0], [{**record, "phase": "distil"} for record in LOG]
    assert "Distillation" not in render_learning(model, RunHistory(records=LOG))
    assert "Distillation fits one model" in render_learning(model, RunHistory(records=distilled))


def test_example_questions_are_held_out_facts_and_the_answers_listed_are_not_told(
    plain_page: tuple[Model, str],
) -> None:
    model = plain_page[0]
    facts = set(model.data.frame("test").iter_rows())
    asked = list(draw_examples(model, "test", "point"))
    assert 0 < len(asked) <= 8
    for example in asked:
        head, relation, _ = example.prediction.query
        assert (head, relation, example.tail) in facts
        assert all(answer.known in (None, "test") for answer in example.answers)
        if example.rank == 1:
            others = [a.label for a in example.answers if a.known == "test" and a.label != example.tail]
            assert example.tail in [a.label for a in example.answers[: 1 + len(others)]]


def test_every_fact_has_its_reasons(plain_page: tuple[Model, str], hostile_page: str) -> None:
    model, text = plain_page
    proposed, examples = model.missing_facts(10), list(draw_examples(model, "test", "point"))
    facts = [(each.head, each.relation, each.tail) for each in proposed]
    facts += [fact for example in examples for fact in example.facts]
    assert text.count("<summary>why?</summary>") == len(facts) > 20
    reasons = find_reasons(model, facts, "point")
    judged = Judge.learn(model.mode_scorer("point"), seed=0)
    for fact, each in zip(proposed, map(reasons.__getitem__, facts), strict=False):
        assert each.like == fact.like and each.against == fact.against and each.chance is None
        assert all(render_reasons(each) in text for _ in each.like[:1])
    assert judged is not None
    told = find_reasons(replace(model, learned_judge=judged), facts, "point")
    for fact, judgement in zip(told, judge_facts(judged, model.mode_scorer("point"), list(told)), strict=True):
        wanted = (judgement.chance, judgement.rank_tail, judgement.rank_head)
        assert (told[fact].chance, told[fact].rank_tail, told[fact].rank_head) == pytest.approx(wanted)
    assert "<summary>why?</summary>" in hostile_page and not find_reasons(model, [], "point")


def test_a_graph_without_test_or_validation_facts_has_a_report_too() -> None:
    whole = random_model().data
    for valid in (whole.valid, whole.valid[:0]):
        data = Dataset("g", whole.entities, whole.relations, whole.train, valid, whole.test[:0])
        text = render_report(random_model(data, validation={}, temperatures={}, provenance={}))
        assert 'id="curves-' not in text and f"filtered, {'valid' if len(valid) else 'train'}" in text


def test_what_the_run_folder_tells(tmp_path: Path) -> None:
    model = random_model(dtype="float32")
    run = tmp_path / "run"
    run.mkdir()
    (run / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in LOG))
    (run / "config.toml").write_text("seed = 77\n")
    model.save(run / "model")
    history = read_history(run)
    assert list(history.records) == LOG and history.config == "seed = 77\n"
    assert history.versions and "torch" in history.versions and history.hashes and "model.json" in history.hashes
    (run / "graph").mkdir()
    (run / "graph" / "manifest.json").write_text('{"kind": "kgem-run"}')
    assert default_target(run) == run / "report.html" == default_target(run / "model")
    assert write_report(run) == run / "report.html" and "seed = 77" in (run / "report.html").read_text("utf-8")
    (run / "log.jsonl").write_text("nonsense\n")
    with pytest.raises(ArtifactError, match="run"):
        read_history(run)
    model.save(tmp_path / "alone")
    assert find_run(tmp_path / "alone") is None and read_history(tmp_path / "alone").records == []
    assert default_target(tmp_path / "alone") == tmp_path / "alone-report.html"
    with pytest.raises(InputError, match=r"report\.pdf"):
        check_target(tmp_path / "report.pdf")


def test_small_numbers_are_not_nothing() -> None:
    assert [percent(x) for x in (1.0, 0.4567, 0.0123, 1e-5)] == ["100%", "46%", "1.2%", "< 0.1%"]
    assert esc("a<b>\u200f'\"") == "a&lt;b&gt;\\u{200f}&#x27;&quot;"


def test_the_address_of_a_named_symbol_is_small_beside_its_name() -> None:
    assert breakable("France (wd:Q142)") == "France <small>(wd:<wbr>Q142)</small>"
    assert breakable("A <b> (http://a.b/c)") == "A &lt;b&gt; <small>(http://<wbr>a.<wbr>b/<wbr>c)</small>"


@pytest.mark.parametrize("label", ["Zone 3 (Europe)", "(wd:Q142)", "a (b: c)", "a (1990:1995)"])
def test_what_is_in_brackets_else_is_a_part_of_the_name(label: str) -> None:
    assert "<small>" not in breakable(label)
