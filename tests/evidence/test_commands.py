"""`python -m evidence` as a person uses it: cells are made once, kept, gone on with; wrong input ends with a remedy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kgem.cli.search import RANGE
from kgem.runs.run import Run
from kgem.train.search import STRENGTHS
from obvious import random_graph

Evidence = Callable[..., tuple[int, str, str]]
SHORT = ("pretrain.epochs=2", "em.epochs=1", "retrain.epochs=1", "retrain.trial_epochs=1", "pretrain.trial_epochs=1")
SHORT += ("distil.epochs=1",)
WORDS = ["--dim", "3", "--model", "complex", "--threads", "1"]
WORDS += [word for setting in SHORT for word in ("--set", setting)]
TRIALS = ["--trials", "2"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a small graph in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KGEM_DATA", raising=False)
    graph = random_graph()
    for split in ("train", "valid", "test"):
        (tmp_path / "tiny").mkdir(exist_ok=True)
        graph.frame(split).write_csv(tmp_path / "tiny" / f"{split}.tsv", separator="\t", include_header=False)
    return tmp_path


def test_cells_are_made_kept_and_put_into_tables(evidence: Evidence, here: Path) -> None:
    words = ["table1", "--data", "tiny", *WORDS, *TRIALS]
    code, out, err = evidence(*words, "--seeds", "0", "1", "--force")
    assert code == 0, err
    assert "cell 1 of 6 to make: tiny-complex-3-conventional-0" in err and "trial 2 of 2" in err
    assert "kgem, after EM" in out
    names = [f"tiny-complex-3-{variant}-{seed}" for variant in ("conventional", "em", "search") for seed in (0, 1)]
    assert sorted(path.name for path in (here / "results/table1").iterdir()) == [f"{name}.json" for name in names]
    assert sorted(path.name for path in (here / "runs/table1").iterdir()) == names
    one = json.loads((here / "results/table1/tiny-complex-3-em-1.json").read_text())
    assert (
        one["command"].startswith("python -m evidence table1 --data tiny --dim 3 ")
        and " --seeds 0 1 " in one["command"]
    )
    assert one["seed"] == one["config"]["seed"] == 1 and one["config"]["pretrain"]["epochs"] == 2
    code, again, err = evidence(*words, "--seeds", "0", "1")
    assert code == 0 and "cell" not in err and again == out
    code, out, err = evidence(*words, "--variants", "em", "--set", "em.beta=0.3")
    assert code == 0 and "other settings made it (em.beta)" in err
    assert "after EM" in out and "conventional" not in out, "only what was asked for is shown"


def test_a_stopped_command_goes_on_when_it_is_given_again(
    evidence: Evidence, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["table1", "--data", "tiny", *WORDS, *TRIALS, "--variants", "em"]
    with monkeypatch.context() as patch:
        patch.setattr("kgem.cli.watch.Stop.asked", property(lambda self: True, lambda self, value: None), raising=False)
        code, _, err = evidence(*words)
    assert code == 130 and "stopped and saved after 0 epochs\ngo on: give the same command again" in err
    assert not (here / "results").exists()
    with Run.open(here / "runs/table1/tiny-complex-3-em-0") as run:
        assert not run.records
    assert evidence(*words)[0] == 0
    stopped = json.loads((here / "results/table1/tiny-complex-3-em-0.json").read_text())
    assert evidence(*words, "--out", "other", "--results", "others")[0] == 0
    whole = json.loads((here / "others/table1/tiny-complex-3-em-0.json").read_text())
    assert stopped["metrics"] == whole["metrics"] and stopped["epochs"] == whole["epochs"]


@pytest.mark.parametrize("variant", ["em", "search"])
def test_a_stopped_command_that_makes_cells_anew_goes_on_without_force(
    variant: str, evidence: Evidence, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["table1", "--data", "tiny", *WORDS, *TRIALS, "--variants", variant, "--seeds", "0", "1"]
    assert evidence(*words)[0] == 0
    first, second = (here / f"results/table1/tiny-complex-3-{variant}-{seed}.json" for seed in (0, 1))
    first.write_text(first.read_text().replace('"mode": "', '"mode": "stale '))
    with monkeypatch.context() as patch:
        patch.setattr("kgem.cli.watch.Stop.asked", property(lambda self: True, lambda self, value: None), raising=False)
        code, _, err = evidence(*words, "--force")
    assert code == 130 and "stopped and saved after 0 epochs\ngo on: give the same command again without --force" in err
    assert not first.exists() and not second.exists(), "all of them are to be made anew"
    code, _, err = evidence(*words)
    assert code == 0, err
    assert "stale" not in first.read_text() and second.exists()
    assert evidence(*words, "--out", "whole", "--results", "wholes")[0] == 0
    stopped, whole = (json.loads(path.read_text()) for path in (first, here / "wholes/table1" / first.name))
    assert stopped["metrics"] == whole["metrics"] and stopped["epochs"] == whole["epochs"]


def test_a_cell_that_fails_does_not_stop_the_others(
    evidence: Evidence, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kgem.errors import Collapsed
    from kgem.train.phases import ThreePhases
    from kgem.train.point_estimate import EpochRecord

    def collapse(self: ThreePhases) -> Iterator[EpochRecord]:
        if self.config.em.epochs:
            raise Collapsed("q fell back to the prior", remedy="lower em.beta")
        yield from real(self)

    real = ThreePhases._retrain
    monkeypatch.setattr(ThreePhases, "_retrain", collapse)
    code, out, err = evidence("table1", "--data", "tiny", *WORDS, *TRIALS, "--variants", "em", "conventional")
    assert code == 1 and "conventional" in out and "after EM" not in out
    assert "q fell back to the prior" in err and "1 of 2 cells failed: tiny-complex-3-em-0" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--data", "nowhere"], "nowhere"),
        (["--data", "tiny", "--model", "nothing"], "nothing"),
        (["--data", "tiny", "--variants", "best"], "one of conventional, search, em"),
        (["--data", "tiny", "--seeds", "one"], "--seeds"),
        (["--data", "tiny", "--dim", "0"], "model.dim"),
        (["--data", "tiny", "--model", "complex", "distmult", "cp", "--dim", "3", "4"], "one for each"),
        (["--data", "tiny", "--set", "em.nothing=1"], "em.nothing"),
        (["--data", "tiny", "--seeds", "-1"], "seed"),
        (["--data", "tiny", "--trials", "0"], "trials"),
        (["--data", "tiny", "--strengths", "1", "0.1", "--dim", "2"], "0 < low <= high"),
        (["tiny"], "tiny"),
    ],
)
def test_wrong_input_ends_with_2_and_what_to_do(words: list[str], said: str, evidence: Evidence) -> None:
    code, out, err = evidence("table1", *words)
    assert code == 2 and not out
    assert said in err
    assert not Path("runs").exists(), "nothing was begun"


def test_the_command_line_and_the_engine_search_the_same_range() -> None:
    assert RANGE == STRENGTHS


def test_a_search_is_made_longer_but_not_with_other_settings(evidence: Evidence, here: Path) -> None:
    path = here / "results/table1/tiny-complex-3-search-0.json"

    def search(*words: str) -> tuple[int, str, dict[str, Any]]:
        told = evidence("table1", "--data", "tiny", *WORDS, *TRIALS, "--variants", "search", *words)
        return told[0], told[2], json.loads(path.read_text())

    short = search()[2]
    code, err, longer = search("--trials", "4")
    assert code == 0, err
    assert "trial 3 of 4" in err and "trial 2 of 4" not in err
    assert longer["trials"][:2] == short["trials"] and len(longer["trials"]) == 4
    assert longer["command"].endswith(" --trials 4")
    code, err, kept = search("--trials", "3", "--strengths", "0.1", "1")
    assert code == 0 and kept == longer
    assert "other settings made it (--strengths, --trials)" in err
    other = {("--strengths", "0.1", "1"): "--strengths", ("--set", "pretrain.patience=9"): "pretrain.patience"}
    for words, said in other.items():
        code, err, kept = search("--trials", "5", *words)
        assert code == 2 and kept == longer
        assert f"cannot be made longer: other settings made it ({said})" in err


def test_a_budget_is_shared_out_over_the_trials_of_a_search(evidence: Evidence, here: Path) -> None:
    words = ["table1", "--data", "tiny", *WORDS, "--variants", "search", "--trials", "3"]
    assert evidence(*words, "--set", "run.time_budget=1200.0")[0] == 0
    cell = json.loads((here / "results/table1/tiny-complex-3-search-0.json").read_text())
    assert cell["config"]["run"]["time_budget"] == 400.0 and cell["strengths"] == [0.001, 1.0] and cell["seed"] == 0


def test_a_path_with_a_space_is_one_graph(evidence: Evidence, here: Path) -> None:
    (here / "tiny").rename(here / "my graph")
    code, _, err = evidence("table1", "--data", "my graph", *WORDS, "--variants", "conventional", "em")
    assert code == 0, err
    cell = json.loads((here / "results/table1/my-graph-complex-3-em-0.json").read_text())
    assert "--data 'my graph' --dim" in cell["command"]
    assert evidence("calibration", "--data", "my graph")[0] == 0
    (here / "my graph").rename(here / "elsewhere")
    assert evidence("frequency", "--data", "my graph")[0] == 0
    assert evidence("table1", "--data", "elsewhere", *WORDS, "--variants", "conventional")[0] == 0
    for name, said in {"frequency": "there is no fit with a search", "calibration": "there is no fit"}.items():
        code, _, err = evidence(name, "--data", "my graph", "elsewhere")
        assert code == 2 and f"'elsewhere': {said}" in err


def test_search_frequency_calibration_and_page_from_the_same_cells(evidence: Evidence, here: Path) -> None:
    assert evidence("table1", "--data", "tiny", *WORDS, *TRIALS, "--variants", "em", "search")[0] == 0
    for name in ("search", "frequency", "calibration"):
        code, out, err = evidence(name, "--data", "tiny", "--seeds", "0")
        assert code == 0, err
        assert "tiny, ComplEx, K = 3" in out
        for words in (["--data", "tiny", "typo"], ["--model", "cp"], ["--seeds", "7"]):
            code, out, err = evidence(name, *words)
            assert code == 2 and not out and "there is no " in err and "table1 --variants em" in err
    made = json.loads((here / "results/search/tiny-complex-3.json").read_text())
    assert made["command"] == "python -m evidence search --data tiny --seeds 0"
    assert [each["cell"] for each in made["sources"]] == ["tiny-complex-3-search-0", "tiny-complex-3-em-0"]
    files = {str(path.relative_to(here / "results")) for path in (here / "results").glob("*/*")}
    assert {path for path in files if "table1" not in path} == {
        *("search/tiny-complex-3.json", "frequency/tiny-complex-3.json", "calibration/tiny-complex-3-0.json")
    }
    (here / "docs/images").mkdir(parents=True)
    (here / "docs/results.md.in").write_text("Ours.\n\n{{table doubt}}\n\n{{picture search tiny-complex-3}}\n")
    (here / "docs/images/results-old.svg").touch()
    (here / "docs/images/other.svg").touch()
    (here / "README.md").write_text("<!-- results begin -->\n<!-- results end -->\n")
    code, _, err = evidence("page", "--results", "typo")
    assert code == 2 and "no results in this folder" in err
    assert (here / "docs/images/results-old.svg").exists() and not (here / "docs/results.md").exists()
    code, _, err = evidence("page")
    assert code == 0, err
    assert (here / "README.md").read_text().startswith("<!-- results begin -->\n|")
    text = (here / "docs/results.md").read_text()
    assert text.startswith("Ours.") and "(images/results-search-tiny-complex-3.svg)" in text
    assert {path.name for path in (here / "docs/images").iterdir()} == {
        "other.svg",
        "results-search-tiny-complex-3.svg",
    }
    assert "tiny, ComplEx, K = 3" in (here / "docs/results/search.md").read_text()
    (here / "runs").rename(here / "moved")
    code, _, err = evidence("calibration")
    assert code == 2 and "runs/table1/tiny-complex-3-em-0: there is no such folder" in err


def test_two_models_beside_a_blend(evidence: Evidence, here: Path) -> None:
    table = ["table1", "--data", "tiny", *WORDS, "--variants"]
    assert evidence(*table, "em", "conventional")[0] == 0
    code, _, err = evidence("pairs")
    assert code == 2 and "no fit with two searches or two conventional models beside it" in err
    assert evidence(*table, "conventional", "--seeds", "1")[0] == 0
    code, out, err = evidence("pairs", "--data", "tiny")
    assert code == 0, err
    assert "conventional, one given strength | 2 | 1 |" in out
    assert err.strip() == "results/together/tiny-complex-3.json"
    command = json.loads((here / "results/together/tiny-complex-3.json").read_text())["command"]
    assert command == "python -m evidence pairs --data tiny"
    assert evidence(*command.split()[3:])[:2] == (0, out)


def test_a_fit_and_its_controls(evidence: Evidence, here: Path) -> None:
    making = ["table1", "--data", "tiny", *WORDS, "--variants", "em", "ordinary", "fresh", "warm"]
    assert evidence(*making, "--seeds", "0", "1")[0] == 0
    code, out, err = evidence("ablation")
    assert code == 0, err
    assert "| tiny, ComplEx, K = 3 | re-trained model alone | 2 |" in out
    document = json.loads((here / "results/apart/tiny-complex-3.json").read_text())
    arms: dict[str, dict[str, Any]] = {}
    for arm, variant in {"fit": "em", "ordinary": "ordinary", "fresh": "fresh", "warm": "warm"}.items():
        arms[arm] = json.loads((here / f"results/table1/tiny-complex-3-{variant}-1.json").read_text())
        kept, modes = document[arm][1], {"ordinary": ("point",), "fresh": ("blend",)}.get(arm, ("point", "blend"))
        assert kept["seed"] == 1 and set(kept) == {"seed", *modes}
        assert all(kept[mode]["test"]["mrr"] == arms[arm]["metrics"][mode]["test"]["mrr"] for mode in modes)
    assert len(document["sources"]) == 8
    (here / "results/table1/tiny-complex-3-em-0.json").unlink()
    made = (here / "results/apart/tiny-complex-3.json").read_text()
    assert evidence(*making, "--set", "em.initial_std=0.17", "--out", "runs/others")[0] == 0
    code, nothing, err = evidence("ablation", "--seeds", "0")
    assert code == 2 and "differ in em.initial_std" in err and "--force" in err
    assert not nothing and (here / "results/apart/tiny-complex-3.json").read_text() == made


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ablation"], "no graph: there is no fit with its three controls"),
        (["search", "--data", "nowhere"], "'nowhere': there is no search"),
        (["frequency"], "no graph: there is no fit with a search"),
        (["calibration", "--data", "tiny"], "'tiny': there is no fit"),
        (["pairs"], "no graph: there is no fit with two"),
        (["search", "--variants", "em"], "--variants"),
        (["page"], "results.md.in"),
    ],
)
def test_evidence_that_cannot_be_had(words: list[str], said: str, evidence: Evidence) -> None:
    code, out, err = evidence(*words)
    assert code == 2 and not out
    assert said in err
