"""Follow, cutover and rollback of a log in a bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

import deltalake
import pytest

from tests.migrate.authority_support import NAME, open_catalog, ours, sql_ids, verify_all_versions
from tests.migrate.sources import rows

if TYPE_CHECKING:
    from pathlib import Path


def test_table_in_a_bucket_can_be_followed_cut_over_and_rolled_back(
    tmp_path: Path, s3_location: str, s3_options: dict[str, str]
) -> None:
    place = f"{s3_location}/{NAME}"

    def theirs(*ids: int) -> None:
        deltalake.write_deltalake(place, rows(*ids), mode="append", storage_options=s3_options)

    def read() -> list[int]:
        table = deltalake.DeltaTable(place, storage_options=s3_options)
        return sorted(table.to_pyarrow_table()["id"].to_pylist())

    theirs(1)
    settings = {"storage": {"options": s3_options}}
    with open_catalog(f"deltasql://sqlite/{tmp_path}/meta.db", **settings) as catalog:
        catalog.follow(place)
        theirs(2)
        assert catalog.follow(place).commits == 1
        theirs(3)
        assert catalog.cutover(NAME).version == 3
        with pytest.raises(deltalake.exceptions.CommitFailedError):
            theirs(99)
        ours(catalog, 4)
        assert sql_ids(catalog) == read() == [1, 2, 3, 4]
        assert verify_all_versions(catalog)
        assert catalog.rollback(NAME).version == 5
        theirs(5)
        assert read() == [1, 2, 3, 4, 5]
        assert catalog.follow(f"{place}/").state == "followed"
        assert sql_ids(catalog) == read()
