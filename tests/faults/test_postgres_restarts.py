"""PostgreSQL is stopped, restarted and killed under load: acknowledged commits are kept."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake

from tests.commit.support import audit
from tests.faults.load import TWINS, Load, disagreements, open_lake
from tests.faults.separate_postgres import ENDS, own_postgres

if TYPE_CHECKING:
    from deltasql import Catalog

EVERYTHING = bool(os.environ.get("DELTASQL_EVERYTHING"))
ROUNDS = 5 if EVERYTHING else 1
CLIENTS = {"writers": 4, "readers": 2} if EVERYTHING else {"writers": 2, "readers": 1}


def test_acknowledged_commits_survive_server_restarts_under_load(tmp_path: Path) -> None:
    with own_postgres() as server:
        load = Load(server.uri, tmp_path, **CLIENTS)
        try:
            for _ in range(ROUNDS):
                for how in ENDS:
                    load.wait_for_more(1)
                    server.strike(how)
            load.wait_for_more(1)
        finally:
            load.stop()
        assert load.problems() == ""
        outcomes = load.outcomes()
        with open_lake(server.uri, tmp_path) as catalog:
            catalog.mirror.run(once=True)
            audit(catalog)
            with catalog.begin() as tx:
                seen = {name: tx.read(name) for name in (*TWINS, "last")}
            assert disagreements(seen, outcomes) == []
            for name in (*TWINS, "last"):
                published = deltalake.DeltaTable(catalog.table(name).location)
                assert published.version() == catalog.table(name).version()
                assert sorted(published.to_pyarrow_table().to_pylist(), key=str) == sorted(
                    seen[name].to_pylist(), key=str
                )
                check_files(catalog, name)
        failed = Counter(kind for each in outcomes.values() for kind in each.failed.values())
        acknowledged = sum(len(each.acknowledged) for each in outcomes.values())
        unknown = sum(len(each.unknown) for each in outcomes.values())
        print(
            f"{ROUNDS * len(ENDS)} strikes, {acknowledged} transactions of three tables "
            f"acknowledged, {unknown} unknown, failed {dict(failed)}, reads {load.reads()}"
        )


def check_files(catalog: Catalog, name: str) -> None:
    """Check that every referenced file exists and every other one has an intent."""
    table = catalog.table(name)
    root = Path(table.location)
    reached = {
        path
        for version in range(table.version() + 1)
        for path in table.snapshot(version).files()["path"].to_pylist()
    }
    there = {str(path.relative_to(root)) for path in root.rglob("*.parquet")}
    there = {path for path in there if "_delta_log" not in path}
    assert reached <= there
    intended = {path for _, _, path, _ in catalog.store.intents_before(2**60)}
    unreferenced = {path for path in there - reached if str(root / path) not in intended}
    assert unreferenced == set()
