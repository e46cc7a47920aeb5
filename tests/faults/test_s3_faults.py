"""S3 fails, does not respond, is late or executes a request twice, at each request in turn."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

from deltasql.exceptions import TxnLogError
from tests.commit.support import audit
from tests.mirror.support import open_mirrored
from tests.s3 import options_for
from tests.selection import smoke
from tests.storage.flaky import Fault, FlakyServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

    Change = Callable[[Catalog], None]

EVERYTHING = bool(os.environ.get("DELTASQL_EVERYTHING"))
FAULTS: tuple[Fault, ...] = (
    "lose the response",
    "fail",
    "break",
    "be silent",
    "be late",
    "do it twice",
    "respond twice",
)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "v": pa.array([1] * len(ids), pa.int64())})


def append(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("t", rows(10))
        tx.write("u", rows(11))


def overwrite(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("t", rows(10, 11), mode="overwrite")


def merge(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        merger = tx.merge("t", rows(2, 3), "t.id = s.id", source_alias="s", target_alias="t")
        merger.when_matched_update({"v": "t.v + 1"}).when_not_matched_insert_all().execute()


CHANGES: tuple[Change, ...] = (append, overwrite, merge)


def open_on_s3(uri: DeltaSqlUri, location: str, address: str) -> Catalog:
    return open_mirrored(
        uri,
        location,
        mirror={"mode": "sync", "initial_backoff_s": 0},
        storage={"options": options_for(address), "timeout_s": 1, "retries": 4},
    )


@pytest.fixture
def flaky(s3_server: str) -> Iterator[FlakyServer]:
    with FlakyServer(s3_server) as server:
        yield server


@pytest.fixture
def direct(sqlite_uri: DeltaSqlUri, s3_server: str, s3_location: str) -> Iterator[Catalog]:
    """A catalog that uses the S3 server directly."""
    options = {"options": options_for(s3_server)}
    with open_mirrored(sqlite_uri, s3_location, storage=options) as catalog:
        yield catalog


def begin_again(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        for name in ("t", "u"):
            tx.write(name, rows(1, 2), mode="overwrite")


def contents(catalog: Catalog, address: str) -> dict[str, list[tuple[int, int]]]:
    """Return the rows of both tables; check that deltalake reads the same."""
    audit(catalog)
    catalog.mirror.run(once=True)
    found = {}
    with catalog.begin() as tx:
        for name in ("t", "u"):
            seen = tx.read(name)
            found[name] = sorted(zip(*(seen[c].to_pylist() for c in ("id", "v")), strict=True))
            place = catalog.table(name).location
            stock = deltalake.DeltaTable(place, storage_options=options_for(address))
            assert stock.version() == catalog.table(name).version()
            table = stock.to_pyarrow_table()
            in_log = zip(*(table[c].to_pylist() for c in ("id", "v")), strict=True)
            assert sorted(in_log) == found[name]
    return found


@pytest.mark.parametrize(
    "change",
    smoke(CHANGES, ["overwrite"], "more changes with the same requests", named=True),
    ids=lambda change: change.__name__,
)
def test_fault_at_any_s3_request_is_tolerated_or_raised(
    direct: Catalog, s3_location: str, s3_server: str, flaky: FlakyServer, change: Change
) -> None:
    begin_again(direct)
    before = contents(direct, s3_server)
    with open_on_s3(direct.uri, s3_location, flaky.address) as proxied:
        change(proxied)
    requests = len(flaky.requests)
    wanted = contents(direct, s3_server)
    assert wanted != before
    cases = [(number, fault) for number in range(requests) for fault in FAULTS]
    failed = 0
    # A step that is coprime to the number of faults: every fault occurs, at different requests.
    chosen = cases if EVERYTHING else cases[::11]
    for number, fault in chosen:
        for late in flaky.late:
            late.join()  # a request that is executed late must not affect the next case
        begin_again(direct)
        first = len(flaky.requests)
        with open_on_s3(direct.uri, s3_location, flaky.address) as proxied:
            flaky.faults_by_request = {len(flaky.requests) + number: fault}
            try:
                change(proxied)
            except TxnLogError:
                failed += 1
                assert contents(direct, s3_server) == before, f"{fault} at request {number}"
                continue
        for late in flaky.late:
            late.join()
        assert contents(direct, s3_server) == wanted, f"{fault} at request {number}"
        state = direct.mirror.status("t")[0]
        sent = flaky.requests[first:]
        assert state.state == "ACTIVE", f"{fault} at request {number}: {state}, {sent}"
    assert failed < len(chosen)  # some faults are handled by a retry
    print(f"{change.__name__}: {len(chosen)} faults, {requests} requests, {failed} errors")
