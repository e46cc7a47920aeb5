"""An upsert pipeline that merges batches with late and duplicate rows exactly once.

For each batch it keeps the latest row of each key, updates only rows that are older in the table,
and writes its counts to a second table. The commit records the batch number, so that a batch that
is delivered again is skipped.
"""

from __future__ import annotations

import polars as pl

import deltasql

URI = "deltasql://sqlite/lake/meta.db"
BATCHES = {
    1: [(1, "Ann", "Paris", 10), (2, "Bo", "Oslo", 10), (2, "Bo", "Rome", 12)],  # id 2 twice
    2: [(2, "Bo", "Lima", 11), (3, "Cy", "Cairo", 20)],  # id 2 is late: older than the table's row
    3: [(1, "Ann", "Tokyo", 30)],
}


def main() -> None:
    for number in (1, 2, 3, 3):  # the last one is delivered twice
        rows = pl.DataFrame(BATCHES[number], ["id", "name", "city", "changed_at"], orient="row")
        print(f"batch {number}:", load(number, rows) or "skipped, already loaded")
    table = deltasql.DeltaTable(f"{URI}?table=people")
    print(pl.read_delta(table).sort("id"))
    print("versions:", [(each["version"], each["operation"]) for each in table.history()])


def load(number: int, rows: pl.DataFrame) -> dict[str, int] | None:
    latest = rows.sort("changed_at").unique("id", keep="last", maintain_order=True)
    with deltasql.begin(URI) as tx:
        if tx.has_table("people"):
            done = tx.snapshot("people").transaction_version("people-feed")
            if done is not None and done >= number:
                return None
        else:
            tx.create_table("people", latest.to_arrow().schema)
        metrics = (
            tx.merge("people", latest, "t.id = s.id", source_alias="s", target_alias="t")
            .when_matched_update_all("s.changed_at > t.changed_at")
            .when_not_matched_insert_all()
            .execute()
        )
        counts = {
            "inserted": metrics["num_target_rows_inserted"],
            "updated": metrics["num_target_rows_updated"],
        }
        tx.write("loads", pl.DataFrame({"batch": [number], **{k: [v] for k, v in counts.items()}}))
        app_transaction = deltasql.Transaction("people-feed", number)
        tx.set_commit_properties(
            "people", deltasql.CommitProperties(app_transactions=[app_transaction])
        )
    return counts


if __name__ == "__main__":
    main()
