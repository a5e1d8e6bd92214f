"""Results as tables of other programs, as HTML for notebooks, and as a line of text."""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import kgem
from kgem.answer.judgement import JudgedFacts, Judgement, Judgements
from kgem.answer.missing import ScoredFact, ScoredFacts
from kgem.tables import SHOWN, Bar, draw_table, format_number
from small_models import random_model

EVIL = "<script>alert('1')</script>"
FACTS = [(EVIL, 'r"<b>', f"e{i % 7}") for i in range(7)] + [(f"e{i}", "s", f"e{(i * 3 + 1) % 7}") for i in range(7)]


class Tags(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        assert not self.open, f"not closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        assert {name for name, _ in attrs} <= {"style"}
        self.tags.add(tag)
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def model() -> kgem.Model:
    splits = {"train": FACTS[:-2], "valid": FACTS[-2:-1], "test": FACTS[-1:]}
    return random_model(kgem.Dataset.load(splits, name=EVIL), metrics={"test": {"overall": {"mrr": 0.25}}})


def results(model: kgem.Model) -> dict[str, Any]:
    facts = [ScoredFact(*fact, 0.2, 0.5, "tail", None, 0.7, (f"against {EVIL}",), (FACTS[1],)) for fact in FACTS]
    judged = Judgement(*FACTS[0], chance=0.3, against=(EVIL,))
    unknown = Judgement(*FACTS[1], note=f"no entity {EVIL}")
    return {
        "model": model,
        "dataset": model.data,
        "prediction": model.predict(head=EVIL, relation="s"),
        "predictions": model.predict_many([kgem.Query(EVIL, "s"), kgem.Query(None, "s", "e1")], top=2),
        "evaluation": model.evaluate("test"),
        "strengths": model.strengths,
        "values": model.strengths.entities,
        "proposals": ScoredFacts(facts),
        "doubtful": model.doubtful_facts(top=3),
        "similar": model.similar("e1"),
        "found": model.find("script"),
        "judged": JudgedFacts([judged, unknown]),
        "judgements": Judgements(iter([judged, unknown])),
    }


def test_html_is_safe_whatever_labels_hold(model: kgem.Model) -> None:
    for name, result in results(model).items():
        page = Tags(result._repr_html_())
        assert page.tags <= {"div", "b", "small", "table", "thead", "tbody", "tr", "th", "td"}, name
        if name not in ("evaluation", "doubtful", "judgements"):
            assert EVIL in page.text, name
        assert "0x" not in repr(result) and "\n" not in repr(result) and len(repr(result)) < 300, repr(result)


def test_what_is_a_table_is_one_of_polars_and_of_pandas(model: kgem.Model) -> None:
    sizes = {
        "prediction": 8,
        "predictions": 4,
        "doubtful": 3,
        "proposals": 14,
        "similar": 7,
        "judged": 2,
        "judgements": 2,
        "dataset": 14,
    }
    for name, result in results(model).items():
        if name == "model":
            continue
        frame = result.to_polars()
        assert isinstance(frame, pl.DataFrame) and len(frame) == sizes.get(name, len(frame))
        table = result.to_pandas()
        assert isinstance(table, pd.DataFrame) and list(table.columns) == frame.columns
        for column in frame.columns:
            assert [None if x is None else x for x in frame[column].to_list()] == plain(table[column]), column
    prediction = results(model)["prediction"]
    assert prediction.to_polars()["tail"].to_list() == [answer.label for answer in prediction]
    assert prediction.to_pandas()["probability"].dtype == np.float64
    assert set(model.strengths.to_polars()["kind"]) == {"entity", "relation", "reciprocal"}
    evaluation = model.evaluate("test")
    first = evaluation.to_polars().row(0, named=True)
    assert (first["by"], first["mrr"]) == ("all", evaluation.mrr) and first["n"] == 2


def plain(column: pd.Series[Any]) -> list[Any]:
    return [None if x is pd.NA or x is None or x != x else x for x in column.tolist()]


def test_no_rows_are_a_table_with_the_same_columns() -> None:
    some = ScoredFacts([ScoredFact("a", "r", "b", 0.5, None, "tail", None)])
    none = ScoredFacts()
    assert none.to_polars().schema == some.to_polars().schema and len(none.to_pandas()) == 0
    assert "0 facts" in none._repr_html_() and repr(none) == "<0 facts>"
    assert repr(some) == "<1 fact: <ScoredFact a r b: probability 0.5>>"


def test_without_pandas_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(kgem.KgemError, match=r"pandas is not installed\n.*pip install pandas.*to_polars"):
        ScoredFacts().to_pandas()


def test_a_notebook_shows_the_first_rows_and_how_many_there_are() -> None:
    page = draw_table("t", ["n"], ([i] for i in range(1000)), total=1000)
    assert page.count("<tr>") == SHOWN + 1 and "980 more" in page
    judged = Judgements(iter([Judgement("a", "r", str(i), 0.5) for i in range(50)]))
    assert judged._repr_html_() == judged._repr_html_()
    assert [j.tail for j in judged] == [str(i) for i in range(50)], "what was shown is still given out"


def test_judgements_make_the_same_table_however_often_they_are_asked_for_it() -> None:
    judged = Judgements(iter([Judgement("a", "r", str(i), 0.5) for i in range(50)]))
    assert next(judged).tail == "0"
    assert judged.to_polars()["tail"].to_list() == [str(i) for i in range(1, 50)]
    assert len(judged.to_pandas()) == len(judged.to_list()) == len(judged.to_polars()) == 49
    assert "30 more" not in judged._repr_html_() and "29 more" in judged._repr_html_()
    assert list(judged) == [], "each is given out once"


def test_columns_that_are_empty_are_not_shown_and_numbers_stand_below_their_heading() -> None:
    page = draw_table("t", ["name", "note", "share"], [["a", None, 0.5], ["b", "", 12.0]])
    assert "note" not in page and page.count("<th ") == 2
    assert '<th style="padding:1px 8px;text-align:right;border:0">share</th>' in page
    assert "0.500" in page and "12.0" in page
    assert "note" in draw_table("t", ["note"], [])


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.5, "0.500"), (100.0, "100"), (1234.5, "1,234"), (0.00042, "0.000420"), (0.0, "0.00"), (float("inf"), "inf")],
)
def test_numbers_have_three_digits_that_count(value: float, text: str) -> None:
    assert format_number(value) == text


