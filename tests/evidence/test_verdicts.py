"""What tables of evidence conclude: intervals, slopes and areas that say no more than they can."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from evidence.calibration import _foretold
from evidence.frequency import _fitted, frequency_table, select, slope_table


def strengths_document(*seeds: dict[str, Any], counts: Any = (1.0, 5.0, 50.0)) -> dict[str, Any]:
    """By frequency, as far as the tables look at it."""
    found = {"counts": list(counts), "learned": [1.0, 2.0, 3.0]}
    return {
        "graph": "tiny",
        "model": "complex",
        "dim": 4,
        "seeds": list(range(len(seeds))),
        "baseline": "conventional",
        "modes": ["point", "mean"][: len(seeds)],
        "bins": [
            {
                **{"bin": "1-9", "n": 9, "baseline": 0.3, "fit": 0.4, "point": 0.4, "mean": 0.35},
                **{"gain": 0.1, "low": 0.05, "high": 0.2, "of_all": 0},
            }
        ],
        "strengths": {"entities": found, "relations": found},
        "by_seed": [{"entities": seed, "relations": seed} for seed in seeds],
    }


def slope(value: float | None, error: float | None, rare: float = 0.8, frequent: float = 0.7) -> dict[str, Any]:
    return {
        "slope": value,
        "slope_error": error,
        "rare_under_regularised": rare,
        "frequent_over_regularised": frequent,
    }


def test_the_error_of_a_slope_is_that_of_many_repetitions() -> None:
    rng = np.random.default_rng(0)
    n = rng.integers(1, 200, size=60)
    found = [_fitted(np.exp(0.4 * np.log(n) + 0.5 * rng.standard_normal(60)), n, 0) for _ in range(400)]
    spread = float(np.std([each["slope"] for each in found]))
    assert np.mean([each["slope_error"] for each in found]) == pytest.approx(spread, rel=0.1)
    equal = _fitted(np.ones(5), np.full(5, 3), 0)
    assert equal["slope"] is None and equal["slope_error"] is None


@pytest.mark.parametrize(
    ("seeds", "told"),
    [
        ([slope(0.3, 0.05)], ["0.30", "0.05", "80%", "70%", "yes", "yes"]),
        ([slope(0.3, 0.16)], ["0.30", "0.16", "80%", "70%", "yes", "no"]),
        ([slope(0.95, 0.03)], ["0.95", "0.03", "80%", "70%", "no", "yes"]),
        ([slope(-0.3, 0.05)], ["-0.30", "0.05", "80%", "70%", "yes", "no"]),
        ([slope(0.3, 0.05, frequent=0.4)], ["0.30", "0.05", "80%", "40%", "no", "yes"]),
        ([slope(None, None)], ["", "", "80%", "70%", "", ""]),
        ([slope(0.3, 0.05), slope(None, None)], ["0.30", "0.05", "80%", "70%", "yes", "yes"]),
        ([slope(0.1, 0.03), slope(0.5, 0.03)], ["0.30", "0.20", "80%", "70%", "yes", "no"]),
    ],
)
def test_the_finding_of_the_paper_is_confirmed_only_beyond_the_error(seeds: list[Any], told: list[str]) -> None:
    for row in slope_table([strengths_document(*seeds)]).rows:
        assert row["seeds"] == str(len(seeds)) and list(row.values())[-6:] == told


def test_a_gain_of_one_seed_is_not_bold_and_the_baseline_has_its_name() -> None:
    one, two = strengths_document(slope(0.3, 0.1)), strengths_document(slope(0.3, 0.1), slope(0.3, 0.1))
    table = frequency_table([one, two | {"baseline": "search"}])
    assert [row["its gain"] for row in table.rows] == ["+0.100", "**+0.100**"]
    assert [row["shared strength by"] for row in table.rows] == [
        *("conventional, one given strength", "best shared strength of a search")
    ]
    assert [(row["seeds"], row["mode"]) for row in table.rows] == [("1", "point"), ("2", "point or mean")]
    assert [table.rows[0][name] for name in ("shared strength", "point", "mean of q")] == ["0.300", "0.400", "0.350"]
    assert "another seed" in table.note


def test_fits_of_other_settings_are_not_compared_together() -> None:
    def cell(variant: str, seed: int, beta: float | None = None) -> dict[str, Any]:
        config = {"em": {"beta": beta}}
        return {"graph": "a", "model": "complex", "dim": 4, "variant": variant, "seed": seed, "config": config}

    fits = [cell("em", 0, 0.3), cell("em", 1), cell("em", 2), cell("em", 3)]
    given = [cell("conventional", seed) for seed in range(3)]
    (found,) = select([*fits, *given])
    for cells, variant in {"fit": "em", "baseline": "conventional"}.items():
        assert [(each["seed"], each["variant"]) for each in found[cells]] == [(1, variant), (2, variant)]
    (found,) = select([*fits, *given, cell("search", 3)])
    assert [other["variant"] for other in found["baseline"]] == ["search"]
    assert not list(select(given))


@pytest.mark.parametrize(
    ("questions", "wrong", "told"), [(29, 10, False), (30, 4, False), (30, 26, False), (30, 5, True)]
)
def test_a_bin_with_few_questions_has_no_area(questions: int, wrong: int, told: bool) -> None:
    rng = np.random.default_rng(0)
    right = np.concatenate([np.zeros(wrong), np.ones(questions - wrong), rng.integers(2, size=100)])
    values = rng.random(len(right))
    signals = {name: values for name in ("confidence", "entropy", "reciprocal_rank")} | {"right": right}
    asked = np.concatenate([np.full(questions, 2), np.full(100, 500)])
    few, many = _foretold(signals, asked)["bins"]
    assert few["n"] == questions and (few["foretells"]["entropy"] is not None) == told
    assert many["foretells"]["entropy"] is not None
