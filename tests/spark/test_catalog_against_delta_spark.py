"""Random SQL through the Spark catalog gives the same rows and errors as delta-spark."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from tests.mirror.support import published_versions
from tests.oracles.readers import DeltaSpark, Place
from tests.oracles.states import arrow_rows
from tests.oracles.test_delta_spark import SMALL
from tests.selection import EVERYTHING, EXPLORES, smoke
from tests.spark.statements import RandomStatements, Statement
from tests.spark.support import settings

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from deltasql import Catalog
    from tests.oracles.states import Rows

_STATEMENTS = 12
_ZONE = {"spark.sql.session.timeZone": "America/New_York"}
_GENERATED_CODE = 5
"""Every fifth test uses generated code, which takes longer than the statements on few rows."""


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "number", smoke(range(20), (0,), "delta-spark as a second opinion, on random statements")
)
def test_random_statements_give_the_same_rows_and_errors_as_delta_spark(
    spark: SparkSession, lake: Catalog, name: str, tmp_path: Path, number: int
) -> None:
    seed = f"{number}-{secrets.token_hex(4)}" if EXPLORES else str(number)
    statements = RandomStatements(seed)
    has_code = EVERYTHING and number % _GENERATED_CODE == 0
    with settings(spark, _ZONE if has_code else {**_ZONE, **SMALL}):
        pair = Pair(spark, lake, name, str(tmp_path / "stock"), statements, seed)
        pair.run(statements.fill())
        if not EVERYTHING:
            pair.run(statements.merge())
            return
        for _ in range(_STATEMENTS):
            pair.run(statements.next())
        # delta-spark reads the same rows from the published log.
        version = lake.table("t").version()
        published = DeltaSpark(spark).rows(Place(lake.table("t").location), version)
        assert published == pair.rows(pair.own), f"seed {seed}: published rows"


@pytest.mark.everything("delta-spark as a second opinion, on random conditions")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", range(5))
def test_random_replace_where_gives_the_same_rows_and_errors_as_delta_spark(
    spark: SparkSession, lake: Catalog, name: str, tmp_path: Path, number: int
) -> None:
    seed = f"replace-{number}" + (f"-{secrets.token_hex(4)}" if EXPLORES else "")
    statements = RandomStatements(seed)
    with settings(spark, {**_ZONE, **SMALL}):
        pair = Pair(spark, lake, name, str(tmp_path / "stock"), statements, seed)
        pair.run(statements.fill())
        for _ in range(_STATEMENTS // 2):
            pair.run(statements.replace_where())
            pair.run(statements.insert())
        version = lake.table("t").version()
        published = DeltaSpark(spark).rows(Place(lake.table("t").location), version)
        assert published == pair.rows(pair.own), f"seed {seed}: published rows"


@dataclass(frozen=True, slots=True)
class State:
    """The version of each table after a statement, and the time."""

    own: int
    stock: int
    at: datetime


class Pair:
    """A table of the Spark catalog, and a table of delta-spark, that get the same statements."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Catalog,
        name: str,
        path: str,
        statements: RandomStatements,
        seed: str,
    ) -> None:
        self._spark, self._lake, self._path = spark, lake, path
        self._rng, self._seed = statements.rng, seed
        self._count = 0
        self._states: list[State] = []
        self.own, self.stock = f"{name}.default.t", f"delta.`{path}`"
        spark.sql(statements.create(self.own, ""))
        spark.sql(statements.create(self.stock, "USING DELTA"))
        if statements.check:
            spark.sql(f"ALTER TABLE {self.stock} ADD CONSTRAINT small CHECK ({statements.check})")
            with lake.begin() as tx:
                tx.add_constraint("t", {"small": statements.check})
        self._remember()

    def run(self, statement: Statement) -> None:
        """Run a statement on both tables, and compare its result, its error and the tables."""
        self._count += 1
        where = f"seed {self._seed}, statement {self._count}: {statement.text}"
        own_text, stock_text = self._texts(statement.text)
        with settings(self._spark, statement.settings):
            own, own_error = self._result(own_text)
            stock, stock_error = self._result(stock_text)
        errors = f"deltasql: {own_error}\ndelta-spark: {stock_error}"
        assert (own_error is None) == (stock_error is None), f"{where}\n{errors}"
        if statement.text.startswith("SELECT"):
            assert own == stock, where
            return
        own_rows, stock_rows = self.rows(self.own), self.rows(self.stock)
        assert own_rows == stock_rows, f"{where}\n{errors}"
        assert self._columns(self.own) == self._columns(self.stock), where
        self._remember()

    def rows(self, table: str) -> Rows:
        """Return the rows of a table."""
        return arrow_rows(self._spark.sql(f"SELECT * FROM {table}").toArrow())

    def _columns(self, table: str) -> list[tuple[str, str]]:
        return self._spark.table(table).dtypes

    def _result(self, text: str) -> tuple[Rows | None, str | None]:
        """Run a statement, and return the rows of a query, or the error."""
        try:
            found = self._spark.sql(text)
            return arrow_rows(found.toArrow()) if text.startswith("SELECT") else None, None
        except Exception as error:
            return None, f"{type(error).__name__}: {str(error)[:1000]}"

    def _texts(self, text: str) -> tuple[str, str]:
        """Return the statement for each table."""
        own_clause = stock_clause = ""
        last = self._states[-1]
        earlier = [each for each in self._states if each.own < last.own and each.stock < last.stock]
        if earlier:
            state = self._rng.choice(earlier)
            own_clause, stock_clause = f"VERSION AS OF {state.own}", f"VERSION AS OF {state.stock}"
            if self._rng.random() < 0.5:
                own_clause = stock_clause = f"TIMESTAMP AS OF '{state.at:%Y-%m-%d %H:%M:%S.%f}Z'"
        own = text.replace("{t}", self.own).replace("{as_of}", own_clause)
        stock = text.replace("{t}", self.stock).replace("{as_of}", stock_clause)
        return own, stock

    def _remember(self) -> None:
        own, stock = self._lake.table("t").version(), published_versions(self._path)[-1]
        assert own is not None
        self._states.append(State(own, stock, datetime.now(UTC)))
