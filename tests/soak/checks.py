"""The checks after all processes have stopped."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import deltalake

from tests.commit.support import _rows, audit
from tests.soak.ledger import LINES, TABLES, amounts, contradictions
from tests.soak.record import DONE, ERROR, REFUSED, UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from deltasql import Catalog
    from tests.soak.record import Operation


@dataclass(slots=True)
class CheckResult:
    """The problems, and the counts of what was checked."""

    problems: list[str]
    commits: int = 0
    versions: int = 0
    rows: int = 0
    intents: int = 0
    found: dict[str, int] = field(default_factory=dict)


def check_run(catalog: Catalog, operations: Sequence[Operation]) -> CheckResult:
    """Publish the rest, and compare the final state with the acknowledgements of the clients."""
    catalog.mirror.run(once=True)
    audit(catalog)
    rows = {name: _read(catalog, name) for name in TABLES}
    logs = {name: _log(catalog, name) for name in TABLES}
    result = CheckResult([f"{each.client}: {each.error}" for each in _of(operations, ERROR)])
    result.problems += contradictions(rows)
    result.problems += _acknowledged(operations, logs)
    result.problems += _orders(operations, logs, rows["orders"])
    result.problems += _outside(catalog, rows)
    for report in catalog.mirror.verify(data="rows"):
        if not report.ok:
            result.problems.append(f"verify of {report.table}: {report}")
    for name in TABLES:
        result.problems += [
            f"{name} has the unreferenced file {path}"
            for path in _unreferenced_files(catalog, name)
        ]
    result.commits = sum(1 for each in _of(operations, DONE) if each.committed)
    result.versions = sum(len(log) for log in logs.values())
    result.rows = sum(table.num_rows for table in rows.values())
    result.intents = len(_rows(catalog, "SELECT path FROM dl_staged_files"))
    return result


def _of(operations: Sequence[Operation], outcome: str) -> Iterator[Operation]:
    return (each for each in operations if each.outcome == outcome)


def _read(catalog: Catalog, name: str) -> pa.Table:
    with catalog.begin() as tx:
        return tx.read(name)


def _log(catalog: Catalog, name: str) -> dict[str, list[int]]:
    """Return the versions of every transaction, from the published files only."""
    found: dict[str, list[int]] = defaultdict(list)
    paths = (Path(catalog.table(name).location) / "_delta_log").glob("*[0-9].json")
    for path in paths:
        for line in path.read_text().splitlines():
            if info := json.loads(line).get("commitInfo"):
                found[info["txnId"]].append(int(path.stem))
    return found


def _acknowledged(
    operations: Sequence[Operation], logs: Mapping[str, Mapping[str, list[int]]]
) -> Iterator[str]:
    for each in operations:
        if each.txn_id is None:
            continue
        there = {name: log[each.txn_id] for name, log in logs.items() if each.txn_id in log}
        if any(len(versions) > 1 for versions in there.values()):
            yield f"{each.txn_id} is twice in {there}"
        reported = {name: [version] for name, version in each.committed.items()}
        if each.outcome == DONE and reported != there:
            yield f"{each.txn_id} got {reported} acknowledged, the log has {there}"
        if each.outcome == REFUSED and there:
            yield f"{each.txn_id} was refused and is in {there}"


def _orders(
    operations: Sequence[Operation], logs: Mapping[str, Mapping[str, list[int]]], rows: pa.Table
) -> Iterator[str]:
    """Only its writer changes an order, so the acknowledgements determine the expected rows."""
    expected: dict[tuple[int, int], list[int]] = {}
    for each in operations:
        happened = each.outcome == DONE or (
            each.outcome == UNKNOWN and each.txn_id in logs["orders"]
        )
        if not happened or each.txn_id is None:
            continue
        kind, writer, seq = each.details
        if kind == "order":
            expected[writer, seq] = amounts(writer, seq)
        elif kind == "cancel":
            del expected[writer, seq]
        elif kind == "correct":
            expected[writer, seq][0] += 1
    found: dict[tuple[int, int], list[int | None]] = defaultdict(lambda: [None] * LINES)
    for writer, seq, line, amount in zip(*(column.to_pylist() for column in rows), strict=True):
        found[writer, seq][line] = amount
    wrong = [key for key in expected.keys() | found.keys() if expected.get(key) != found.get(key)]
    if wrong:
        yield f"{len(wrong)} orders differ from those of their writers, such as {wrong[0]}"
    if rows.num_rows != LINES * len(found):
        yield f"{rows.num_rows} lines of {len(found)} orders"


def _outside(catalog: Catalog, rows: Mapping[str, pa.Table]) -> Iterator[str]:
    for name, ours in rows.items():
        theirs = deltalake.DeltaTable(catalog.table(name).location).to_pyarrow_table()
        order = [(column, "ascending") for column in ours.column_names]
        if theirs.select(ours.column_names).sort_by(order) != ours.sort_by(order):
            yield f"deltalake reads {name} otherwise: {theirs.num_rows} rows, not {ours.num_rows}"


def _unreferenced_files(catalog: Catalog, name: str) -> Iterator[str]:
    """Yield data files that are neither in the log nor have an intent."""
    root = Path(catalog.table(name).location)
    [(table_id,)] = _rows(catalog, f"SELECT table_id FROM dl_tables WHERE name = '{name}'")
    where = f"WHERE table_id = {table_id}"
    known = {row[0] for row in _rows(catalog, f"SELECT path FROM dl_add_files {where}")}
    known |= {row[0] for row in _rows(catalog, f"SELECT path FROM dl_staged_files {where}")}
    known = {unquote(path) for path in known}
    for path in root.rglob("*.parquet"):
        place = path.relative_to(root).as_posix()
        if not place.startswith("_delta_log/") and unquote(place) not in known:
            yield place
