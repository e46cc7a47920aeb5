"""A blind append of one file takes a short path; it writes the same rows as the general path."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from tests.conftest import add_file

if TYPE_CHECKING:
    from deltasql.api.catalog.catalog import Catalog
    from deltasql.model.actions import AddFile


@pytest.mark.two_databases
@pytest.mark.parametrize("columns", [1, 64, 65, 5_000])
def test_single_file_append_keeps_statistics_of_all_columns(catalog: Catalog, columns: int) -> None:
    names = [f"c{number}" for number in range(columns)]
    schema = pa.schema([(name, pa.int64()) for name in names])
    properties = {"delta.dataSkippingNumIndexedCols": "-1"}
    catalog.create_table("wide", schema, properties=properties)

    def file(number: int) -> AddFile:
        bounds = dict.fromkeys(names, number)
        stats = {"numRecords": 1, "minValues": bounds, "maxValues": bounds}
        return add_file(f"{number}.parquet", stats=json.dumps(stats))

    for number in range(3):  # the first takes the general path
        with catalog.begin() as tx:
            tx.stage_table("wide", [file(number)])
    snapshot = catalog.table("wide").snapshot()
    for number in range(3):
        found = snapshot.scan(f"{names[-1]} = {number}").files
        assert [each.path for each in found] == [f"{number}.parquet"]
