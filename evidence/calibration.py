"""Does the model know when it does not know: calibration on test, and doubt against error.

Doubt is measured on the distribution over answers that ranks are made from: the other known answers are left out.
All measures have the temperature that the mode has for the question, as the probabilities that users are told.
`confidence` is the probability of the first answer; of the posterior, `spread` is the standard deviation of that
probability over samples, relative to its mean.
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
from kgem.evaluate.calibration import ece, measure, reliability, top_answers
from kgem.evaluate.metrics import frequency_bin, frequency_names
from kgem.report.figures.drawing import BLUE, FAINT, GREEN, ORANGE, PURPLE, empty_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 10_000  # questions that are asked; more say nothing new
SEED = 0  # of which ones
DRAWS = 200  # of outcomes, to tell what ECE is due to chance
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


def ece_by_chance(confidences: npt.ArrayLike, rng: np.random.Generator) -> tuple[float, float]:
    """The ECE of predictions (n,) that are right as often as they say, for so few of them: mean and 95 % quantile."""
    values = np.asarray(confidences, dtype=np.float64).ravel()
    drawn = (ece(reliability(values, rng.random(len(values)) < values)) for _ in range(DRAWS))
    found = np.fromiter(drawn, dtype=np.float64, count=DRAWS)
    return float(found.mean()), float(np.quantile(found, 0.95))


def measure_doubt(group: Group, load: Load) -> dict[str, Any]:
    """For each mode of a fit its calibration, and how well its doubt foretells its errors."""
    (cell,) = group["fit"]
    model = load(cell)
    data = model.data
    facts = data.reciprocal(data.test)
    if len(facts) > MOST:
        facts = facts[np.sort(np.random.default_rng(SEED).choice(len(facts), MOST, replace=False))]
    asked, modes = frequency_bin(data.entity_counts[facts[:, 0]]), {}
    for mode in MODES:
        temperatures = model.mode_scorer(mode).temperatures(facts)
        found = measure(model.scorer(mode), facts, data.filter_index, temperatures).to_dict()
        signals = doubt(model, facts, mode)
        right, by_chance = signals["right"], ece_by_chance(signals["confidence"], np.random.default_rng(SEED))
        bins = [(name, asked == i) for i, name in enumerate(frequency_names()) if (asked == i).any()]
        doubts = {name: -values if name == "confidence" else values for name, values in signals.items()}
        modes[mode] = {
            "calibration": {name: value for name, value in found.items() if name != "curve_pairs"},
            "ece_by_chance": {"mean": by_chance[0], "most": by_chance[1]},
            "right": float(right.mean()),
            "foretells": {name: area_under_roc(doubts[name], right < 1) for name in OF_DOUBT if name in doubts},
            "bins": [  # by how often the asked entity occurs
                {"bin": name, **{key: float(signals[key][here].mean()) for key in ("confidence", "right")}}
                for name, here in bins
            ],
        }
    return {"name": f"{stem(cell)}-{cell['seed']}", "seed": cell["seed"], "questions": len(facts), "modes": modes}


def doubt(model: Model, facts: npt.NDArray[Any], mode: str) -> Signals:
    """For each fact's question what the mode says of its doubt, and whether its first answer is right."""
    temperatures = model.mode_scorer(mode).temperatures(facts)
    confidence, right = top_answers(model.scorer(mode), facts, model.data.filter_index, temperatures, top=1)
    found = {"confidence": confidence[:, 0], "right": right[:, 0].astype(np.float64)}
    return found | ({"spread": _spread(model, facts, temperatures)} if mode == "bayes" else {})


@torch.no_grad()
def _spread(model: Model, facts: npt.NDArray[Any], temperatures: Floats) -> Floats:
    """Of the probability of the first answer over samples from the posterior, for each fact's question: (n,)."""
    size = max(1, BLOCK_CELLS // (model.data.n_entities * (model.n_samples + 2)))
    parts = []
    for start in range(0, len(facts), size):
        part = facts[start : start + size].astype(np.int64)
        own = torch.from_numpy(temperatures[start : start + size]).to(model.point.entities)[:, None]
        mask = np.zeros((len(part), model.data.n_entities), dtype=bool)  # the other known answers
        mask[known_cells(part, model.data.filter_index)] = True
        mask[np.arange(len(part)), part[:, 2]] = False
        first = _scores(model.scorer("bayes"), part, mask).argmax(1)
        sampled = torch.stack([_scores(TableScorer(sample), part, mask) for sample in model.samples])  # (S, b, N_e)
        shares = (sampled / own).softmax(2).gather(2, first.expand(len(sampled), -1)[:, :, None])[:, :, 0]
        parts.append(shares.std(0, correction=0) / shares.mean(0))
    return torch.cat(parts).double().numpy()


def _scores(scorer: Scorer, facts: npt.NDArray[Any], mask: npt.NDArray[np.bool_]) -> Tensor:
    """Scores (b, N_e) with the cells of the mask at -inf."""
    scores = scorer.like.new_empty(mask.shape)
    scorer.prepare(*torch.from_numpy(facts.T[:2].copy()))(0, scorer.n_entities, scores)
    return scores.masked_fill_(torch.from_numpy(mask), -torch.inf)


def area_under_roc(values: Floats, wrong: npt.NDArray[np.bool_]) -> float | None:
    """The probability that a wrong answer had the higher value than a right one, ties halved; None without both."""
    right = np.sort(values[~wrong])
    if not wrong.any() or not len(right):
        return None
    below, up_to = (np.searchsorted(right, values[wrong], side) for side in ("left", "right"))
    return float((below + up_to).mean() / (2 * len(right)))


def calibration_table(documents: Iterable[Document]) -> Table:
    """A row per fit and mode."""
    rows = []
    for document in documents:
        for mode, found in document["modes"].items():
            figures, chance = found["calibration"], found["ece_by_chance"]
            rows.append(
                {
                    "fit": about(document),
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
            "fit": about(document),
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
