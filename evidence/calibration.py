"""Does the model know when it does not know: calibration on test, and doubt against error.

Doubt is measured on the distribution over answers that ranks are made from: the other known answers are left out.
All measures have the mode's temperature, as the probabilities that users are told. `confidence` is the probability of
the first answer, `entropy` that of the distribution. Of the posterior, `information` is the part of the entropy that
comes from not knowing the vectors (the entropy of the averaged distribution less the average entropy), `spread` the
standard deviation of the first answer's probability over samples, relative to its mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evidence.documents import Document
from evidence.naming import about, key_of, stem
from evidence.pictures import calibration_figure
from evidence.study import Group, Load, OnMeasuring, Picture, Study
from evidence.tables import Table, bold
from kgem.answer.model import Model
from kgem.answer.modes import MODES
from kgem.evaluate.blocks import Scorer, TableScorer, known_cells
from kgem.evaluate.calibration import ece, measure, reliability
from kgem.evaluate.metrics import frequency_bin, frequency_names

MOST = 10_000  # questions that are asked; more say nothing new
SEED = 0  # of which ones
DRAWS = 200  # of outcomes, to tell what ECE is due to chance
BLOCK_CELLS = 2**20  # scores at a time
MEANS = {  # that are told of each bin
    "first answers right": ("right", ".1%"),
    "mean confidence": ("confidence", ".1%"),
    "mean information, nats": ("information", ".3f"),
    "mean spread": ("spread", ".2f"),
}
OF_DOUBT = ("confidence", "entropy", "information", "spread")
KEPT = (*OF_DOUBT, "right")  # means of each bin
FEWEST, FEWEST_OF_EACH = 30, 5  # questions, and of right and of wrong ones, that an area under the curve is told for

Floats = npt.NDArray[np.float64]
Signals = dict[str, Floats]  # one number per question


def select(cells: Sequence[Document]) -> Iterator[Group]:
    """Each fit."""
    for cell in sorted(cells, key=lambda cell: (key_of(cell), cell["seed"])):
        if cell["variant"] == "em":
            yield {"fit": [cell]}


def ece_by_chance(confidences: npt.ArrayLike, rng: np.random.Generator) -> tuple[float, float]:
    """The ECE of predictions (n,) that are right as often as they say, for so few of them: mean and 95 % quantile."""
    values = np.asarray(confidences, dtype=np.float64).ravel()
    drawn = (ece(reliability(values, rng.random(len(values)) < values)) for _ in range(DRAWS))
    found = np.fromiter(drawn, dtype=np.float64, count=DRAWS)
    return float(found.mean()), float(np.quantile(found, 0.95))


def measure_doubt(group: Group, load: Load, on_measuring: OnMeasuring) -> dict[str, Any]:
    """For each mode of a fit its calibration, and how well its doubt foretells its errors."""
    (cell,) = group["fit"]
    model = load(cell)
    data = model.data
    facts = data.reciprocal(data.test)
    if len(facts) > MOST:
        facts = facts[np.sort(np.random.default_rng(SEED).choice(len(facts), MOST, replace=False))]
    modes = {}
    for place, mode in enumerate(MODES):
        on_measuring(f"calibration, {mode}", place, len(MODES))
        found = measure(model.scorer(mode), facts, data.filter_index, model.temperature(mode)).to_dict()
        signals = doubt(model, facts, mode)
        by_chance = ece_by_chance(signals["confidence"], np.random.default_rng(SEED))
        modes[mode] = {
            "calibration": {name: value for name, value in found.items() if name != "curve_pairs"},
            "ece_by_chance": {"mean": by_chance[0], "most": by_chance[1]},
            **_foretold(signals, data.entity_counts[facts[:, 0]]),
        }
    return {
        "name": f"{stem(cell)}-{cell['seed']}",
        "seed": cell["seed"],
        "run": cell["run"],
        "cell": cell["name"],
        "questions": len(facts),
        "modes": modes,
    }


@torch.no_grad()
def doubt(model: Model, facts: npt.NDArray[Any], mode: str) -> Signals:
    """For each fact's question what the mode says of its doubt, whether its first answer is right, and 1 / rank."""
    scorer, temperature = model.scorer(mode), model.temperature(mode)
    samples = [TableScorer(sample) for sample in model.samples] if mode == "bayes" else []
    parts: list[dict[str, Tensor]] = []
    for block, targets, mask in _blocks(model, facts):
        scores = _scores(scorer, block, mask)
        own = scores.gather(1, targets[:, None])
        logs = (scores / temperature).log_softmax(1)
        confidence, first = logs.exp().max(1)
        part = {
            "confidence": confidence,
            "entropy": _entropy(logs),
            "reciprocal_rank": (scores >= own).sum(1).reciprocal(),  # the target itself counts once: the paper's rank
        }
        part["right"] = (part["reciprocal_rank"] == 1).to(part["entropy"].dtype)
        if samples:
            sampled = torch.stack([_scores(sample, block, mask) for sample in samples])  # (S, b, N_e)
            each = (sampled / temperature).log_softmax(2)
            mean = each.logsumexp(0) - np.log(len(samples))
            part["information"] = _entropy(mean) - _entropy(each).mean(0)
            first_answer = each.gather(2, first.expand(len(samples), -1)[:, :, None])[:, :, 0].exp()  # (S, b)
            part["spread"] = first_answer.std(0, correction=0) / first_answer.mean(0)
        parts.append(part)
    return {name: torch.cat([part[name] for part in parts]).double().cpu().numpy() for name in parts[0]}


