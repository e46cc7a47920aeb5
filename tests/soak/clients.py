"""Writers and readers that run random operations until the time is over."""

from __future__ import annotations

import random
import re
import time
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa

from tests.soak.ledger import LINES, SCHEMAS, SHELVES, SKUS, TABLES, amounts, contradictions

if TYPE_CHECKING:
    from deltasql import Catalog
    from deltasql.api.transaction.transaction import MultiTableTransaction
    from tests.soak.record import Operation, Recorder

SOME = 5
"""The minimum number of operations of a client, on any machine."""
_MOST_LISTINGS = 20
# Messages of deltalake about a missing version before a later one.
_GAP = re.compile(
    r"found gap: .*?(\d{20})\.json.*? -> .*?(\d{20})\.json"
    r"|Gap between checkpoint version (\d+) and next commit (\d+)"
    r"|CRC file version (\d+) is newer than log segment version (\d+)",
    re.DOTALL,
)


class InconsistentReadError(AssertionError):
    """A reader saw a state that no snapshot can have."""


def write(catalog: Catalog, recorder: Recorder, number: int, seed: str, end: float) -> None:
    """Order, correct, cancel and take from stock."""
    rng = random.Random(f"{seed}-{recorder.client}")
    orders: list[int] = []  # existing orders whose commit was acknowledged
    for seq in count():
        if seq >= SOME and time.monotonic() > end:
            return
        kind = rng.choices(("order", "correct", "cancel", "take", "restock"), (60, 10, 8, 12, 10))[
            0
        ]
        if not orders:
            kind = "order"
        which = seq if kind == "order" else rng.choice(orders)
        with recorder.operation(kind) as done, catalog.begin() as tx:
            done.txn_id, done.details = tx.txn_id, [kind, number, which]
            _STEPS[kind](tx, done, rng, number, which)
            done.committed = tx.commit()
        if done.outcome == "done" and kind == "order":
            orders.append(seq)
        elif done.outcome != "refused" and kind == "cancel":
            orders.remove(which)


def _order(
    tx: MultiTableTransaction, done: Operation, rng: random.Random, writer: int, seq: int
) -> None:
    costs = amounts(writer, seq)
    lines = {"writer": [writer] * LINES, "seq": [seq] * LINES, "line": range(LINES)}
    tx.write("orders", pa.table({**lines, "amount": costs}, schema=SCHEMAS["orders"]))
    paid = {"writer": [writer], "seq": [seq], "amount": [sum(costs)]}
    tx.write("payments", pa.table(paid, schema=SCHEMAS["payments"]))


def _correct(
    tx: MultiTableTransaction, done: Operation, rng: random.Random, writer: int, seq: int
) -> None:
    _record_versions(tx, done, "orders", "payments")
    own = f"writer = {writer} AND seq = {seq}"
    tx.update("orders", {"amount": "amount + 1"}, predicate=f"{own} AND line = 0")
    tx.update("payments", {"amount": "amount + 1"}, predicate=own)


def _cancel(
    tx: MultiTableTransaction, done: Operation, rng: random.Random, writer: int, seq: int
) -> None:
    _record_versions(tx, done, "orders", "payments")
    own = f"writer = {writer} AND seq = {seq}"
    tx.delete("orders", own)
    tx.delete("payments", own)


def _take(
    tx: MultiTableTransaction, done: Operation, rng: random.Random, writer: int, seq: int
) -> None:
    _record_versions(tx, done, "stock")
    sku = rng.randrange(SKUS)
    which = f"shelf = {sku % SHELVES} AND sku = {sku}"
    tx.update("stock", {"left": '"left" - 1'}, predicate=which)
    _move(tx, writer, [sku], 1)


def _restock(
    tx: MultiTableTransaction, done: Operation, rng: random.Random, writer: int, seq: int
) -> None:
    _record_versions(tx, done, "stock")
    shelf = rng.randrange(SHELVES)
    skus = [sku for sku in range(SKUS) if sku % SHELVES == shelf][:3]
    more = pa.table({"sku": skus, "more": [2] * len(skus)})
    on = f"t.shelf = {shelf} AND t.sku = s.sku"
    merging = tx.merge("stock", more, predicate=on, source_alias="s", target_alias="t")
    merging.when_matched_update({"left": 't."left" + s.more'}).execute()
    _move(tx, writer, skus, -2)


