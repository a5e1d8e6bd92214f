"""Results as a Markdown table, with the claims beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.quality import TITLES as QUALITY_TITLES
from evidence.page import BEGIN, END, between_marks

__all__ = ["claims", "table", "write_into"]

TITLES = {
    "ours": "kgem",
    "rounded": "kgem, products in bfloat16",
    "pykeen": "PyKEEN, LCWA",
    "plain": "plain PyTorch loop over facts",
    "lean": "the same loop with one product instead of two",
    "floor": "three matrix products alone",
}
EPOCH_CLAIMS = {"fb15k-237": {"pykeen": 5.0, "plain": 9.0, "floor": 1.5}, "wn18rr": {"pykeen": 4.0}}
EVALUATION_CLAIM = 8.0
EM_CLAIM = 1.3
DATA_CLAIMS = {"fb15k": (2.0, 6.0), "ten million": (60.0, 6.0)}  # seconds and GB
SERVE_CLAIMS = {"fb15k-237": 50.0, "fb13": 200.0}  # milliseconds for an answer, K = 100
NEIGHBOURS_CLAIM = 4.5  # times as long as one alone, where 3 is a fair share
PROCESSES_CLAIM = 0.8  # of the speed of one process with two threads
MIB = 2**20
QUIET = 0.5  # load average of a machine that does nothing else


def claims(suites: dict[str, Any]) -> list[dict[str, Any]]:
    """What was promised, what was measured (ratios of medians), and whether that is enough."""
    return [
        {"claim": claim, "wanted": wanted, "measured": measured, "met": met}
        for claim, wanted, measured, met in _claims(suites)
    ]


def _claims(suites: dict[str, Any]) -> Iterator[tuple[str, str, str, bool]]:
    for graph, wanted in EPOCH_CLAIMS.items():
        ratios = suites.get("epoch", {}).get(graph, {}).get("ratios", {})
        for name, bound in wanted.items():
            if name in ratios:
                value = ratios[name]["median"]
                if name == "floor":
                    yield f"epoch, {graph}: time over the floor", f"at most {bound:g}", f"{value:.2f}", value <= bound
                else:
                    what = f"epoch, {graph}: times as fast as {TITLES[name]}"
                    yield what, f"at least {bound:g}", f"{value:.1f}", value >= bound
    if "em" in suites:
        ratio = suites["em"]["ratio"]["median"]
        what = f"a step of EM over one of a point estimate, {suites['em']['graph']['name']}"
        yield what, f"at most {EM_CLAIM:g}", f"{ratio:.2f}", ratio <= EM_CLAIM
    for graph, result in suites.get("neighbours", {}).items():
        ratio, lost = result["after"]["ratio"], result["alone_ratio"]
        what = f"{result['at_once']} fits at once, {graph}: time of each over one alone"
        yield what, f"at most {NEIGHBOURS_CLAIM:g}", f"{ratio:.1f}", ratio <= NEIGHBOURS_CLAIM
        yield f"one fit alone, {graph}: time over torch's threads", "at most 1.1", f"{lost:.2f}", lost <= 1.1
    for graph, result in suites.get("evaluation", {}).items():
        if "ratios" in result:
            value = result["ratios"]["pykeen"]["median"]
            what = f"evaluation, {graph}: times as fast as PyKEEN"
            yield what, f"at least {EVALUATION_CLAIM:g}", f"{value:.1f}", value >= EVALUATION_CLAIM
            apart = max(result["mrr_difference"].values())
            yield f"evaluation, {graph}: MRR from the same tables", "within 1e-4", f"{apart:.1e}", apart <= 1e-4
    for graph, result in suites.get("scale", {}).get("graphs", {}).items():
        if "biggraph" in result:
            ours, peer = result["ours"], result["biggraph"]
            ratio = ours["facts_per_second"] / peer["facts_per_second"]
            yield f"facts a second, {graph}: times PyTorch-BigGraph's", "at least 5", f"{ratio:.1f}", ratio >= 5
            ahead = ours["mrr"] - peer["mrr"]
            yield f"MRR after equal time, {graph}: less PyTorch-BigGraph's", "above 0", f"{ahead:+.4f}", ahead > 0
    if "scale" in suites:
        for what, ratio in suites["scale"]["growth"]["ratios"].items():
            told = f"an epoch of equal {what}, by entities: longest over shortest"
            yield told, "at most 1.5", f"{ratio:.2f}", ratio <= 1.5
    if "memory" in suites:
        peaks = {"epochs of FB15K": suites["memory"]["fit"]}
        if "whole_fit" in suites["memory"]:
            peaks["a whole fit of FB15K, all phases and files"] = suites["memory"]["whole_fit"]["peak_bytes"]
        for what, peak in peaks.items():
            yield f"peak memory, {what}, K = 100", "under 1536 MiB", f"{peak / MIB:.0f} MiB", peak / MIB < 1536
        for name, each in suites["memory"]["evaluation"].items():
            if each["extra_bytes"] is not None:
                extra = each["extra_bytes"]
                yield (
                    f"memory of an evaluation limited to {name}",
                    "within it",
                    f"{extra / MIB:.0f} MiB",
                    extra <= each["limit"],
                )
    for graph, each in suites.get("data", {}).items():
        large = each["text"]["facts"] > 9_000_000  # ten million, less what was drawn twice
        limits = DATA_CLAIMS.get("ten million" if large else graph)
        if limits:
            seconds, gigabytes = each["text"]["total_seconds"], each["text"]["peak_gigabytes"]
            met = seconds <= limits[0] and gigabytes <= limits[1]
            bounds = f"about {limits[0]:g} s, under {limits[1]:g} GB"
            yield f"{each['text']['facts']:,} facts to a graph", bounds, f"{seconds:.1f} s, {gigabytes:.1f} GB", met
    for name, result in suites.get("equal", {}).items():
        apart = result["relative_difference"]
        yield f"loss after one pass, {name}: relative difference", "within 1e-5", f"{apart:.1e}", apart <= 1e-5
    for name, result in suites.get("processes", {}).items():
        what = f"two processes, {name}: speed beside one with two threads"
        yield what, f"at least {PROCESSES_CLAIM:g}", f"{result['speed']:.2f}", result["speed"] >= PROCESSES_CLAIM
    for name, result in suites.get("serve", {}).items():
        yield from _serve_claims(name, result)


def _serve_claims(name: str, result: dict[str, Any]) -> Iterator[tuple[str, str, str, bool]]:
    bound, size = SERVE_CLAIMS[name], f"{result['entities']:,} entities"
    for kind, title in (("predict", "an answer"), ("bayes", "an answer in mode bayes")):
        p50 = result["alone"][kind]["p50"]
        yield f"explorer, {size}: {title}", f"under {bound:g} ms", f"{p50:.0f} ms", p50 < bound
    p50 = result["alone"]["typing"]["p50"]
    yield f"explorer, {size}: labels while typing", "under 10 ms", f"{p50:.1f} ms", p50 < 10
    together = result["together"]
    what = f"explorer, {size}: {together['clients']} clients at once, errors in {together['requests']:,} requests"
    yield what, "none", str(together["errors"]), together["errors"] == 0


def table(results: dict[str, Any]) -> str:
    """All of it, as Markdown."""
    suites = results["suites"]
    machine = results["machine"]
    lines = [
        f"{machine['processor']}, {results['threads']} threads, torch {results['versions'].get('torch', '?')}, "
        f"PyKEEN {results['versions'].get('pykeen', 'not here')}; kgem {results['versions']['kgem']}, "
        f"commit {results['versions']['commit']}; {results['when']}; "
        f"{'whole epochs' if results['mode'] == 'long' else 'some steps of each, scaled to the epoch'}.",
        *_busy(machine["load_before"]),
        "",
        *_claim_lines(results["claims"]),
        *_time_lines(suites),
        *_neighbour_lines(suites),
        *_quality_lines(suites),
        *_growth_lines(suites),
        *_scale_lines(suites),
        *_process_lines(suites),
        *_data_lines(suites),
        *_serve_lines(suites),
    ]
    for name, why in results["skipped"].items():
        lines += [f"Not measured: {name}: {why}", ""]
    return "\n".join(lines).rstrip() + "\n"


def _busy(load: float) -> Iterator[str]:
    if load > QUIET:
        yield f"The machine was busy with other work (load {load:.1f} before the start): do not trust these numbers."


def _claim_lines(rows: list[dict[str, Any]]) -> Iterator[str]:
    if rows:
        yield from ("| claim | wanted | measured | met |", "|---|---|---|---|")
        for row in rows:
            yield f"| {row['claim']} | {row['wanted']} | {row['measured']} | {'yes' if row['met'] else '**no**'} |"
        yield ""


def _time_lines(suites: dict[str, Any]) -> Iterator[str]:
    rows = [
        (suite, graph, name, result[name])
        for suite in ("epoch", "evaluation")
        for graph, result in suites.get(suite, {}).items()
        for name in TITLES
        if name in result
    ]
    if rows:
        yield "| what | graph | who | best, s | median, s | peak memory, MiB |"
        yield "|---|---|---|---:|---:|---:|"
        for suite, graph, name, each in rows:
            title = "PyKEEN" if (suite, name) == ("evaluation", "pykeen") else TITLES[name]
            peak = f"{each['peak_bytes'] / MIB:.0f}" if "peak_bytes" in each else ""
            yield f"| {suite} | {graph} | {title} | {each['best']:.2f} | {each['median']:.2f} | {peak} |"
        yield ""


def _neighbour_lines(suites: dict[str, Any]) -> Iterator[str]:
    if "neighbours" in suites:
        yield "| fits at once | graph | threads of each, alone | of three | one alone, s | each of three, s | ratio |"
        yield "|---|---|---:|---:|---:|---:|---:|"
        for graph, result in suites["neighbours"].items():
            for way, title in (("before", "torch's threads"), ("after", "as kgem chooses")):
                each = result[way]
                threads = " | ".join(", ".join(map(str, each["threads"][name])) for name in ("alone", "together"))
                times = f"{each['alone']:.1f} | {each['together']:.1f} | {each['ratio']:.1f}"
                yield f"| {title} | {graph}, K = {result['dim']} | {threads} | {times} |"
        yield ""


def _quality_lines(suites: dict[str, Any]) -> Iterator[str]:
    if "quality" in suites:
        result = suites["quality"]
        who = [name for name in QUALITY_TITLES if name in result]
        targets = list(result[who[0]]["until"])
        what = f"{result['facts']:,} validation facts of {result['graph']['name']}"
        yield f"Seconds of training until a filtered MRR on {what}:"
        yield ""
        yield f"| | {' | '.join(targets)} | best | of so many seconds |"
        yield f"|---|{'---:|' * (len(targets) + 2)}"
        for name in who:
            each = result[name]
            times = ["" if each["until"][t] is None else f"{each['until'][t]:,.0f}" for t in targets]
            best = "" if each["best"] is None else f"{each['best']:.3f}"
            last = f"{each['points'][-1][0]:,.0f}" if each["points"] else ""
            yield f"| {QUALITY_TITLES[name]} | {' | '.join(times)} | {best} | {last} |"
        yield ""


def _growth_lines(suites: dict[str, Any]) -> Iterator[str]:
    if "growth" in suites:
        slopes = ", ".join(f"{axis} {each['slope']:.2f}" for axis, each in suites["growth"]["axes"].items())
        yield f"Growth of an epoch's time, as the exponent of each size: {slopes} (1 is proportional)."
        yield ""


def _scale_lines(suites: dict[str, Any]) -> Iterator[str]:
    if "scale" in suites:
        found = suites["scale"]
        told = f"large graphs, K = {found['dim']}, {found['negatives']:,} negatives"
        yield f"| {told} | who | facts/s | seconds | MRR | MiB |"
        yield "|---|---|---:|---:|---:|---:|"
        for graph, result in found["graphs"].items():
            for name, title in (("ours", "kgem"), ("biggraph", "PyTorch-BigGraph")):
                if name in result:
                    each = result[name]
                    figures = f"{each['facts_per_second']:,.0f} | {each['seconds']:.0f} | {each['mrr']:.4f}"
                    yield f"| {graph} | {title} | {figures} | {each['peak_bytes'] / MIB:.0f} |"
        yield ""
        yield "| entities | facts | questions | seconds an epoch | of processor time | peak memory, MiB |"
        yield "|---:|---:|---:|---:|---:|---:|"
        for each in found["growth"]["points"]:
            sizes = f"{each['entities']:,} | {each['facts']:,} | {each['questions']:,}"
            times = f"{each['seconds']:.1f} | {each['processor_seconds']:.1f}"
            yield f"| {sizes} | {times} | {each['peak_bytes'] / MIB:.0f} |"
        yield ""


def _process_lines(suites: dict[str, Any]) -> Iterator[str]:
    if "processes" in suites:
        yield "| processes, one thread each | graph | collectives a step | bytes a step that each sends |"
        yield "|---:|---|---:|---:|"
        for name, result in suites["processes"].items():
            for each in result["traffic"]:
                case = f"{name}, K = {result['dim']}, {result['questions']} questions a step"
                yield f"| {each['processes']} | {case} | {each['collectives']:.0f} | {each['bytes']:,.0f} |"
        yield ""


def _data_lines(suites: dict[str, Any]) -> Iterator[str]:
    if "data" in suites:
        yield from (
            "| loading | facts | from text, s | from the cache, s | peak memory, GB |",
            "|---|---:|---:|---:|---:|",
        )
        for graph, each in suites["data"].items():
            text, cache = each["text"], each["cache"]
            times = f"{text['total_seconds']:.1f} | {cache['total_seconds']:.1f} | {text['peak_gigabytes']:.1f}"
            yield f"| {graph} | {text['facts']:,} | {times} |"
        yield ""


def _serve_lines(suites: dict[str, Any]) -> Iterator[str]:
    if "serve" in suites:
        yield "| explorer | entities | clients | requests/s | p50, ms | p99, ms |"
        yield "|---|---:|---:|---:|---:|---:|"
        for result in suites["serve"].values():
            size, together = f"{result['entities']:,}", result["together"]
            for kind, each in result["alone"].items():
                yield f"| {kind} | {size} | 1 | | {each['p50']:.1f} | {each['p99']:.1f} |"
            rate, p50, p99 = (f"{together[name]:.0f}" for name in ("requests_per_second", "p50", "p99"))
            yield f"| all, mixed | {size} | {together['clients']} | {rate} | {p50} | {p99} |"
        yield ""


def write_into(page: Path, text: str) -> None:
    """Replace what stands between the two marks of a page."""
    before = page.read_text()
    if END not in before.partition(BEGIN)[2]:
        raise ValueError(f"{page} has no place for results: put {BEGIN} and {END} where they belong")
    page.write_text(between_marks(before, text))