def _blocks(model: Model, facts: npt.NDArray[Any]) -> Iterator[tuple[tuple[Tensor, Tensor], Tensor, Tensor]]:
    """Some facts at a time: heads and relations (b,), tails (b,), and which cells (b, N_e) are other known answers."""
    n, device = model.data.n_entities, model.point.entities.device
    size = max(1, BLOCK_CELLS // (n * (model.n_samples + 2)))
    for start in range(0, len(facts), size):
        part = facts[start : start + size].astype(np.int64)
        heads, relations, tails = (torch.from_numpy(column.copy()).to(device) for column in part.T)
        rows, known = known_cells(part, model.data.filter_index)
        mask = torch.zeros(len(part), n, dtype=torch.bool, device=device)
        mask[torch.from_numpy(rows).to(device), torch.from_numpy(known).to(device)] = True
        mask[torch.arange(len(part), device=device), tails] = False
        yield (heads, relations), tails, mask


def _scores(scorer: Scorer, block: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
    """Scores (b, N_e) with the other known answers at -inf."""
    scores = scorer.like.new_empty(mask.shape)
    scorer.prepare(*block)(0, scorer.n_entities, scores)
    return scores.masked_fill_(mask, -torch.inf)


def _entropy(logs: Tensor) -> Tensor:
    """In nats, of the distributions whose logarithms are in the last dimension."""
    return -(logs.exp() * logs).nan_to_num_(0.0).sum(-1)


def _foretold(signals: Signals, asked: npt.NDArray[Any]) -> dict[str, Any]:
    """How far doubt goes with error: over all questions, and by how often the asked entity occurs."""
    wrong = signals["right"] < 1
    doubts = {"confidence": -signals["confidence"]} | {
        name: signals[name] for name in ("entropy", "information", "spread") if name in signals
    }
    return {
        "right": float(signals["right"].mean()),
        "foretells": {name: area_under_roc(values, wrong) for name, values in doubts.items()},
        "bins": list(_by_asked(signals, doubts, frequency_bin(asked))),
    }


def _by_asked(signals: Signals, doubts: Mapping[str, Floats], place: npt.NDArray[Any]) -> Iterator[dict[str, Any]]:
    kept: list[str] = [name for name in KEPT if name in signals]
    for i, name in enumerate(frequency_names()):
        here = place == i
        if here.any():
            means: dict[str, float] = {key: float(signals[key][here].mean()) for key in kept}
            wrong = signals["right"][here] < 1
            enough = len(wrong) >= FEWEST and min(wrong.sum(), (~wrong).sum()) >= FEWEST_OF_EACH
            areas = {key: area_under_roc(values[here], wrong) for key, values in doubts.items()}
            foretells = areas if enough else dict.fromkeys(areas)
            yield {"bin": name, "n": int(here.sum()), **means, "foretells": foretells}


def area_under_roc(values: Floats, wrong: npt.NDArray[np.bool_]) -> float | None:
    """The probability that a wrong answer had the higher value than a right one, ties halved; None without both."""
    n_wrong = int(wrong.sum())
    n_right = len(wrong) - n_wrong
    if not n_wrong or not n_right:
        return None
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks = (ends - (counts - 1) / 2)[place]  # from 1, the mean of those that are equal
    return float((ranks[wrong].sum() - n_wrong * (n_wrong + 1) / 2) / (n_wrong * n_right))


def calibration_table(documents: Iterable[Document]) -> Table:
    """A row per fit and mode."""
    rows = []
    for document in documents:
        for mode, found in document["modes"].items():
            figures, chance = found["calibration"], found["ece_by_chance"]
            rows.append(
                {
                    "fit": f"{about(document)}, seed {document['seed']}",
                    "mode": mode,
                    "first answers right": f"{found['right']:.1%}",
                    "T": f"{figures['temperature']:.3g}",
                    "ECE, T = 1": f"{figures['ece_before']:.3f}",
                    "ECE": bold(f"{figures['ece']:.3f}", figures["ece"] <= chance["most"]),
                    "by chance": f"{chance['mean']:.3f}",
                    "log loss, T = 1": f"{figures['log_loss_before']:.3f}",
                    "log loss": f"{figures['log_loss']:.3f}",
                    **{key: _area(found["foretells"].get(key)) for key in OF_DOUBT},
                }
            )
    note = (
        f"T was fitted on validation, the rest is on test: on {MOST:,} questions of it, drawn once, where it has more. "
        "By chance: the ECE that probabilities which are just right would have on so many questions, on average; bold "
        "where ours is no higher than theirs is in 95 of 100 draws. The last four columns: the probability that a "
        "wrong first answer came with more doubt than a right one (area under the ROC curve; 0.5 is chance)."
    )
    return Table("Calibration", rows, 2, note)


def summary(documents: Sequence[Document]) -> Table:
    """Of each fit the blend, which most fits choose, and whether the posterior's spread knows more than confidence."""
    whole = {(row["fit"], row["mode"]): row for row in calibration_table(documents).rows}
    rows = [
        {name: row[name] for name in ("fit", "first answers right", "ECE, T = 1", "ECE", "by chance", "confidence")}
        | {"confidence of `bayes`": whole[fit, "bayes"]["confidence"], "its spread": whole[fit, "bayes"]["spread"]}
        for (fit, mode), row in whole.items()
        if mode == "blend"
    ]
    note = (
        "ECE: how far probabilities are from the share that is right, on average, before and after the temperature "
        "that validation gave; bold where chance alone could bring that. The last columns: how often a wrong first "
        "answer came with more doubt than a right one (0.5 is chance)."
    )
    return Table("Calibration", rows, 1, note)


def doubt_table(documents: Iterable[Document], mode: str = "bayes") -> Table:
    """Doubt of the posterior by how often the asked entity occurs in training."""
    rows = [
        {
            "fit": f"{about(document)}, seed {document['seed']}",
            "training facts of the asked entity": each["bin"],
            "questions": f"{each['n']:,}",
            **{name: f"{each[key]:{form}}" for name, (key, form) in MEANS.items()},
            **{key: _area(each["foretells"].get(key)) for key in OF_DOUBT},
        }
        for document in documents
        for each in document["modes"][mode]["bins"]
    ]
    note = (
        f"Mode {mode}, with its temperature: means of each bin, then how well each measure of doubt foretells errors "
        f"there, as above. None for fewer than {FEWEST} questions, or fewer than {FEWEST_OF_EACH} right or wrong."
    )
    return Table("Doubt by frequency", rows, 2, note)


def _area(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


CALIBRATION = Study(
    name="calibration",
    folder="calibration",
    kind="kgem-calibration",
    asks="Can the probabilities be trusted, and does the posterior know when it does not know?",
    needs="fit",
    variants=("em",),
    makes=False,
    select=select,
    measure=measure_doubt,
    tables=(calibration_table, doubt_table),
    pictures=(
        Picture(
            "calibration",
            ".svg",
            "share of first answers that are right, by their probability",
            calibration_figure,
        ),
    ),
)
