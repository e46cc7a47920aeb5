"""Random SQL statements about one table, in the grammar that the Spark catalog and Delta share.

`{t}` in a statement is the table, and `{as_of}` a clause of time travel. These statements are left
out, because Spark's rules for catalogs differ from those of delta-spark:

- subqueries in UPDATE and DELETE: delta-spark refuses them;
- numbers as strings in INSERT: delta-spark casts them, and Spark refuses them;
- assignments to nested fields in MERGE: the extension of delta-spark refuses them in its sessions
  for all tables of other catalogs;
- a MERGE with conditions in its clauses, in which several source rows match one row: Spark refuses
  it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_VALUES: Mapping[str, Sequence[str]] = {
    "BIGINT": [str(number) for number in range(9)],
    "INT": [str(number) for number in range(-3, 5)],
    "DOUBLE": ["0.0", "-1.5", "2.25", "'NaN'", "'Infinity'"],
    "DECIMAL(9,2)": ["0.50", "-2.25", "1234567.89"],
    "DATE": ["'2024-05-01'", "'2024-05-02'", "'1969-12-31'"],
    "TIMESTAMP": ["'2024-05-01 23:30:00.125Z'", "'2024-05-02 01:30:00Z'", "'1950-01-01 00:00:00Z'"],
    "STRING": ["'a'", "'b'", "'c d'", "'it\\'s'", "'ä/%41=_'", "''"],
    "ARRAY<INT>": ["array()", "array(1, 2)", "array(NULL, 3)"],
}
_COLUMNS = {
    "id": "BIGINT",
    "p": "STRING",
    "n": "INT",
    "x": "DOUBLE",
    "m": "DECIMAL(9,2)",
    "d": "DATE",
    "at": "TIMESTAMP",
    "s": "STRING",
    "nest": "STRUCT",
    "l": "ARRAY<INT>",
}
_PARTITIONS = [(), (), ("p",), ("p",), ("p", "d"), ("n",), ("m",), ("at",), ("x",)]
_PROPERTIES = [
    {},
    {"delta.enableChangeDataFeed": "true"},
    {"delta.columnMapping.mode": "name"},
    {"delta.enableDeletionVectors": "true"},
]
_CONDITIONS = [
    "true",
    "id = 2",
    "id IN (1, 3, NULL)",
    "id IS NULL",
    "id BETWEEN 3 AND 5 OR n IS NULL",
    "NOT n > 2",
    "coalesce(n, 0) % 2 = 0",
    "p = 'a'",
    "p = 'a' OR id = 2",
    "p > 'a' AND n >= 0",
    "p IS NULL",
    "p IS NULL OR p <> 'a'",
    "p IN ('b', 'c d', 'ä/%41=_')",
    "p = ''",
    "s LIKE '%t\\'s'",
    "upper(s) = 'A'",
    "x > 1.0",
    "isnan(x)",
    "m < 1.00",
    "m = 0.5",
    "d = DATE'2024-05-01'",
    "d > DATE'1970-01-01' AND p IS NOT NULL",
    "at >= TIMESTAMP'2024-05-01 23:00:00Z'",
    "nest.a > 1",
    "nest IS NULL",
    "nest.b = 'b' AND id > 1",
    "array_contains(l, 1)",
]
_REPLACED = [
    "true",
    "id = 2",
    "id <=> NULL",
    "id IN (1, 3)",
    "id BETWEEN 3 AND 5 OR n IS NULL",
    "NOT n > 2",
    "n > 1 OR id = 2 AND p = 'a'",
    "n < 2 AND n > -2",
    "p = 'a'",
    "p = 'a' OR id = 2",
    "p > 'a' AND n >= 0",
    "p IS NULL OR p <= 'a'",
    "p IN ('b', 'c d', 'ä/%41=_')",
    "p = ''",
    "s < 'it\\'s'",
    "x > 1.0",
    "x <= 0.0",
    "m < 1.00",
    "m = 0.5",
    "d = DATE'2024-05-01'",
    "d > DATE'1970-01-01' AND p IS NOT NULL",
    "at >= TIMESTAMP'2024-05-01 23:00:00Z'",
    "at < TIMESTAMP'2024-05-01 21:00:00' OR d IS NULL",
    "nest.a > 1",
]
"""Conditions that compare columns with values, as the Spark catalog needs them in REPLACE WHERE."""
_CHANGES = [
    "n = n + 1",
    "n = id",
    "n = NULL",
    "n = CASE WHEN n > 2 THEN -n ELSE length(s) END",
    "id = id + 1, n = CAST(id AS INT)",
    "p = s",
    "p = 'b'",
    "p = NULL, s = p",
    "s = coalesce(p, 'none')",
    "x = x * 2 + n",
    "m = abs(m), d = CAST(at AS DATE)",
    "m = n",
    "at = NULL",
    "nest.a = n",
    "nest.b = upper(nest.b), s = nest.b",
    "nest = named_struct('a', n, 'b', s)",
    "l = array(n, 1)",
]
_MATCHED = [
    ("UPDATE SET *", None),
    ("UPDATE SET *", "src.n > t.n"),
    ("UPDATE SET n = src.n + coalesce(t.n, 0), s = t.p", None),
    ("UPDATE SET p = src.p, nest = src.nest", "t.p = 'a' OR t.p IS NULL"),
    ("UPDATE SET x = t.x * 2, l = src.l", "src.d >= t.d"),
    ("DELETE", None),
    ("DELETE", "src.n = 1 OR t.p = 'a'"),
]
_NOT_MATCHED = [
    ("INSERT *", None),
    ("INSERT *", "src.n > 0"),
    ("INSERT (id, n, p) VALUES (src.id, src.n * 2, 'new')", "src.s = 'b' OR src.s IS NULL"),
    ("INSERT (id, nest) VALUES (src.id + 1, src.nest)", None),
]
_ALONE = [
    ("DELETE", "t.n > 2"),
    ("DELETE", None),
    ("UPDATE SET n = 0, x = t.x + 1", "t.p = 'b' OR t.d IS NULL"),
    ("UPDATE SET s = concat(t.s, '!')", None),
]
_ERRORS = [
    "SELECT missing FROM {t}",
    "SELECT CAST(s AS INT) FROM {t}",
    "SELECT * FROM {t} VERSION AS OF 9999",
    "UPDATE {t} SET missing = 1",
    "UPDATE {t} SET n = n DIV (id - 3) WHERE id < 6",
    "UPDATE {t} SET n = 3000000000 + id WHERE id > 2",
    "UPDATE {t} SET nest.missing = 1",
    "DELETE FROM {t} WHERE missing = 1",
    "DELETE FROM {t} WHERE 1 DIV (id - 4) > 0",
    "INSERT INTO {t} VALUES (1)",
    "INSERT INTO {t} (id, n) VALUES (1, 3000000000)",
    "INSERT INTO {t} (id, n) VALUES (1, 'many')",
    "INSERT INTO {t} (id, m) VALUES (1, 123456789012.5)",
    "INSERT INTO {t} (id, missing) VALUES (1, 1)",
    "INSERT INTO {t} (id, id) VALUES (1, 1)",
    "ALTER TABLE {t} ADD COLUMNS (ID INT)",
    "ALTER TABLE {t} ADD COLUMNS (missing.a INT)",
    "ALTER TABLE {t} DROP COLUMN missing",
    "MERGE INTO {t} AS t USING (SELECT 2L AS id UNION ALL SELECT 2L) AS src ON t.id = src.id "
    "WHEN MATCHED THEN UPDATE SET n = 0",
    "MERGE INTO {t} AS t USING (SELECT 2L AS id UNION ALL SELECT 2L) AS src ON t.id = src.id "
    "WHEN MATCHED THEN DELETE",
    "MERGE INTO {t} AS t USING (SELECT 2L AS id) AS src ON t.id = src.id "
    "WHEN MATCHED THEN UPDATE SET *",
    "MERGE INTO {t} AS t USING (SELECT 2L AS id) AS src ON t.id = src.id "
    "WHEN NOT MATCHED THEN INSERT (missing) VALUES (1)",
]


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement, and the settings of the session that it needs."""

    text: str
    settings: Mapping[str, str] = field(default_factory=dict)


