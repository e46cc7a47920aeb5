"""Transactions in SQL: BEGIN, COMMIT and ROLLBACK over several tables, and `tx.sql`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import deltasql
from deltasql.exceptions import CommitConflictError, InvalidQueryError, TxnLogSchemaError
from tests.sql.cases import ALL, TWO, T

if TYPE_CHECKING:
    from deltasql import Catalog


@pytest.fixture
def session(catalog: Catalog) -> deltasql.SqlSession:
    catalog.sql(T)
    catalog.sql("CREATE TABLE log (n BIGINT)")
    return deltasql.SqlSession(catalog)


def count(source: Any, table: str) -> int:
    return int(source.sql(f"SELECT count(*) AS n FROM {table}").to_pylist()[0]["n"])


@pytest.mark.every_database
def test_transaction_over_two_tables_becomes_visible_in_both_at_once(
    session: deltasql.SqlSession, catalog: Catalog
) -> None:
    session.sql("BEGIN TRANSACTION")
    session.sql(TWO)
    session.sql("INSERT INTO log SELECT count(*) FROM t")
    assert (count(session, "t"), count(catalog, "t")) == (2, 0)
    found = session.sql("COMMIT").to_pylist()
    assert sorted((row["table"], row["version"]) for row in found) == [("log", 1), ("t", 1)]
    assert catalog.sql("SELECT n FROM log").to_pylist() == [{"n": 2}]


def test_transaction_sees_tables_as_they_were_at_its_first_read(
    session: deltasql.SqlSession, catalog: Catalog
) -> None:
    session.sql("BEGIN")
    assert count(session, "t") == 0
    session.sql("INSERT INTO log VALUES (1)")
    catalog.sql(TWO)
    assert count(session, "t") == 0
    session.sql("COMMIT")
    assert count(session, "t") == 2


def test_commit_conflicts_with_a_change_of_what_was_read(
    session: deltasql.SqlSession, catalog: Catalog
) -> None:
    catalog.sql(TWO)
    session.sql("BEGIN")
    session.sql("UPDATE t SET name = 'mine' WHERE id = 1")
    catalog.sql("UPDATE t SET name = 'other' WHERE id = 1")
    with pytest.raises(CommitConflictError):
        session.sql("COMMIT")
    assert not session.in_transaction
    assert catalog.sql(ALL).to_pylist()[0]["name"] == "other"


def test_failed_statement_prevents_the_commit(
    session: deltasql.SqlSession, catalog: Catalog
) -> None:
    session.sql("BEGIN")
    session.sql(TWO)
    with pytest.raises(TxnLogSchemaError):
        session.sql("UPDATE t SET nope = 1")
    for text in ("COMMIT", TWO, "SELECT 1"):
        with pytest.raises(InvalidQueryError, match="ROLLBACK"):
            session.sql(text)
    session.sql("ROLLBACK")
    assert count(catalog, "t") == 0
    session.sql(TWO)
    assert count(catalog, "t") == 2


def test_statements_that_take_effect_at_once_are_refused_in_a_transaction(
    session: deltasql.SqlSession, catalog: Catalog
) -> None:
    session.sql("BEGIN")
    with pytest.raises(InvalidQueryError, match="open already"):
        session.sql("BEGIN")
    session.sql("ROLLBACK")
    with pytest.raises(InvalidQueryError, match="without a transaction"):
        session.sql("COMMIT")
    for text in ("DROP TABLE t", "VACUUM t", "ALTER TABLE t RENAME TO u", "CREATE NAMESPACE n"):
        with deltasql.SqlSession(catalog) as other:
            other.sql("BEGIN")
            with pytest.raises(InvalidQueryError, match="before BEGIN"):
                other.sql(text)
    assert catalog.exists("t")


def test_end_of_a_session_rolls_its_transaction_back(
    session: deltasql.SqlSession, catalog: Catalog
) -> None:
    with session:
        session.sql("BEGIN")
        session.sql(TWO)
    assert not session.in_transaction
    assert count(catalog, "t") == 0


def test_transaction_object_mixes_sql_and_python(catalog: Catalog) -> None:
    catalog.sql(T)
    with catalog.begin() as tx:
        tx.sql(TWO)
        tx.sql("CREATE TABLE u AS SELECT id FROM t WHERE id > :low", {"low": 1})
        tx.delete("t", "id = 1")
        assert tx.sql(ALL).to_pylist() == [{"id": 2, "name": "b"}]
        assert tx.sql("SELECT id FROM u").to_pylist() == [{"id": 2}]
        with pytest.raises(InvalidQueryError, match=r"tx\.commit"):
            tx.sql("COMMIT")
    assert tx.versions == {"t": 1, "u": 0}
