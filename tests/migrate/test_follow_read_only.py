"""A followed table can be read, but neither it nor its log can be changed through SQL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pytest

import deltasql
from deltasql.exceptions import (
    TableFollowsError,
)
from tests.each import check_each
from tests.migrate.authority_support import (
    NAME,
    everything_below,
    open_catalog,
    theirs,
)
from tests.migrate.sources import (
    HEAD,
    SCHEMA,
    read_ids,
    rows,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.one_database


@pytest.fixture
def catalog(catalog_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    settings = {"table": {"data_root": str(tmp_path / "lake")}}
    with open_catalog(catalog_uri, **settings) as opened:
        yield opened


def merge(catalog: Catalog) -> object:
    with catalog.begin() as tx:
        return (
            tx.merge(NAME, rows(4), predicate="t.id = s.id", source_alias="s", target_alias="t")
            .when_matched_delete()
            .execute()
        )


def in_one(act: Callable[[Any], object]) -> Callable[[Catalog], object]:
    def run(catalog: Catalog) -> None:
        with catalog.begin() as tx:
            act(tx)

    return run


WRITES: dict[str, Callable[[Catalog], object]] = {
    "append": in_one(lambda tx: tx.write(NAME, rows(9))),
    "overwrite": in_one(lambda tx: tx.write(NAME, rows(9), mode="overwrite")),
    "delete": in_one(lambda tx: tx.delete(NAME, "id = 4")),
    "update": in_one(lambda tx: tx.update(NAME, updates={"id": "1"})),
    "merge": merge,
    "optimize": lambda catalog: catalog.optimize(NAME),
    "vacuum": lambda catalog: catalog.vacuum(NAME, retention_hours=0, dry_run=False),
    "restore": in_one(lambda tx: tx.restore(NAME, 1)),
    "property": in_one(lambda tx: tx.set_table_properties(NAME, {"delta.appendOnly": "true"})),
    "actions": in_one(
        lambda tx: tx.stage_table(NAME, {"txn": {"appId": "etl", "version": 1}}, read_version=0)
    ),
    "checkpoint": lambda catalog: catalog.mirror.checkpoint(NAME),
    "clean_log": lambda catalog: catalog.mirror.clean_log(NAME),
    "compact_log": lambda catalog: catalog.mirror.compact_log(NAME, 0, 2),
    "manifests": lambda catalog: catalog.mirror.write_manifests(catalog.table(NAME).snapshot()),
    "repair": lambda catalog: catalog.mirror.repair(NAME, force=True),
    "adopt": lambda catalog: catalog.mirror.adopt(NAME),
    "reject": lambda catalog: catalog.mirror.reject(NAME),
}


def test_followed_table_cannot_be_changed_through_sql(catalog: Catalog, place: Path) -> None:
    catalog.follow(str(place))
    theirs(place, 11)
    before = everything_below(place)

    def check(write: str) -> None:
        with pytest.raises(TableFollowsError, match="deltasql follow") as caught:
            WRITES[write](catalog)
        assert caught.value.table == NAME
        assert isinstance(caught.value, deltalake.exceptions.CommitFailedError)
        assert everything_below(place) == before
        assert catalog.table(NAME).version() == HEAD

    check_each(WRITES, check)


def test_transaction_with_a_followed_table_changes_no_other_table(
    catalog: Catalog, place: Path
) -> None:
    catalog.follow(str(place))
    catalog.create_table("mine", SCHEMA)
    with pytest.raises(TableFollowsError), catalog.begin() as tx:
        tx.write("mine", rows(1))
        tx.write(NAME, rows(1))
    assert catalog.table("mine").version() == 0


def test_deltalake_api_can_read_but_not_write(
    catalog: Catalog, catalog_uri: DeltaSqlUri, place: Path
) -> None:
    catalog.follow(str(place))
    if catalog_uri.backend == "duckdb":
        catalog.close()  # the database allows one process, and one catalog in it
    uri = catalog_uri.with_table(NAME).to_string()
    table = deltasql.DeltaTable(uri)
    assert sorted(table.to_pyarrow_table()["id"].to_pylist()) == read_ids(place)
    before = everything_below(place)
    with pytest.raises(TableFollowsError):
        deltasql.write_deltalake(uri, rows(9), mode="append")
    with pytest.raises(TableFollowsError):
        table.delete("id = 4")
    assert everything_below(place) == before


@pytest.mark.parametrize("mode", ["sync", "async", "off"])
def test_mirror_does_not_change_the_log_of_a_followed_table(
    catalog_uri: DeltaSqlUri, place: Path, mode: str
) -> None:
    with open_catalog(catalog_uri, mirror={"mode": mode, "checkpoint_interval": 1}) as catalog:
        catalog.follow(str(place))
        for number in range(3):
            theirs(place, 20 + number)
            before = everything_below(place)
            catalog.refresh(NAME)
            assert catalog.mirror.publish() == 0
            assert catalog.mirror.run(once=True) == 0
        (own,) = catalog.mirror.status(NAME)
        assert (own.state, own.pending, own.is_unhealthy) == ("FOLLOWING", 0, False)
    assert everything_below(place) == before


def test_commits_that_follow_has_not_loaded_yet_are_not_reported_as_a_divergence(
    catalog: Catalog, place: Path
) -> None:
    catalog.follow(str(place))
    theirs(place, 11)
    (report,) = catalog.mirror.verify(NAME)
    assert report.ok
    assert "not in the catalog yet" in report.summary()
    assert catalog.mirror.status(NAME)[0].state == "FOLLOWING"
    assert catalog.refresh(NAME).commits == 1