def _move(tx: MultiTableTransaction, writer: int, skus: list[int], taken: int) -> None:
    moved = {"writer": [writer] * len(skus), "sku": skus, "taken": [taken] * len(skus)}
    tx.write("moves", pa.table(moved, schema=SCHEMAS["moves"]))


_STEPS = {
    "order": _order,
    "correct": _correct,
    "cancel": _cancel,
    "take": _take,
    "restock": _restock,
}


def read(catalog: Catalog, recorder: Recorder, number: int, seed: str, end: float) -> None:
    """Sum up all tables in one snapshot, look up one order, or read a table with deltalake."""
    rng = random.Random(f"{seed}-{recorder.client}")
    for step in count():
        if step >= SOME and time.monotonic() > end:
            return
        kind = ("sums", "look-up", "outside")[step % 3]
        with recorder.operation(kind) as done:
            partial(_READS[kind], catalog, done, rng)()


def _sums(catalog: Catalog, done: Operation, rng: random.Random) -> None:
    with catalog.begin() as tx:
        rows = {}
        for name in rng.sample(TABLES, len(TABLES)):
            _record_versions(tx, done, name)
            rows[name] = tx.read(name)
            reported = tx.snapshot(name).totals().num_records
            if rows[name].num_rows != reported:
                raise InconsistentReadError(
                    f"{name}: {rows[name].num_rows} rows, the log has {reported}"
                )
        if found := contradictions(rows):
            raise InconsistentReadError(f"{found} at {done.versions}")


def _look_up(catalog: Catalog, done: Operation, rng: random.Random) -> None:
    with catalog.begin() as tx:
        own = f"writer = {rng.randrange(16)} AND seq = {rng.randrange(1000)}"
        _record_versions(tx, done, "orders", "payments")
        lines = tx.read("orders", predicate=own)
        paid = tx.read("payments", predicate=own)
        if lines.num_rows != LINES * paid.num_rows or paid.num_rows > 1:
            raise InconsistentReadError(f"{own}: {lines.num_rows} lines, {paid.num_rows} payments")


def _outside(catalog: Catalog, done: Operation, rng: random.Random) -> None:
    """Read the published log with a library that does not use SQL."""
    name = rng.choice(TABLES)
    try:
        table = _opened(catalog.table(name).location, done)
        done.versions[name] = table.version()
        rows = table.to_pyarrow_table().num_rows
    except (FileNotFoundError, InconsistentReadError):
        raise
    except Exception as error:  # any error by which deltalake reports a missing file
        raise OSError(f"deltalake: {error}") from error
    reported = pa.table(table.get_add_actions(flatten=True))["num_records"].to_pylist()
    if rows != sum(reported):
        raise InconsistentReadError(
            f"{name} at {table.version()}: {rows} rows, its log has {sum(reported)}"
        )


def _opened(location: str, done: Operation) -> deltalake.DeltaTable:
    """Open a published log; repeat a listing that missed a file.

    A folder that grows while it is listed may show a new file and miss an older one, on any disk
    and with any writer. The file that is reported as missing must exist.
    """
    while True:
        try:
            return deltalake.DeltaTable(location)
        except Exception as error:
            found = _GAP.search(str(error))
            if found is None or done.again >= _MOST_LISTINGS:
                raise
            first, last = sorted(int(each) for each in found.groups() if each)
            for version in range(first + 1, last + 1):
                if not Path(location, "_delta_log", f"{version:020d}.json").exists():
                    raise InconsistentReadError(
                        f"{location}: commit {version} is missing: {error}"
                    ) from error
            done.again += 1


_READS = {"sums": _sums, "look-up": _look_up, "outside": _outside}


def _record_versions(tx: MultiTableTransaction, done: Operation, *names: str) -> None:
    for name in names:
        done.versions[name] = tx.snapshot(name).version
