"""On an object store, requests are few, and those that need not wait for each other run at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import deltasql
from tests.s3 import new_bucket, options_for, requests_to, running_s3

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import Catalog

pytestmark = pytest.mark.one_database

ROWS = pa.table({"id": [1, 2], "p": ["a", "b"]})


@pytest.fixture(scope="module")
def slow_server() -> Iterator[str]:
    """Yield the address of a server that answers after 50 ms."""
    with running_s3(delay_ms=50) as address:
        yield address


@pytest.fixture
def catalog(slow_server: str, tmp_path: Path) -> Iterator[Catalog]:
    """A catalog whose tables are on the server."""
    with deltasql.connect(
        f"deltasql://sqlite/{tmp_path}/c.db?mirror=off",
        create=True,
        table={"data_root": f"{new_bucket(slow_server)}/lake"},
        storage={"options": options_for(slow_server)},
    ) as opened:
        yield opened


def test_append_sends_one_request_for_each_file(slow_server: str, catalog: Catalog) -> None:
    catalog.create_table("t", ROWS.schema)
    table = f"{str(catalog.uri).replace('mirror=off', 'mirror=sync')}&table=t"
    sent = []
    for _ in range(4):
        requests_to(slow_server)
        deltasql.write_deltalake(
            table, ROWS, mode="append", storage_options=options_for(slow_server)
        )
        sent.append(requests_to(slow_server))
    # The first append also looks at the log. The others write the rows, the commit, the checksum.
    assert sent[1:] == [{"PUT": 3, "at once": 1}] * 3


def test_files_of_partitions_are_uploaded_at_once(slow_server: str, catalog: Catalog) -> None:
    rows = pa.table({"id": range(8), "p": [str(number) for number in range(8)]})
    catalog.create_table("t", rows.schema, partition_by=["p"])
    requests_to(slow_server)
    with catalog.begin() as tx:
        tx.write("t", rows)
    sent = requests_to(slow_server)
    assert sent["PUT"] == 8
    assert sent["at once"] >= 4


def test_waiting_versions_are_published_in_order_with_their_checksums(
    slow_server: str, catalog: Catalog
) -> None:
    catalog.create_table("t", ROWS.schema)
    catalog.mirror.publish("t")
    for _ in range(12):
        with catalog.begin() as tx:
            tx.write("t", ROWS)
    requests_to(slow_server)
    assert catalog.mirror.publish("t") == 12
    # A version is published while the checksum of the version before it is written.
    assert requests_to(slow_server)["at once"] == 2
    (report,) = catalog.mirror.verify("t", versions="all")
    assert report.ok, report.summary()
