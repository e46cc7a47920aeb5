"""SqlSession: run SQL statements one by one, or in transactions over several tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import pyarrow as pa

from deltasql.api.catalog.connect import leaves_existing
from deltasql.api.sql.embedded import EmbeddedEngine
from deltasql.api.sql.statements import NOTHING, Statements
from deltasql.exceptions import InvalidQueryError
from deltasql.model.statements import statement as s
from deltasql.model.statements.parameters import named_parameters
from deltasql.model.statements.parser import parse_statement

if TYPE_CHECKING:
    from types import TracebackType

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.api.sql.engine import StatementEngine
    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.model.statements.parameters import Parameters

Result = TypeVar("Result")


class StatementRunner(Generic[Result]):
    """Runs statements on one engine, and keeps the open transaction between them."""

    def __init__(self, catalog: Catalog, engine: StatementEngine) -> None:
        self.catalog, self._engine = catalog, engine
        self.versions: dict[str, int] = {}  # what the last statement committed, by table name
        self._tx: MultiTableTransaction | None = None
        self._failed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open: between BEGIN and COMMIT or ROLLBACK."""
        return self._tx is not None

    @property
    def transaction(self) -> MultiTableTransaction | None:
        """The open transaction."""
        return self._tx

    def close(self) -> None:
        """Roll back an open transaction."""
        if self._tx is not None:
            self._rollback()

    def sql(self, text: str, parameters: Parameters = None) -> Result:
        """Run one statement and return its result.

        `parameters` are the values of `:name` (a dict) or of `?` (a list). If a statement fails in
        a transaction, the transaction cannot be committed and has to be rolled back.
        """
        try:
            return self.run(parse_statement(text), parameters)
        except BaseException:
            self.fail()
            raise

    def fail(self) -> None:
        """Block an open transaction until ROLLBACK, because one of its statements failed."""
        self._failed = self._tx is not None

    def check_not_failed(self, name: str) -> None:
        """Raise if a statement of the transaction failed; `name` is the next statement."""
        if self._failed:
            raise InvalidQueryError(
                f"{name} was not run, because a statement of the transaction failed",
                help="Run ROLLBACK, then repeat the transaction.",
            )

    def run(self, statement: s.Statement, parameters: Parameters = None) -> Result:
        """Run a parsed statement."""
        self.versions = {}
        if not isinstance(statement, s.Rollback):
            self.check_not_failed(statement.name)
        if isinstance(statement, s.Begin | s.Commit | s.Rollback):
            found = self._engine.result(self._transaction(statement))
        elif self._tx is not None:
            found = Statements(self._tx, self._engine, named_parameters(parameters)).run(statement)
        else:
            found = self._run_alone(statement, parameters)
        result: Result = found
        return result

    def _transaction(self, statement: s.Statement) -> pa.Table:
        if isinstance(statement, s.Begin):
            if self._tx is not None:
                raise InvalidQueryError(
                    "a transaction is open already", help="Run COMMIT or ROLLBACK first."
                )
            self._tx = self.catalog.begin()
            return NOTHING
        if self._tx is None:
            raise InvalidQueryError(
                f"{statement.name} without a transaction", help="Start one with BEGIN."
            )
        if isinstance(statement, s.Rollback):
            self._rollback()
            return NOTHING
        tx, self._tx = self._tx, None
        self.versions = tx.commit()
        return pa.table(
            {
                "table": pa.array(list(self.versions), pa.string()),
                "version": pa.array(list(self.versions.values()), pa.int64()),
            }
        )

    def _rollback(self) -> None:
        tx, self._tx, self._failed = self._tx, None, False
        if tx is not None:
            tx.rollback()

    def _run_alone(self, statement: s.Statement, parameters: Parameters) -> Any:
        """Run a statement outside of BEGIN and COMMIT; it is one commit."""
        outside = self._run_at_once(statement)
        if outside is not None:
            return self._engine.result(outside)
        values = named_parameters(parameters)
        if isinstance(statement, s.CreateTable) and statement.if_not_exists:
            with self.catalog.begin() as tx:
                name = self._engine.table(tx, statement.table)
            # Another writer may create the table at the same time.
            with leaves_existing(self.catalog, name, mode="ignore"):
                return self._run_and_commit(statement, values)
            return self._engine.result(NOTHING)
        return self._run_and_commit(statement, values)

    def _run_and_commit(self, statement: s.Statement, values: dict[str, Any]) -> Any:
        with self.catalog.begin() as tx:
            result = Statements(tx, self._engine, values).run(statement)
        self.versions = tx.versions
        return result

    def _run_at_once(self, statement: s.Statement) -> pa.Table | None:
        """Run a statement that takes effect at once; return None for other statements."""
        catalog = self.catalog
        if isinstance(statement, s.CreateNamespace):
            if not statement.if_not_exists and statement.namespace in self._namespaces():
                raise InvalidQueryError(
                    f"namespace {statement.namespace} already exists",
                    help="Write CREATE NAMESPACE IF NOT EXISTS.",
                )
            catalog.create_namespace(statement.namespace)
        elif isinstance(statement, s.DropNamespace):
            if statement.namespace in self._namespaces():
                catalog.drop_namespace(statement.namespace)
            elif not statement.if_exists:
                raise InvalidQueryError(
                    f"namespace {statement.namespace} does not exist",
                    help="List the namespaces with SHOW NAMESPACES.",
                )
        elif isinstance(statement, s.DropTable):
            name = self._name(statement.table)
            if not statement.if_exists or catalog.exists(name):
                catalog.drop(name)
        elif isinstance(statement, s.UndropTable):
            catalog.undrop(self._name(statement.table))
        elif isinstance(statement, s.RenameTable):
            new_name = statement.new_name
            parts = new_name.parts
            if len(parts) == 1:  # the table stays in its namespace
                new_name = s.TableRef((*statement.table.parts[:-1], *parts))
            catalog.rename(self._name(statement.table), self._name(new_name))
        elif isinstance(statement, s.Vacuum):
            return self._vacuum(statement)
        else:
            return None
        return NOTHING

    def _name(self, table: s.TableRef) -> str:
        return self._engine.table(self.catalog.begin(), table)

    def _namespaces(self) -> list[str]:
        return self.catalog.namespaces() if self.catalog.store.exists() else []

    def _vacuum(self, statement: s.Vacuum) -> pa.Table:
        name = self._name(statement.table)
        deleted = self.catalog.vacuum(
            name,
            retention_hours=statement.retain_hours,
            dry_run=statement.dry_run,
            full=statement.full,
            **self._engine.vacuum_options(),
        )
        shown = deleted if statement.dry_run else [self.catalog.table(name).location]
        return pa.table({"path": pa.array(shown, pa.string())})


