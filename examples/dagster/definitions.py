"""Dagster assets: one transaction commits two tables, a partition for each day.

`dagster dev -f definitions.py` shows them. Run as a script, it materializes them and prints what
they committed.
"""

import os
import tempfile
from collections.abc import Iterator

import dagster as dg
import pyarrow as pa

import deltasql

DAYS = dg.DailyPartitionsDefinition(start_date="2026-01-01", end_date="2026-01-03")
# What a real pipeline would fetch: order id, sku, amount.
FEED = {
    "2026-01-01": [(1, "pen", 2), (2, "ink", 1)],
    "2026-01-02": [(3, "pen", 5), (4, "pen", -1)],
}
SCHEMA = pa.schema(
    [("day", pa.string()), ("id", pa.int64()), ("sku", pa.string()), ("amount", pa.int64())]
)


class Lake(dg.ConfigurableResource):
    """A deltasql catalog."""

    uri: str

    def begin(self) -> deltasql.MultiTableTransaction:
        """Start a transaction; the catalog stays open for the next one."""
        return deltasql.begin(self.uri)


@dg.multi_asset(specs=[dg.AssetSpec("orders"), dg.AssetSpec("rejected")], partitions_def=DAYS)
def loaded_orders(context: dg.AssetExecutionContext, lake: Lake) -> Iterator[dg.MaterializeResult]:
    """Replace the rows of one day in both tables: readers see both changes, or none."""
    day = context.partition_key
    good = [(day, *row) for row in FEED[day] if row[2] > 0]
    bad = [(day, *row) for row in FEED[day] if row[2] <= 0]
    with lake.begin() as tx:
        for name, rows in (("orders", good), ("rejected", bad)):
            if not tx.has_table(name):
                tx.create_table(name, SCHEMA, partition_by=["day"])
            # A retry or a backfill of a day replaces its rows, so it never adds them twice.
            tx.write(name, table(rows), mode="overwrite", predicate=f"day = '{day}'")
    for name, rows in (("orders", good), ("rejected", bad)):
        metadata = {"version": tx.versions[name], "rows": len(rows)}
        yield dg.MaterializeResult(asset_key=name, metadata=metadata)


@dg.asset(deps=["orders", "rejected"])
def share_rejected(lake: Lake) -> dg.MaterializeResult:
    """Read both tables at one point in time."""
    with lake.begin() as tx:
        orders, rejected = (tx.read(name).num_rows for name in ("orders", "rejected"))
    share = round(rejected / (orders + rejected), 2)
    return dg.MaterializeResult(metadata={"share": share})


def table(rows: list[tuple[str, int, str, int]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


defs = dg.Definitions(
    assets=[loaded_orders, share_rejected],
    resources={"lake": Lake(uri=os.environ.get("DELTASQL_URI", "deltasql://sqlite/lake/meta.db"))},
)


def main(uri: str) -> None:
    resources = {"lake": Lake(uri=uri)}
    with dg.DagsterInstance.ephemeral() as instance:
        for day in ("2026-01-01", "2026-01-02", "2026-01-02"):  # the last one is a retry
            done = dg.materialize(
                [loaded_orders], partition_key=day, resources=resources, instance=instance
            )
            print(day, shown(done))
        done = dg.materialize(
            [loaded_orders, share_rejected],
            selection=[share_rejected],
            resources=resources,
            instance=instance,
        )
        print("share_rejected", shown(done))
    with deltasql.connect(uri) as catalog:
        print(catalog.query("SELECT id, sku FROM orders ORDER BY id").read_all().to_pylist())


def shown(done: dg.ExecuteInProcessResult) -> dict[str, dict[str, object]]:
    """Return the metadata of the assets that a run materialized."""
    return {
        event.asset_key.to_user_string(): {
            name: value.value
            for name, value in event.step_materialization_data.materialization.metadata.items()
            if name in ("version", "rows", "share")
        }
        for event in done.get_asset_materialization_events()
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(f"deltasql://sqlite/{folder}/meta.db")
