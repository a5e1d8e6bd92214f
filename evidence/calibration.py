"""Does the model know when it does not know: calibration on test, and doubt against error.

Doubt is measured on the distribution over answers that ranks are made from: the other known answers are left out.
All measures have the mode's temperature, as the probabilities that users are told. `confidence` is the probability of
the first answer; of the posterior, `spread` is the standard deviation of that probability over samples, relative to
its mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from evidence.documents import Document, about, key_of, stem
from evidence.study import Group, Load, Study
from evidence.tables import Table, bold
from kgem.answer.model import Model
from kgem.answer.modes import MODES
from kgem.evaluate.blocks import Scorer, TableScorer, known_cells
from kgem.evaluate.calibration import ece_by_chance, measure
from kgem.evaluate.metrics import frequency_bin, frequency_names
from kgem.report.figures.drawing import BLUE, FAINT, GREEN, ORANGE, PURPLE, empty_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 10_000  # questions that are asked; more say nothing new
SEED = 0  # of which ones
BLOCK_CELLS = 2**20  # scores at a time
OF_DOUBT = ("confidence", "spread")
MODE_COLOURS = {"point": GREEN, "mean": ORANGE, "bayes": BLUE, "blend": PURPLE}
FEW = 10  # a share of fewer questions than this is no point of a curve

Floats = npt.NDArray[np.float64]
Signals = dict[str, Floats]  # one number per question


def select(cells: Sequence[Document]) -> Iterator[Group]:
    """Each fit."""
    for cell in sorted(cells, key=lambda cell: (key_of(cell), cell["seed"])):
        if cell["variant"] == "em":
            yield {"fit": [cell]}


def measure_doubt(group: Group, load: Load) -> dict[str, Any]:
    """For each mode of a fit its calibration, and how well its doubt foretells its errors."""
    (cell,) = group["fit"]
    model = load(cell)
    data = model.data
    facts = data.reciprocal(data.test)
    if len(facts) > MOST:
        facts = facts[np.sort(np.random.default_rng(SEED).choice(len(facts), MOST, replace=False))]
    modes = {}
    for mode in MODES:
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
    """For each fact's question what the mode says of its doubt, and whether its first answer is right."""
    scorer, temperature = model.scorer(mode), model.temperature(mode)
    samples = [TableScorer(sample) for sample in model.samples] if mode == "bayes" else []
    parts: list[dict[str, Tensor]] = []
    for block, targets, mask in _blocks(model, facts):
        scores = _scores(scorer, block, mask)
        own = scores.gather(1, targets[:, None])
        confidence, first = (scores / temperature).softmax(1).max(1)
        part = {"confidence": confidence, "right": (scores >= own).sum(1) == 1}  # the paper's rank: ties come first
        if samples:
            sampled = torch.stack([_scores(sample, block, mask) for sample in samples])  # (S, b, N_e)
            each = (sampled / temperature).softmax(2)
            first_answer = each.gather(2, first.expand(len(samples), -1)[:, :, None])[:, :, 0]  # (S, b)
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


def _foretold(signals: Signals, asked: npt.NDArray[Any]) -> dict[str, Any]:
    """How far doubt goes with error; by how often the asked entity occurs, how far confidence goes with success."""
    doubts = {"confidence": -signals["confidence"]} | {key: signals[key] for key in ("spread",) if key in signals}
    return {
        "right": float(signals["right"].mean()),
        "foretells": {name: area_under_roc(values, signals["right"] < 1) for name, values in doubts.items()},
        "bins": [
            {
                "bin": name,
                "n": int(here.sum()),
                **{key: float(signals[key][here].mean()) for key in ("confidence", "right")},
            }
            for name, here in ((name, frequency_bin(asked) == i) for i, name in enumerate(frequency_names()))
            if here.any()
        ],
    }


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
        "where ours is no higher than theirs is in 95 of 100 draws. The last two columns: the probability that a "
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


def by_frequency(documents: Iterable[Document], mode: str = "bayes") -> Table:
    """What first answers are worth by how often the asked entity occurs in training."""
    rows = [
        {
            "fit": f"{about(document)}, seed {document['seed']}",
            "training facts of the asked entity": each["bin"],
            "first answers right": f"{each['right']:.1%}",
            "mean confidence": f"{each['confidence']:.1%}",
        }
        for document in documents
        for each in document["modes"][mode]["bins"]
    ]
    return Table("By the asked entity", rows, 2)


def _area(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def calibration_figure(document: Document) -> Figure:
    """Reliability of the first answer in each mode; shares of few questions are left out."""
    with style():
        figure = empty_figure(5.4, 4.6)
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
        for mode, found in document["modes"].items():
            curve = found["calibration"]["curve"]
            bins = zip(curve["confidence"], curve["accuracy"], curve["counts"], strict=True)
            x, y = np.array([(x, y) for x, y, n in bins if n >= FEW]).reshape(-1, 2).T
            axes.plot(x, y, "o-", color=MODE_COLOURS[mode], markersize=3.5, clip_on=False, label=mode)
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability of the first answer", ylabel="share that is right")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=4)
        return figure


CALIBRATION = Study(
    name="calibration",
    folder="calibration",
    kind="kgem-calibration",
    asks="Can the probabilities be trusted, and does the posterior know when it does not know?",
    needs="fit",
    variants=("em",),
    select=select,
    measure=measure_doubt,
    tables=(calibration_table,),
    draw=calibration_figure,
    shows="share of first answers that are right, by their probability",
)
