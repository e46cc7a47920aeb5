"""The report of a soak: figures as JSON, and as tables of a page."""

from __future__ import annotations

from collections import Counter
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from tests.soak.record import DONE, ERROR, OUTLIVED, REFUSED, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.soak.run import Sample, Soak

_WORK = ("order", "correct", "cancel", "take", "restock", "sums", "look-up", "outside")
_MAINTENANCE = ("optimize", "vacuum", "vacuum, full")
_MEANS = {
    "order": "20 rows and their payment, two tables",
    "correct": "two updates, two tables",
    "cancel": "two deletes, two tables",
    "take": "update and append, two tables",
    "restock": "merge and append, two tables",
    "sums": "all four tables at one point in time, added up",
    "look-up": "an order and its payment",
    "outside": "a whole table by stock deltalake",
    "optimize": "a table",
    "vacuum": "a table, from SQL",
    "vacuum, full": "a table, with a listing",
}


def figures(soak: Soak, **about: Any) -> dict[str, Any]:
    """Return all figures of the page in a form that JSON can represent."""
    lags = [each.details[0] for each in soak.operations if each.kind == "lag" and each.details]
    outcomes = Counter(each.outcome for each in soak.operations)
    errors = Counter(
        (each.error or "").split(":")[0] for each in soak.operations if each.outcome == ERROR
    )
    result = soak.result
    return {
        **about,
        "seconds": round(soak.seconds, 1),
        "commits": result.commits,
        "commits_per_s": round(result.commits / soak.seconds, 2),
        "versions": result.versions,
        "rows": result.rows,
        "intents": result.intents,
        "outcomes": {name: outcomes[name] for name in (DONE, REFUSED, UNKNOWN, OUTLIVED, ERROR)},
        "errors": dict(errors),
        "listed_again": sum(each.again for each in soak.operations),
        "problems": result.problems,
        "operations": {kind: _times(soak, kind) for kind in (*_WORK, *_MAINTENANCE)},
        "lag_s": {"p50": _round(_at(lags, 50)), "p99": _round(_at(lags, 99))},
        "processes": {role: _use(each) for role, each in soak.samples.items()},
    }


def _times(soak: Soak, kind: str) -> dict[str, Any]:
    these = [each for each in soak.operations if each.kind == kind]
    seconds = [each.seconds for each in these if each.outcome == DONE]
    return {
        "done": len(seconds),
        "refused": sum(each.outcome == REFUSED for each in these),
        "outlived": sum(each.outcome == OUTLIVED for each in these),
        "p50_ms": _round(1000 * _at(seconds, 50)),
        "p99_ms": _round(1000 * _at(seconds, 99)),
    }


def _at(values: Sequence[float], percent: int) -> float:
    if len(values) < 2:
        return values[0] if values else 0.0
    return quantiles(values, n=100, method="inclusive")[percent - 1]


def _round(value: float) -> float:
    return round(value, 1)


def _use(processes: Sequence[Sequence[Sample]]) -> dict[str, Any]:
    """Compare the resources of processes in the second fifth of their time with the last fifth."""
    early, late, most, descriptors = [], [], 0.0, [0, 0]
    for samples in processes:
        fifth = len(samples) // 5
        if not fifth:
            continue
        before, after = samples[fifth : 2 * fifth], samples[-fifth:]
        early.append(median(each.resident for each in before))
        late.append(median(each.resident for each in after))
        most = max(most, *(each.resident for each in samples))
        descriptors[0] = max(descriptors[0], *(each.descriptors for each in before))
        descriptors[1] = max(descriptors[1], *(each.descriptors for each in after))
    mega = 1_000_000
    return {
        "processes": len(processes),
        "early_mb": round(median(early) / mega) if early else None,
        "late_mb": round(median(late) / mega) if late else None,
        "most_mb": round(most / mega),
        "descriptors": descriptors,
    }


def tables(found: dict[str, Any]) -> str:
    """Return the section of the page about one database."""
    out = found["outcomes"]
    lines = [
        f"### {found['title']}",
        "",
        f"Seed `{found['seed']}`, {found['seconds'] / 60:.1f} minutes, "
        f"load average {found['load']}: "
        f"{found['commits']:,} commits by clients ({found['commits_per_s']:.1f} a second), "
        f"{found['versions']:,} versions of the four tables, {found['rows']:,} rows at the end.",
        "",
        f"{out[DONE]:,} operations succeeded, {out[REFUSED]:,} failed with a conflict, "
        f"{out[OUTLIVED]:,} reads lost a file to the vacuum, {out[UNKNOWN]:,} outcomes unknown, "
        f"**{out[ERROR]:,} errors**, **{len(found['problems'])} contradictions**, "
        f"{found['intents']:,} intents left over. "
        f"The mirror was {found['lag_s']['p50']} s behind (p50), {found['lag_s']['p99']} s (p99). "
        f"{found['listed_again']:,} reads by stock deltalake were repeated because its listing of "
        "the log lacked an existing file.",
        "",
        "| operation | what it does | succeeded | conflicts | p50 ms | p99 ms |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for kind, each in found["operations"].items():
        lines.append(
            f"| {kind} | {_MEANS[kind]} | {each['done']:,} | {each['refused']:,} | "
            f"{each['p50_ms']:,} | {each['p99_ms']:,} |"
        )
    lines += [
        "",
        "| processes | number | MB, early | MB, late | MB, peak | files open, early and late |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for role, each in found["processes"].items():
        early, late = each["descriptors"]
        lines.append(
            f"| {role} | {each['processes']} | {each['early_mb']} | {each['late_mb']} | "
            f"{each['most_mb']} | {early}, {late} |"
        )
    return "\n".join([*lines, ""])