@pytest.mark.parametrize(
    ("bar", "widths"),
    [
        (Bar(0.5), [60]),
        (Bar(0.25, 0.0, 0.5, full=0.5), [60, 120]),
        (Bar(7.0), [120]),
        (Bar(-1.0), [0]),
        (Bar(None), []),
        (Bar(float("nan")), []),
    ],
)
def test_bars_are_as_long_as_their_numbers(bar: Bar, widths: list[int]) -> None:
    assert [int(n) for n in re.findall(r"left:\d+px;width:(\d+)px", bar.draw())] == widths


def test_plain_texts_are_short(model: kgem.Model) -> None:
    shown = {name: repr(result) for name, result in results(model).items()}
    assert re.fullmatch(r"<Evaluation MRR 0\.\d{4}, Hits@10 [01]\.\d{4}, 2 questions>", shown["evaluation"])
    assert shown["prediction"].startswith(f"<Prediction {EVIL} s ?: ") and shown["prediction"].endswith(", ...>")
    assert (
        repr(model.find("script")) == f"<1 symbol: <Found entity {EVIL}>>" and repr(model.find("zz")) == "<0 symbols>"
    )
    assert repr(model.similar("e1", top=1)).startswith("<1 similar entity: ")
    assert shown["judgements"].startswith("<Judgements, as they come")
    assert re.match(
        r"<SymbolStrengths: strengths of 8 entities, \S+ to \S+; strengths of 2 relations", shown["strengths"]
    )
