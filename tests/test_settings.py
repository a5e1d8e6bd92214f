"""Settings as text: TOML there and back, overrides, durations, recipes, and the page of the docs."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tools.settings_page import settings_page

from kgem.config import RECIPES, Config, paper_recipe
from kgem.errors import ConfigError
from kgem.runs.configure import configure
from kgem.settings import differences, parse_duration, parse_override, read_toml, to_toml

PAGE = Path(__file__).parents[1] / "docs" / "settings.md"


@pytest.mark.parametrize("overrides", [{}, paper_recipe(), {"em.half_life": None, "seed": 7, "run.threads": 2}])
def test_toml_has_every_setting_and_reads_back_the_same(overrides: dict[str, Any]) -> None:
    config = configure(None, overrides)
    content = tomllib.loads(to_toml(config))
    assert Config.model_validate(content) == config
    dumped = config.model_dump()
    assert content.keys() == dumped.keys()
    assert all(
        content[name].keys() == dumped[name].keys()
        for name in ("model", "pretrain", "em", "retrain", "companions", "distil", "run")
    )


def test_none_is_no_value_where_there_may_be_none() -> None:
    assert configure(None, {"em.half_life": "none"}).em.half_life is None
    with pytest.raises(ValidationError):
        Config.model_validate({"em": {"patience": "none"}})


def test_settings_that_contradict_each_other_are_refused_in_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"^dtype float64 asks for more digits"):
        configure(None, {"dtype": "float64", "run.products": "bfloat16"})


@pytest.mark.parametrize(
    ("name", "value", "said", "remedy"),
    [
        ("model.dim", True, "model.dim = True: neither true nor false", "whole number at least 1"),
        ("em.beta", False, "em.beta = False: neither true nor false", "number above 0, at most 1 or `none`"),
        ("em.beta", 2.0, "em.beta = 2.0", "number above 0, at most 1 or `none`"),
        ("em.m_step", "exactly", "em.m_step = 'exactly'", "`sample`, `exact`, `gradient`"),
        ("pretrain.candidates", [1.0, -1.0], "pretrain.candidates.1 = -1.0", "numbers length at least 1"),
        ("em", 3, "em = 3", r"docs/settings\.md"),
    ],
)
def test_wrong_values_are_refused_with_the_right_ones(name: str, value: Any, said: str, remedy: str) -> None:
    with pytest.raises(ConfigError, match=f"(?s)^{re.escape(said)}.*{remedy}"):
        configure(None, {name: value})


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("em.beta=0.3", "em.beta", 0.3),
        (" seed = 7 ", "seed", 7),
        ("model.reciprocal=false", "model.reciprocal", False),
        ("model.score=distmult", "model.score", "distmult"),
        ('model.score="distmult"', "model.score", "distmult"),
        ("retrain.candidates=[[1.0, 0.0]]", "retrain.candidates", [[1.0, 0.0]]),
        ("em.half_life=none", "em.half_life", "none"),
        ("device=cuda:0", "device", "cuda:0"),
    ],
)
def test_overrides(text: str, name: str, value: Any) -> None:
    assert parse_override(text) == (name, value)


@pytest.mark.parametrize("text", ["", "em.beta", "=3", "em.beta="])
def test_what_sets_nothing_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="does not set anything"):
        parse_override(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("20m", 1200), ("1h30m", 5400), ("2 h", 7200), ("1.5min", 90), ("1d", 86400)]
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "20", "m", "20x", "-5m", "5m later", "0s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_duration(text)


def test_files_that_are_no_settings(tmp_path: Path) -> None:
    (tmp_path / "bad.toml").write_text("[em\nbeta")
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    for name, told in (("bad.toml", "is not TOML"), ("bytes.toml", "is not TOML"), ("no.toml", "no such file")):
        with pytest.raises(ConfigError, match=told) as error:
            read_toml(tmp_path / name)
        assert error.value.where == str(tmp_path / name) and error.value.remedy
    with pytest.raises(ConfigError, match="cannot be read"):
        read_toml(tmp_path)


def test_differences_are_named() -> None:
    assert differences(Config(), Config()) == []
    assert differences(Config(), configure(None, {"seed": 1, "em.beta": 0.9})) == ["seed", "em.beta"]


def test_the_papers_recipe() -> None:
    config = configure(None, RECIPES["paper"]())
    assert config.em.beta == 1 and config.em.e_epochs == 50 and config.em.initial_strengths == "pretrain"
    assert config.em.patience > config.em.e_epochs and config.em.epochs > config.em.e_epochs
    assert config.retrain.candidates == ((1.0, 0.0),) and config.retrain.start == "warm"
    assert {config.pretrain.averaging, config.em.averaging, config.retrain.averaging} == {0.0}
    assert config.distil.epochs == config.n_companions == 0  # the paper has three phases
    assert configure(None, RECIPES["default"]()) == Config()


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == settings_page(), "run: python tools/settings_page.py"


def test_the_page_names_every_setting() -> None:
    page = settings_page()
    for name, value in Config().model_dump().items():
        for setting in value if isinstance(value, dict) else [name]:
            assert f"| `{setting}` |" in page
