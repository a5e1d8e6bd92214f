"""Finding symbols of a model by a part of their label or name."""

from __future__ import annotations

import pytest

from kgem.answer.find import find_symbols
from kgem.data.dataset import Dataset
from kgem.data.names import Names
from kgem.errors import InputError
from small_models import random_model

FACTS = [("numpy", "needs", "blas"), ("scipy", "needs", "python3-numpy"), ("q1", "needs", "python3-numpy")]
DATA = Dataset.load([*FACTS, ("blas", "is needed by", "numpy-core")]).with_names(Names({"q1": "Numpy for all"}))


def test_symbols_are_found_by_label_and_name_the_most_frequent_first() -> None:
    found = find_symbols(DATA, "NUMPY")
    assert [each.label for each in found] == ["numpy", "python3-numpy", "numpy-core", "q1"]  # numpy: just so
    assert (found[1].kind, found[1].frequency, found[1].name) == ("entity", 2, None)
    assert found[3].name == "Numpy for all" and found.totals == {"entity": 4, "relation": 0}


def test_no_more_are_listed_than_wanted_but_all_are_counted() -> None:
    found = find_symbols(DATA, "n", top=1)
    assert [(each.kind, each.label) for each in found] == [("entity", "python3-numpy"), ("relation", "needs")]
    assert found.totals == {"entity": 4, "relation": 2} and not found.near


def test_what_is_not_there_has_neighbours() -> None:
    found = find_symbols(DATA, "nunpy")
    assert not found and "numpy" in found.near
    assert found.to_polars().columns == ["kind", "label", "name", "frequency"]


def test_a_model_finds_symbols_of_its_graph() -> None:
    model = random_model()
    assert [each.label for each in model.find("E1")] == [each.label for each in find_symbols(model.data, "e1")]
    with pytest.raises(InputError, match="at least one"):
        model.find("e", top=0)
