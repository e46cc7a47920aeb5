"""Every reader reads the same rows of a table in an object store, at every version."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.conftest import new_catalog_uri
from tests.mirror.support import open_mirrored
from tests.oracles import fixed_set
from tests.oracles.deltasql_reader import own_log, own_rows
from tests.oracles.fixed_set import TABLES, Lake, checked_versions, table_and_reader
from tests.oracles.readers import stock_log
from tests.oracles.tables import many_commits
from tests.s3 import new_bucket, options_for

if TYPE_CHECKING:
    from collections.abc import Iterator

# Ten thousand requests show nothing that a hundred do not.
LOCAL = ("many_files",)
BUILDERS = {**TABLES, "many_commits": partial(many_commits, commits=65)}
EXCUSES = {
    **fixed_set.EXCUSES,
    ("partition_names", "polars"): (Exception, "polars looks for encoded names of columns"),
}
SMOKE = ("string_partitions", "primitives", "rewritten", "deletion_vectors")


@pytest.fixture(scope="module")
def s3_lake(s3_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A catalog in SQLite whose tables are in a bucket."""
    options = options_for(s3_server)
    for uri in new_catalog_uri("sqlite", tmp_path_factory.mktemp("s3")):
        place = f"{new_bucket(s3_server)}/lake"
        with open_mirrored(uri, place, storage={"options": options}) as catalog:
            yield Lake(catalog, options, BUILDERS)


@pytest.mark.parametrize(
    ("name", "reader"),
    table_and_reader(
        *("deltalake", "polars", "duckdb"),
        without=LOCAL,
        excuses=EXCUSES,
        smoke=SMOKE,
    ),
)
def test_reader_reads_the_rows_of_every_version(s3_lake: Lake, name: str, reader: str) -> None:
    for table in s3_lake.tables(name):
        for version in checked_versions(table)[-5:]:
            found = s3_lake.reader(reader).rows(s3_lake.place(table), version)
            assert found == table.states[version], f"{table.name} at version {version}"


@pytest.mark.parametrize(
    ("name", "reader"), table_and_reader("deltalake", without=LOCAL, smoke=SMOKE)
)
def test_deltalake_reads_the_state_of_every_version(s3_lake: Lake, name: str, reader: str) -> None:
    for table in s3_lake.tables(name):
        for version in checked_versions(table)[-5:]:
            assert own_rows(table.table, version) == table.states[version]
            expected = own_log(table.table, version)
            assert stock_log(s3_lake.place(table), version, expected.apps) == expected
