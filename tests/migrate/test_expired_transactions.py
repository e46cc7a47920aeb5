"""Application transactions that expire with time are never reported as a difference.

With `delta.setTransactionRetentionDuration`, a checkpoint may omit them, and deltalake hides them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

from deltasql import SetTransaction
from deltasql.model.clock import now_ms
from tests.migrate.handwritten import PROTOCOL, HandwrittenTable, column, metadata
from tests.mirror.support import forget_commits_below, open_mirrored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri
    from deltasql.verify.report import VerifyReport

pytestmark = pytest.mark.two_databases

DAY_MS = 86_400_000
RETENTION = {"delta.setTransactionRetentionDuration": "interval 1 day"}
ROWS = pa.table({"id": pa.array([1], pa.int64())})


@pytest.fixture
def lake(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(catalog_uri, tmp_path / "lake") as opened:
        yield opened


def txn(app_id: str, version: int, updated_ms: int | None) -> dict[str, Any]:
    body = {"appId": app_id, "version": version, "lastUpdated": updated_ms}
    return {"txn": {key: value for key, value in body.items() if value is not None}}


def write_log(folder: Path) -> HandwrittenTable:
    """Write a log whose application `old` expired a day ago."""
    made, now = HandwrittenTable(folder), now_ms()
    made.commit(PROTOCOL, metadata(column("id"), configuration=RETENTION))
    made.commit(txn("old", 1, now - 2 * DAY_MS), made.add("a.parquet", ROWS))
    made.commit(txn("young", 5, now), txn("timeless", 7, None), made.add("b.parquet", ROWS))
    return made


def verified(catalog: Catalog) -> VerifyReport:
    (report,) = catalog.mirror.verify("t", versions="all")
    assert report.ok, report.summary()
    return report


def test_deltalake_hides_expired_transactions(tmp_path: Path) -> None:
    """If this fails, the tests below prove nothing."""
    table = deltalake.DeltaTable(write_log(tmp_path / "t").path)
    found = {name: table.transaction_version(name) for name in ("old", "young", "timeless")}
    assert found == {"old": None, "young": 5, "timeless": 7}


def test_log_with_expired_transactions_can_be_followed_and_cut_over(
    lake: Catalog, tmp_path: Path
) -> None:
    made = write_log(tmp_path / "t")
    lake.follow(made.path, name="t")
    verified(lake)
    made.commit(txn("old", 2, now_ms() - 2 * DAY_MS))
    lake.follow(made.path, name="t")
    lake.cutover("t")
    with lake.begin() as tx:
        tx.write("t", ROWS)
    verified(lake)
    assert lake.rollback("t").table == "t"


def test_log_that_starts_with_a_checkpoint_is_imported(lake: Catalog, tmp_path: Path) -> None:
    """The checkpoint omits the transaction; a later commit adds an expired one."""
    made = write_log(tmp_path / "t")
    deltalake.DeltaTable(made.path).create_checkpoint()
    made.commit(txn("older", 1, now_ms() - 3 * DAY_MS))
    forget_commits_below(made.folder, 2)
    lake.import_table(made.path, name="t")
    verified(lake)


def test_table_of_deltasql_verifies_after_its_log_is_cleaned_up(
    lake: Catalog,
) -> None:
    lake.create_table("t", ROWS.schema, properties=RETENTION)
    with lake.begin() as tx:
        tx.stage_table("t", [SetTransaction("old", 1, now_ms() - 2 * DAY_MS)])
    verified(lake)
    lake.mirror.checkpoint("t")
    with lake.begin() as tx:
        tx.write("t", ROWS)
    forget_commits_below(Path(lake.table("t").location), 2)
    verified(lake)
    # the checkpoint was written when the shorter retention applied
    with lake.begin() as tx:
        tx.set_table_properties("t", {"delta.setTransactionRetentionDuration": "interval 30 days"})
    verified(lake)
    again = deltalake.DeltaTable(lake.table("t").location)
    assert again.transaction_version("old") is None


def test_verification_reports_a_different_transaction_version_in_sql(
    lake: Catalog, tmp_path: Path
) -> None:
    made = write_log(tmp_path / "t")
    lake.import_table(made.path, name="t")
    for app_id in ("young", "old"):
        with lake.store.change() as (session, _):
            session.script(f"UPDATE dl_txn_actions SET txn_version = 99 WHERE app_id = '{app_id}'")
        (report,) = lake.mirror.verify("t")
        found = {each.path for each in report.differences if each.kind == "transaction"}
        assert app_id in found