class RandomStatements:
    """Random statements about one table, whose columns change with ALTER TABLE."""

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)
        self._columns = dict(_COLUMNS)
        self._fields = {"a": "INT", "b": "STRING"}
        self._added = 0
        self.partitions: tuple[str, ...] = self.rng.choice(_PARTITIONS)
        self.properties = self.rng.choice(_PROPERTIES)
        self.check = self.rng.choice([None, None, None, "n IS NULL OR n < 4"])
        """A CHECK constraint of the table."""
        self._required = self.rng.choice(["", "", "", "id"])

    def create(self, table: str, using: str) -> str:
        """Return the statement that creates the table."""
        columns = ", ".join(
            f"{name} {self._type(name)}" + " NOT NULL" * (name == self._required)
            for name in self._columns
        )
        text = f"CREATE TABLE {table} ({columns}) {using}"
        if self.partitions:
            text += f" PARTITIONED BY ({', '.join(self.partitions)})"
        if self.properties:
            pairs = ", ".join(f"'{key}' = '{value}'" for key, value in self.properties.items())
            text += f" TBLPROPERTIES ({pairs})"
        return text

    def fill(self) -> Statement:
        """Return an insert of several rows of all columns."""
        return Statement(f"INSERT INTO {{t}} VALUES {self._rows(list(self._columns), least=6)}")

    def next(self) -> Statement:
        """Return the next statement."""
        kinds = [
            *[self.insert] * 4,
            *[self.overwrite] * 2,
            *[self.update] * 3,
            *[self.delete] * 2,
            *[self.merge] * 4,
            *[self.select] * 3,
            self.alter,
            self.error,
        ]
        return self.rng.choice(kinds)()

    def insert(self) -> Statement:
        """Return an append of all columns, of some, by name, or of rows of the table itself."""
        every = list(self._columns)
        some = self.rng.sample(every, self.rng.randint(1, len(every)))
        if self._required and self._required not in some:
            some.append(self._required)
        names = ", ".join(some)
        texts = [
            f"INSERT INTO {{t}} VALUES {self._rows(every)}",
            f"INSERT INTO {{t}} ({names}) VALUES {self._rows(some)}",
            f"INSERT INTO {{t}} BY NAME SELECT * FROM {self._source(some)}",
            f"INSERT INTO {{t}} SELECT * FROM {{t}} WHERE {self._condition()}",
        ]
        return Statement(self.rng.choice(texts))

    def overwrite(self) -> Statement:
        """Return an overwrite of the table, or of some of its partitions."""
        every = list(self._columns)
        whole = f"INSERT OVERWRITE {{t}} VALUES {self._rows(every)}"
        statements = [Statement(whole)]
        if self.partitions:
            mode = {"spark.sql.sources.partitionOverwriteMode": "dynamic"}
            statements.append(Statement(whole, mode))
        if self.partitions == ("p",):
            others = [name for name in every if name != "p"]
            rows = self._rows(others)
            statements.append(
                Statement(f"INSERT OVERWRITE {{t}} PARTITION (p = 'a') VALUES {rows}")
            )
            value = self.rng.choice(["'a'", "'a'", "'c d'"])  # rows with another one are refused
            chosen = self._source(every, p=value)
            statements.append(
                Statement(f"INSERT INTO {{t}} REPLACE WHERE p = 'a' SELECT * FROM {chosen}")
            )
        for condition in ("n > 1", "n > 1 OR id = 2 AND p = 'a'"):
            chosen = self._source(every, n=self.rng.choice(["2", "3", "1"]))
            statements.append(
                Statement(f"INSERT INTO {{t}} REPLACE WHERE {condition} SELECT * FROM {chosen}")
            )
        return self.rng.choice(statements)

    def replace_where(self) -> Statement:
        """Return an overwrite of the rows that match a condition.

        One in four has new rows that may not match it, which are refused.
        """
        condition = self.rng.choice(_REPLACED)
        rows = f"SELECT * FROM {self._source(list(self._columns))}"
        if self.rng.random() < 0.75:
            rows += f" WHERE {condition}"
        return Statement(f"INSERT INTO {{t}} REPLACE WHERE {condition} {rows}")

    def update(self) -> Statement:
        """Return an update of one or several columns."""
        changes = self.rng.choice(_CHANGES)
        return Statement(f"UPDATE {{t}} SET {changes} WHERE {self._condition()}")

    def delete(self) -> Statement:
        """Return a delete."""
        return Statement(f"DELETE FROM {{t}} WHERE {self._condition()}")

    def merge(self) -> Statement:
        """Return a merge; at most one row of its source has an id."""
        source = self._source(list(self._columns), unique=True)
        text = f"MERGE INTO {{t}} AS t USING {source} AS src ON t.id = src.id"
        if self.rng.random() < 0.2:
            text += " AND (t.p = src.p OR t.n > 0)"
        clauses = [
            clause
            for when, choices, most in (
                ("MATCHED", _MATCHED, 3),
                ("NOT MATCHED", _NOT_MATCHED, 2),
                ("NOT MATCHED BY SOURCE", _ALONE, 2),
            )
            for clause in self._clauses(when, choices, most)
        ]
        return Statement(" ".join([text, *clauses])) if clauses else self.merge()

    def select(self) -> Statement:
        """Return a query with filters or aggregates, of the latest or of an earlier version."""
        where = f"WHERE {self._condition()}"
        table = self.rng.choice(["{t}", "{t}", "{t} {as_of}"])
        texts = [
            f"SELECT * FROM {table} {where}",
            f"SELECT s, nest.a, n + 1 FROM {table} {where}",
            f"SELECT count(*), count(n), min(id), max(id), min(d), max(d) FROM {table}",
            f"SELECT count(*), min(n), max(x), min(p), max(at), sum(m) FROM {table} {where}",
            f"SELECT p, count(*), max(n), min(d) FROM {table} GROUP BY p",
            f"SELECT d, sum(x), count(DISTINCT s) FROM {table} {where} GROUP BY d",
            f"SELECT count(*) FROM (SELECT * FROM {table} LIMIT 3)",
            f"SELECT a.id, b.n, b.s FROM {table} AS a JOIN {{t}} AS b ON a.id = b.n",
            f"SELECT DISTINCT p, n FROM {table} {where}",
        ]
        # delta-spark reads the zone of a timestamp after AS OF correctly only in this session zone.
        zone = {"spark.sql.session.timeZone": "UTC"} if "as_of" in table else {}
        return Statement(self.rng.choice(texts), zone)

    def alter(self) -> Statement:
        """Return a change of the columns."""
        added = [name for name in self._columns if name not in _COLUMNS]
        if added and self.properties.get("delta.columnMapping.mode") and self.rng.random() < 0.5:
            name = self.rng.choice(added)
            if self.rng.random() < 0.5:
                del self._columns[name]
                return Statement(f"ALTER TABLE {{t}} DROP COLUMN {name}")
            new = f"{name}_new"
            self._columns = {
                new if each == name else each: kind for each, kind in self._columns.items()
            }
            return Statement(f"ALTER TABLE {{t}} RENAME COLUMN {name} TO {new}")
        self._added += 1
        kind = self.rng.choice(list(_VALUES))
        if self.rng.random() < 0.3 and self._added < 3:
            self._fields[f"c{self._added}"] = kind
            return Statement(f"ALTER TABLE {{t}} ADD COLUMNS (nest.c{self._added} {kind})")
        self._columns[f"c{self._added}"] = kind
        return Statement(f"ALTER TABLE {{t}} ADD COLUMNS (c{self._added} {kind})")

    def error(self) -> Statement:
        """Return a statement that fails for all tables, or for some rows."""
        return Statement(self.rng.choice(_ERRORS))

    def _type(self, name: str) -> str:
        if self._columns[name] != "STRUCT":
            return self._columns[name]
        return f"STRUCT<{', '.join(f'{field}: {kind}' for field, kind in self._fields.items())}>"

    def _value(self, name: str) -> str:
        kind = self._columns[name]
        if self.rng.random() < 0.15:
            return f"CAST(NULL AS {self._type(name)})"
        if kind != "STRUCT":
            return self._literal(kind)
        pairs = (f"'{field}', {self._literal(kind)}" for field, kind in self._fields.items())
        return f"named_struct({', '.join(pairs)})"

    def _literal(self, kind: str) -> str:
        value = "NULL" if self.rng.random() < 0.15 else self.rng.choice(_VALUES[kind])
        return f"CAST({value} AS {kind})"

    def _rows(self, names: Sequence[str], *, least: int = 1, most: int = 6, **fixed: str) -> str:
        return ", ".join(
            f"({', '.join(fixed.get(name) or self._value(name) for name in names)})"
            for _ in range(self.rng.randint(least, most))
        )

    def _source(self, names: Sequence[str], *, unique: bool = False, **fixed: str) -> str:
        """Return a query in parentheses; with `unique`, no id is in two rows."""
        if unique:
            ids = self.rng.sample([*_VALUES["BIGINT"], "NULL"], self.rng.randint(1, 6))
            rows = ", ".join(
                self._rows(names, most=1, id=f"CAST({each} AS BIGINT)") for each in ids
            )
        else:
            rows = self._rows(names, **fixed)
        return f"(SELECT * FROM VALUES {rows} AS v ({', '.join(names)}))"

    def _condition(self) -> str:
        return self.rng.choice(_CONDITIONS)

    def _clauses(
        self, when: str, choices: Sequence[tuple[str, str | None]], most: int
    ) -> list[str]:
        """Return clauses of one kind; only the last one may have no condition."""
        chosen = self.rng.sample(choices, self.rng.randint(0, most))
        chosen.sort(key=lambda clause: clause[1] is None)
        count = sum(condition is None for _, condition in chosen)
        return [
            f"WHEN {when}" + (f" AND ({condition})" if condition else "") + f" THEN {action}"
            for action, condition in chosen[: len(chosen) - max(0, count - 1)]
        ]