def run_once(catalog: Catalog, text: str, parameters: Parameters = None) -> pa.Table:
    """Run one statement as one commit; `catalog.sql` calls it."""
    statement = parse_statement(text)
    if isinstance(statement, s.Begin | s.Commit | s.Rollback):
        raise InvalidQueryError(
            f"{statement.name} needs a session, because every call is one commit",
            help="Use deltasql.SqlSession, or tx.sql in `with deltasql.begin(…) as tx:`.",
        )
    return SqlSession(catalog).run(statement, parameters)


class SqlSession(StatementRunner[pa.Table]):
    """Runs SQL statements on a catalog; results are Arrow tables.

    Every statement is one commit, except between BEGIN and COMMIT: these are one transaction over
    any number of tables. Statements are written in Spark's SQL; see `deltasql docs sql`. At the
    end of a `with` block, an open transaction is rolled back.

    >>> import tempfile, deltasql
    >>> folder = tempfile.TemporaryDirectory()
    >>> catalog = deltasql.connect(f"deltasql://sqlite/{folder.name}/catalog.db")
    >>> with catalog, deltasql.SqlSession(catalog) as session:
    ...     for text in (
    ...         "CREATE TABLE stock (sku STRING, left INT)",
    ...         "CREATE TABLE orders (sku STRING)",
    ...         "INSERT INTO stock VALUES ('pen', 9)",
    ...         "BEGIN",
    ...         "INSERT INTO orders VALUES ('pen')",
    ...         "UPDATE stock SET left = left - 1 WHERE sku = 'pen'",
    ...     ):
    ...         result = session.sql(text)
    ...     session.sql("COMMIT").to_pylist()
    ...     session.sql("SELECT * FROM stock").to_pylist()
    [{'table': 'orders', 'version': 1}, {'table': 'stock', 'version': 2}]
    [{'sku': 'pen', 'left': 8}]
    """

    def __init__(self, catalog: Catalog) -> None:
        super().__init__(catalog, EmbeddedEngine())
