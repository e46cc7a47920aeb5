"""Random statements of deltasql and delta-spark, in turn, on identity columns and defaults."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from deltasql.model.schema.identity import MARK
from tests.spark.alternation import Alternation

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from deltasql import Catalog

pytestmark = pytest.mark.everything("random alternation with delta-spark, on generated values")
STEPS = 12
IDENTITIES = [("ALWAYS", 1, 1), ("BY DEFAULT", 100, -3), ("ALWAYS", -5, 10)]


class Model:
    """The rows that the table must have, by the column `k`, and all ids that rows ever had."""

    def __init__(self, start: int, step: int) -> None:
        self.start, self.step = start, step
        self.default: int | None = 7
        self.rows: dict[int, tuple[int | None, str]] = {}
        self.ids: dict[int, int] = {}
        self.used: set[int] = set()
        self.mark = 0

    def check(self, found: list[dict[str, Any]], mark: int | None) -> None:
        assert {row["k"]: (row["n"], row["name"]) for row in found} == self.rows
        assert len(found) == len(self.rows)
        ids = {row["k"]: row["id"] for row in found}
        known = {k: number for k, number in self.ids.items() if k in ids}
        assert {k: ids[k] for k in known} == known
        new = [number for k, number in ids.items() if k not in self.ids]
        assert len(set(new)) == len(new)
        assert self.used.isdisjoint(new)
        assert all((number - self.start) % self.step == 0 for number in new)
        self.used |= set(new)
        self.ids = ids
        if self.used:
            assert mark is not None
            sign = 1 if self.step > 0 else -1
            assert sign * mark >= max(sign * number for number in self.used)


def statement(rng: random.Random, model: Model, fresh: int) -> str:
    """Return a random statement on `{t}`, and change the model in the same way."""
    some, old = [fresh, fresh + 1], rng.choice([*model.rows, 0])
    kind = rng.choice(("plain", "given", "named", "update", "reset", "delete", "merge", "alter"))
    if kind == "plain":
        model.rows |= dict.fromkeys(some, (model.default, "it's"))
        return f"INSERT INTO {{t}} (k) VALUES ({some[0]}), ({some[1]})"
    if kind == "given":
        model.rows[fresh] = (rng.randrange(100), "it's")
        return f"INSERT INTO {{t}} (n, k) VALUES ({model.rows[fresh][0]}, {fresh})"
    if kind == "named":
        model.rows[fresh] = (model.default, "it's")
        return f"INSERT INTO {{t}} (k, name, n) VALUES ({fresh}, DEFAULT, DEFAULT)"
    if kind == "update":
        model.rows |= {k: (n, f"u{fresh}") for k, (n, _) in model.rows.items() if k % 3 == 0}
        return f"UPDATE {{t}} SET name = 'u{fresh}' WHERE k % 3 = 0"
    if kind == "reset":
        model.rows |= {k: (model.default, name) for k, (_, name) in model.rows.items() if k >= old}
        return f"UPDATE {{t}} SET n = DEFAULT WHERE k >= {old}"
    if kind == "delete":
        model.rows.pop(old, None)
        return f"DELETE FROM {{t}} WHERE k = {old}"
    if kind == "merge":
        found = model.rows.get(old)
        model.rows[old] = (model.default, "it's") if found is None else (50, found[1])
        model.rows[fresh] = (model.default, "it's")
        source = f"SELECT {old} AS k UNION ALL SELECT {fresh}"
        return (
            f"MERGE INTO {{t}} AS t USING ({source}) AS s ON t.k = s.k WHEN MATCHED THEN "
            "UPDATE SET n = 50 WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k)"
        )
    model.default = rng.randrange(100)
    return f"ALTER TABLE {{t}} ALTER COLUMN n SET DEFAULT {model.default}"


@pytest.mark.parametrize("seed", range(3))
def test_numbers_and_defaults_are_right_when_deltasql_and_delta_spark_write_in_turn(
    spark: SparkSession, lake: Catalog, sql: Callable[[str], list[Any]], seed: int
) -> None:
    rng, table = random.Random(seed), Alternation(spark, lake)
    kind, start, step = IDENTITIES[seed % len(IDENTITIES)]
    table.ours(
        f"CREATE TABLE t (id BIGINT GENERATED {kind} AS IDENTITY (START WITH {start} "
        f"INCREMENT BY {step}), k INT, n INT DEFAULT 7, name STRING DEFAULT 'it\\'s')"
    )
    model, done = Model(start, step), []
    writers: dict[str, Callable[[str], Any]] = {
        "ours": lambda text: table.ours(text.format(t="t")),
        "on Spark": lambda text: table.on_spark(text.format(t="t")),
        "catalog": lambda text: sql(text.format(t="lake.default.t")),
        "delta-spark": table.theirs,
    }
    turns = [*writers] * (STEPS // len(writers))
    rng.shuffle(turns)
    for number, writer in enumerate(turns):
        text = statement(rng, model, 10 + 2 * number)
        done.append(f"{writer}: {text}")
        try:
            writers[writer](text)
            found = lake.sql("SELECT * FROM t").to_pylist()
            assert len(table.rows()) == len(found)
            model.check(found, lake.table("t").snapshot().schema.fields[0].metadata.get(MARK))
        except Exception as error:
            error.add_note("\n".join(done))
            raise
    assert lake.mirror.verify("t")[0].ok
