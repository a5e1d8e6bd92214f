"""Why a fact of a report is credible or not: its ranks, the known facts most like it, what speaks against it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kgem.answer.features import Known, explain_against, nearest_facts, view_facts
from kgem.answer.model import Model
from kgem.report.formatting import percent
from kgem.report.html import breakable, details, esc

__all__ = ["Labels", "Reasons", "find_reasons", "render_reasons"]

Labels = tuple[str, str, str]


@dataclass(frozen=True)
class Reasons:
    """What there is to say about a fact, by the names of symbols."""

    chance: float | None  # that it is right rather than a plausible mistake; None without a judge of the mode
    rank_tail: int  # among the answers that are not known
    rank_head: int
    like: tuple[Labels, ...]
    against: tuple[str, ...]


def find_reasons(model: Model, facts: Iterable[Labels], mode: str) -> Mapping[Labels, Reasons]:
    """Reasons of each of these facts; all of them are looked at together."""
    wanted, data = list(dict.fromkeys(facts)), model.data
    if not wanted:
        return {}
    ids, scorer, known, judge = data.ids(wanted), model.mode_scorer(mode), Known.everything(data), model.learned_judge
    views = view_facts(scorer, ids, known)
    chances = judge.chances(scorer, ids).tolist() if judge is not None and judge.mode == mode else [None] * len(ids)
    return {
        fact: Reasons(
            chance=chances[i],
            rank_tail=int(views.better[i, 0]) + 1,
            rank_head=int(views.better[i, 1]) + 1,
            like=tuple(data.show(data.label(each)) for each in nearest_facts(scorer, known, ids[i])),
            against=tuple(explain_against(data, known, views, i)),
        )
        for i, fact in enumerate(wanted)
    }


def render_reasons(reasons: Reasons) -> str:
    """A word that unfolds them."""
    ranks = f"Rank {reasons.rank_tail:,} as tail and {reasons.rank_head:,} as head among what is not known."
    judged = "" if reasons.chance is None else f" Judged {esc(percent(reasons.chance))} credible."
    parts = [ranks + judged]
    parts += [f"Like {' · '.join(map(breakable, fact))}." for fact in reasons.like]
    parts += [f"Against it: {esc(sentence)}." for sentence in reasons.against]
    return details("why?", f"<small>{'<br>'.join(parts)}</small>", "why")
