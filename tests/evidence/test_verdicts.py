"""What tables of evidence conclude: intervals, slopes and areas that say no more than they can."""

from __future__ import annotations

from typing import Any

import pytest

from evidence.frequency import frequency_table, select, slope_table
from kgem.errors import InputError


def strengths_document(*slopes: float | None) -> dict[str, Any]:
    """By frequency, as far as the tables look at it."""
    return {
        "graph": "tiny",
        "model": "complex",
        "dim": 4,
        "seeds": list(range(len(slopes))),
        "baseline": "conventional",
        "bins": [
            {
                **{"bin": "1-9", "n": 9, "baseline": 0.3, "fit": 0.4},
                **{"gain": 0.1, "low": 0.05, "high": 0.2, "of_all": 0},
            }
        ],
        "by_seed": [{"entities": {"slope": slope}, "relations": {"slope": None}} for slope in slopes],
    }


@pytest.mark.parametrize(
    ("slopes", "told"),
    [([0.3], "0.30"), ([-0.001], "0.00"), ([None], ""), ([0.3, None], "0.30"), ([0.2, 0.4], "0.30 ± 0.14")],
)
def test_slopes_are_told_of_the_seeds_that_have_one(slopes: list[float | None], told: str) -> None:
    (row,) = slope_table([strengths_document(*slopes)]).rows
    assert row["seeds"] == str(len(slopes))
    assert (row["slope of entities"], row["slope of relations"]) == (told, "")


def test_a_gain_of_one_seed_is_not_bold_and_the_baseline_has_its_name() -> None:
    one, two = strengths_document(0.3), strengths_document(0.3, 0.3)
    table = frequency_table([one, two | {"baseline": "search"}])
    assert [row["its gain"] for row in table.rows] == ["+0.100", "**+0.100**"]
    assert [row["shared strength by"] for row in table.rows] == [
        *("conventional, one given strength", "best shared strength of a search")
    ]
    assert [row["seeds"] for row in table.rows] == ["1", "2"]
    assert [table.rows[0][name] for name in ("shared strength", "after EM")] == ["0.300", "0.400"]
    assert "another seed" in table.note


def cell(variant: str, seed: int, beta: float | None = None, facts: str = "a") -> dict[str, Any]:
    key = {"name": f"{variant}-{seed}", "graph": "a", "model": "complex", "dim": 4, "variant": variant, "seed": seed}
    return key | {"config": {"em": {"beta": beta}}, "facts": {"hash": facts}}


def test_fits_of_other_settings_are_not_compared_together() -> None:
    fits = [cell("em", 0, 0.3), cell("em", 1), cell("em", 2), cell("em", 3)]
    given = [cell("conventional", seed) for seed in range(3)]
    (found,) = select([*fits, *given])
    for cells, variant in {"fit": "em", "baseline": "conventional"}.items():
        assert [(each["seed"], each["variant"]) for each in found[cells]] == [(1, variant), (2, variant)]
    (found,) = select([*fits, *given, cell("search", 3)])
    assert [other["variant"] for other in found["baseline"]] == ["search"]
    assert not list(select(given))


def test_cells_of_other_facts_are_not_compared() -> None:
    with pytest.raises(InputError, match="em-0 and search-0 are of different facts"):
        select([cell("em", 0), cell("search", 0, facts="b")])
