"""Run statements inside a transaction. Other statements are run by `deltasql.api.sql.session`."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from deltasql.api.sql import reports
from deltasql.api.sql.embedded import EmbeddedEngine
from deltasql.api.sql.engine import Stored, as_they_are
from deltasql.api.sql.subqueries import MOST_ROWS, has_subquery, without_subqueries
from deltasql.api.sql.tables import convert_folder, create_table
from deltasql.exceptions import InvalidQueryError, TxnLogSchemaError
from deltasql.model.counts import many
from deltasql.model.predicates.parser import parse_expression
from deltasql.model.predicates.rewrite import to_datafusion, without_alias
from deltasql.model.schema.identity import START
from deltasql.model.schema.schema import CURRENT_DEFAULT, StructType, nearest
from deltasql.model.statements import statement as s
from deltasql.model.statements.default_values import default_values
from deltasql.model.statements.parameters import bound_text, named_parameters
from deltasql.model.statements.parser import parse_statement
from deltasql.operations.alter.cluster_by import cluster_by
from deltasql.operations.alter.properties import unset_table_properties
from deltasql.operations.merge.plan import star_assignments
from deltasql.operations.write_request import WriteRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from deltasql.api.sql.engine import StatementEngine
    from deltasql.api.transaction.transaction import MultiTableTransaction
    from deltasql.model.schema.schema import DataType
    from deltasql.model.statements.default_values import DefaultValues
    from deltasql.model.statements.parameters import Parameters

NOTHING = pa.table({})
"""The result of a statement that returns no rows."""
_FILLED = frozenset({"delta.generationExpression", CURRENT_DEFAULT, START})
"""Metadata keys of columns whose values a write computes if a statement gives none."""
OUTSIDE = (s.RenameTable, s.DropTable, s.UndropTable, s.CreateNamespace, s.DropNamespace, s.Vacuum)


def run_in_transaction(
    tx: MultiTableTransaction,
    text: str,
    parameters: Parameters = None,
    engine: StatementEngine | None = None,
) -> Any:
    """Run one statement as a part of a transaction, by default on the embedded engine."""
    statement = parse_statement(text)
    if isinstance(statement, s.Begin | s.Commit | s.Rollback):
        raise InvalidQueryError(
            f"{statement.name} cannot be run in a transaction that has begun already",
            help="Call tx.commit() or tx.rollback(), or use deltasql.SqlSession.",
        )
    return Statements(tx, engine or EmbeddedEngine(), named_parameters(parameters)).run(statement)


class Statements:
    """Runs statements in one transaction on one engine."""

    def __init__(
        self, tx: MultiTableTransaction, engine: StatementEngine, values: Mapping[str, Any]
    ) -> None:
        self._tx, self._engine, self._values = tx, engine, values

    def run(self, statement: s.Statement) -> Any:
        """Run a statement and return its result in the form of the engine."""
        if isinstance(statement, OUTSIDE):
            raise InvalidQueryError(
                f"{statement.name} cannot be part of a transaction: it takes effect at once",
                help="Run it before BEGIN, or after COMMIT or ROLLBACK.",
            )
        if isinstance(statement, s.Select):
            return self._engine.select(self._tx, statement.query.text, self._values)
        run: Callable[[Any], pa.Table] = getattr(self, _METHODS[type(statement)])
        return self._engine.result(run(statement))

    def _name(self, table: s.TableRef) -> str:
        return self._engine.table(self._tx, table)

    def _changed(self, table: s.TableRef) -> str:
        """Return the name of a table whose rows will change, and prevent its auto compaction."""
        name = self._name(table)
        self._tx.target_to_change(name)
        return name

    def _text(self, part: s.SqlPart) -> str:
        return bound_text(part, self._values)

    def _schema(self, table: str) -> StructType:
        return self._tx.target(table).schema

    # Rows

    def _insert(self, statement: s.Insert) -> pa.Table:
        table = self._name(statement.table)
        if statement.overwrite or statement.replace_where is not None:
            self._tx.target_to_change(table)
        schema = self._schema(table)
        partition = {name: self._text(value) for name, value in statement.partition}
        defaults = default_values(statement.query.text)
        given = _given(statement, schema, partition)
        query = defaults.replaced(lambda position: _default_text(schema, given, position, defaults))
        arrange = partial(_stored, statement, schema, partition, defaults.complete)
        rows = self._engine.rows(self._tx, query, self._values, arrange)
        where = None
        if statement.replace_where is not None:
            where = self._text(statement.replace_where)
        elif statement.overwrite and partition:
            conditions = [f"`{name}` = {value}" for name, value in partition.items()]
            where = " AND ".join(conditions)
        overwrites = statement.overwrite or where is not None
        request = WriteRequest(
            mode="overwrite" if overwrites else "append",
            schema_mode="merge" if statement.evolve else None,
            predicate=where,
            flavour="spark",
        )
        metrics = self._tx.write_rows(table, rows, request)
        count = metrics["num_added_rows"]
        return _counts(num_affected_rows=count, num_inserted_rows=count)

    def _update(self, statement: s.Update) -> pa.Table:
        table = self._changed(statement.table)
        plain = self._plain_names(table, statement)
        updates = {
            plain(column.text): plain(self._value(value, statement))
            for column, value in statement.assignments
        }
        where = None if statement.where is None else plain(self._value(statement.where, statement))
        self._engine.start(self._tx, table)
        metrics = self._tx.update(
            table, updates, predicate=where, engine=self._engine.name, flavour="spark"
        )
        return _counts(num_affected_rows=metrics["num_updated_rows"])

    def _delete(self, statement: s.Delete) -> pa.Table:
        table = self._changed(statement.table)
        plain = self._plain_names(table, statement)
        where = None if statement.where is None else plain(self._value(statement.where, statement))
        return self._deleted(table, where)

    def _truncate(self, statement: s.Truncate) -> pa.Table:
        self._deleted(self._changed(statement.table), None)
        return NOTHING

    def _deleted(self, table: str, where: str | None) -> pa.Table:
        tx = self._tx
        self._engine.start(tx, table)
        metrics = tx.delete(table, where, engine=self._engine.name, flavour="spark")
        return _counts(num_affected_rows=metrics["num_deleted_rows"])

    def _value(self, part: s.SqlPart, statement: s.Update | s.Delete) -> str:
        """Return the text of an expression, with literals for its parameters and subqueries."""
        if not has_subquery(part.text):
            return self._text(part)

        def fetch(query: str) -> pa.Table:
            limited = f"SELECT * FROM ({query}\n) AS q LIMIT {MOST_ROWS + 1}"  # noqa: S608
            return self._engine.fetch(self._tx, limited, self._values)

        own = _qualifiers(statement)
        return without_subqueries(part.text, self._values, own=own, fetch=fetch)

    def _plain_names(self, table: str, statement: s.Update | s.Delete) -> Callable[[str], str]:
        """Return a function that removes the table's name or alias from columns in expressions."""
        qualifiers = _qualifiers(statement)
        columns = self._schema(table).names

        def plain(text: str) -> str:
            for each in qualifiers:
                text = without_alias(text, each, columns)
            return text

        return plain

    def _merge(self, statement: s.Merge) -> pa.Table:
        table = self._changed(statement.table)
        rows = self._engine.rows(self._tx, statement.source.text, self._values)
        source = statement.source_alias or "source"
        target = statement.alias or statement.table.parts[-1]
        if target.casefold() == source.casefold():
            raise InvalidQueryError(
                f"the source and the target of MERGE have the same name {target}",
                help="Give them aliases: MERGE INTO sales AS t USING … AS s.",
            )
        merger = self._tx.merge(
            table,
            rows,
            self._text(statement.on),
            source_alias=source,
            target_alias=target,
            merge_schema=statement.evolve,
            engine=self._engine.name,
            flavour="spark",
        )
        for clause in statement.clauses:
            self._add_clause(merger, clause, table, source, evolve=statement.evolve)
        metrics = merger.execute()
        kinds = ("updated", "deleted", "inserted")
        counts = {f"num_{kind}_rows": metrics[f"num_target_rows_{kind}"] for kind in kinds}
        return _counts(num_affected_rows=sum(counts.values()), **counts)

    def _add_clause(
        self, merger: Any, clause: s.MergeClause, table: str, source: str, *, evolve: bool
    ) -> None:
        condition = None if clause.condition is None else self._text(clause.condition)
        method = getattr(merger, f"when_{clause.group}_{clause.kind}")
        if clause.kind == "delete":
            method(condition)
            return
        if clause.assignments is None:
            updates, missing = star_assignments(
                self._schema(table), merger.source_columns, source, evolve=evolve
            )
            if missing is not None:
                raise TxnLogSchemaError(
                    f"the source of MERGE has no column {missing}, which {clause.kind.upper()} * "
                    "needs",
                    column=missing,
                    help=f"The source has: {', '.join(merger.source_columns)}. Add the column, or "
                    "list the columns to set.",
                )
        else:
            updates = {column.text: self._text(value) for column, value in clause.assignments}
        method(updates, condition)

    # Tables

    def _create(self, statement: s.CreateTable) -> pa.Table:
        name = self._name(statement.table)
        return create_table(self._tx, self._engine, statement, name, self._values)

    def _convert(self, statement: s.Convert) -> pa.Table:
        location = self._engine.location(statement.path)
        name = None if statement.table is None else self._name(statement.table)
        convert_folder(self._tx, location, statement.partition_by, name)
        return NOTHING

    def _add_columns(self, statement: s.AddColumns) -> pa.Table:
        table = self._name(statement.table)
        for path in statement.structs:
            _require_struct(self._schema(table), path)
        self._tx.add_columns(table, statement.columns)
        return NOTHING

    def _drop_columns(self, statement: s.DropColumns) -> pa.Table:
        table = self._name(statement.table)
        known = self._schema(table)
        columns = [
            each
            for each in statement.columns
            if not statement.if_exists or "." in each or known.find(each.strip("`")) is not None
        ]
        if columns:
            self._tx.drop_columns(table, columns)
        return NOTHING

    def _rename_column(self, statement: s.RenameColumn) -> pa.Table:
        self._tx.rename_column(self._name(statement.table), statement.column, statement.new_name)
        return NOTHING

    def _alter_column(self, statement: s.AlterColumn) -> pa.Table:
        table, column = self._name(statement.table), statement.column
        if statement.comment is not None:
            self._tx.set_column_metadata(table, column, {"comment": statement.comment})
        elif statement.type is not None:
            self._tx.set_column_type(table, column, statement.type)
        elif statement.nullable:
            self._tx.drop_column_not_null(table, column)
        else:
            self._engine.start(self._tx, table)
            self._tx.set_column_not_null(table, column, engine=self._engine.name)
        return NOTHING

    def _drop_feature(self, statement: s.DropFeature) -> pa.Table:
        self._tx.drop_feature(
            self._name(statement.table),
            statement.feature,
            truncate_history=statement.truncate_history,
        )
        return NOTHING

    def _alter_default(self, statement: s.AlterDefault) -> pa.Table:
        table = self._name(statement.table)
        self._tx.set_column_default(table, statement.column, statement.default)
        return NOTHING

    def _sync_identity(self, statement: s.SyncIdentity) -> pa.Table:
        table = self._name(statement.table)
        self._engine.start(self._tx, table)
        self._tx.sync_identity(table, statement.column, engine=self._engine.name)
        return NOTHING

    def _set_properties(self, statement: s.SetProperties) -> pa.Table:
        self._tx.set_table_properties(
            self._name(statement.table), statement.properties, raise_if_not_exists=False
        )
        return NOTHING

    def _unset_properties(self, statement: s.UnsetProperties) -> pa.Table:
        unset_table_properties(
            self._tx.target(self._name(statement.table)),
            statement.keys,
            raise_if_not_exists=not statement.if_exists,
        )
        return NOTHING

    def _add_constraint(self, statement: s.AddConstraint) -> pa.Table:
        table = self._name(statement.table)
        self._engine.start(self._tx, table)
        checks = {statement.constraint: statement.check}
        self._tx.add_constraint(table, checks, engine=self._engine.name)
        return NOTHING

    def _drop_constraint(self, statement: s.DropConstraint) -> pa.Table:
        self._tx.drop_constraint(
            self._name(statement.table),
            statement.constraint,
            raise_if_not_exists=not statement.if_exists,
        )
        return NOTHING

    def _cluster_by(self, statement: s.ClusterBy) -> pa.Table:
        cluster_by(self._tx.target(self._name(statement.table)), statement.columns)
        return NOTHING

    def _comment(self, statement: s.CommentOnTable) -> pa.Table:
        self._tx.set_table_description(self._name(statement.table), statement.comment)
        return NOTHING

    # Maintenance

    def _optimize(self, statement: s.Optimize) -> pa.Table:
        table = self._name(statement.table)
        self._engine.start(self._tx, table)
        options: dict[str, Any] = {"engine": self._engine.name}
        if statement.where is not None:
            options["partition_filters"] = self._partition_filter(table, statement.where)
        if statement.z_order:
            metrics = self._tx.z_order(table, statement.z_order, **options)
        else:
            metrics = self._tx.optimize(table, **options)
        return self._rewritten(table, metrics)

    def _reorg(self, statement: s.Reorg) -> pa.Table:
        table = self._name(statement.table)
        self._engine.start(self._tx, table)
        where = statement.where
        chosen = None if where is None else self._partition_filter(table, where)
        metrics = self._tx.purge(table, partition_filters=chosen, engine=self._engine.name)
        return self._rewritten(table, metrics)

    def _rewritten(self, table: str, metrics: dict[str, Any]) -> pa.Table:
        location = self._tx.target(table).location
        return pa.Table.from_pylist([{"path": location, "metrics": metrics}])

    def _partition_filter(self, table: str, where: s.SqlPart) -> str:
        text = self._text(where)
        if has_subquery(text):
            raise InvalidQueryError(
                "the condition of OPTIMIZE and REORG cannot have a subquery",
                help="Write a condition on partition columns.",
            )
        condition = to_datafusion(text)
        target = self._tx.target(table)
        if not target.predicate(condition).partition_only:
            known = ", ".join(target.partition_columns) or "none"
            raise InvalidQueryError(
                "the condition of OPTIMIZE and REORG uses other columns than partition columns: "
                f"{condition}",
                help=f"Leave it out, or use only the partition columns of the table: {known}.",
            )
        return condition

    def _restore(self, statement: s.Restore) -> pa.Table:
        to = statement.to if isinstance(statement.to, int) else self._engine.timestamp(statement.to)
        return pa.Table.from_pylist([self._tx.restore(self._name(statement.table), to)])

    # Reports

    def _describe(self, statement: s.Describe) -> pa.Table:
        return reports.columns(self._tx.target(self._name(statement.table)), statement.extended)

    def _detail(self, statement: s.DescribeDetail) -> pa.Table:
        return reports.detail(self._tx.snapshot(self._name(statement.table)))

    def _history(self, statement: s.DescribeHistory) -> pa.Table:
        return reports.history(self._tx.snapshot(self._name(statement.table)), statement.limit)

    def _show_tables(self, statement: s.ShowTables) -> pa.Table:
        return reports.tables(self._tx.catalog, statement.namespace, statement.pattern)

    def _show_namespaces(self, statement: s.ShowNamespaces) -> pa.Table:
        return reports.namespaces(self._tx.catalog, statement.pattern)

    def _show_columns(self, statement: s.ShowColumns) -> pa.Table:
        names = self._schema(self._name(statement.table)).names
        return pa.table({"col_name": pa.array(names, pa.string())})

    def _show_properties(self, statement: s.ShowProperties) -> pa.Table:
        return reports.properties(self._tx.target(self._name(statement.table)), statement.key)


def _require_struct(schema: StructType, path: tuple[str, ...]) -> None:
    """Raise if the table has no struct at this path, to which a field can be added."""
    here: DataType = schema
    for depth, name in enumerate(path, 1):
        found = here.find(name) if isinstance(here, StructType) else None
        if found is None:
            column = ".".join(path[:depth])
            raise TxnLogSchemaError(
                f"the table has no column {column}",
                column=column,
                help=f"Add the struct first: ALTER TABLE … ADD COLUMN {column} STRUCT<…>.",
            )
        here = found.type


def _given(statement: s.Insert, schema: StructType, partition: Iterable[str]) -> list[str]:
    """Return the columns for which INSERT gives values by position."""
    if statement.columns is not None:
        return list(statement.columns)
    constants = {_known(schema, name) for name in partition}
    return [name for name in schema.names if name not in constants]


def _default_text(
    schema: StructType, given: Sequence[str], position: int, defaults: DefaultValues
) -> str:
    """Return the expression that replaces the keyword DEFAULT at a position of VALUES."""
    found = schema.find(given[position]) if position < len(given) else None
    if found is None or position in defaults.complete:
        return "NULL"
    if found.metadata.keys() & (_FILLED - {CURRENT_DEFAULT}):
        raise InvalidQueryError(
            f"column {found.name} has DEFAULT in some rows and values in others",
            help="Write two INSERTs: one with DEFAULT and one with values.",
        )
    default = parse_expression(str(found.metadata.get(CURRENT_DEFAULT, "NULL")), escapes=True)
    return f"({default.sql(dialect='spark')})"


def _stored(
    statement: s.Insert,
    schema: StructType,
    partition: Mapping[str, str],
    defaults: Collection[int],
    names: Sequence[str],
) -> list[Stored]:
    """Return what INSERT stores in each column, from a query with the columns `names`.

    `defaults` are the positions at which the query has DEFAULT in all rows.
    """
    constants = {_known(schema, name): value for name, value in partition.items()}
    extra: list[Stored] = []
    if statement.by_name:
        given = list(names)
        if statement.evolve:
            new = [(n, name) for n, name in enumerate(names) if schema.find(name) is None]
            extra = [Stored(name, None, number) for number, name in new]
    else:
        given = _given(statement, schema, partition)
        if statement.evolve and statement.columns is None:
            extra = as_they_are(names)[len(given) :]
    if not statement.by_name and len(given) + len(extra) != len(names):
        raise TxnLogSchemaError(
            f"the query has {many(len(names), 'column')} instead of {len(given)}: "
            f"{', '.join(given)}",
            help="Give a value for every column, or list the columns after the table: t (a, b).",
        )
    added = {each.column for each in extra}
    places: dict[str, int] = {}
    for number, name in enumerate(given):
        if number in added:
            continue
        column = _known(schema, name)
        if column in places:
            raise TxnLogSchemaError(
                f"the statement has two values for column {column}",
                column=column,
                help="Name each column once.",
            )
        places[column] = number
    places = {name: number for name, number in places.items() if number not in defaults}
    stored = []
    for field in schema.fields:
        if field.name in constants:
            stored.append(Stored(field.name, field.type, value=constants[field.name]))
        elif field.name in places or _FILLED.isdisjoint(field.metadata):
            stored.append(Stored(field.name, field.type, places.get(field.name)))
    return stored + extra


def _qualifiers(statement: s.Update | s.Delete) -> tuple[str, ...]:
    """Return the qualifiers of the changed table's columns: its alias, or the parts of its name."""
    return statement.table.parts if statement.alias is None else (statement.alias,)


def _known(schema: StructType, name: str) -> str:
    found = schema.find(name)
    if found is None:
        raise TxnLogSchemaError(
            f"the table has no column {name}",
            column=name,
            help=f"{nearest(name, schema.names)}Its columns are {', '.join(schema.names)}.",
        )
    return found.name


def _counts(**counts: int) -> pa.Table:
    return pa.table({name: pa.array([count], pa.int64()) for name, count in counts.items()})


_METHODS: dict[type[s.Statement], str] = {
    s.Insert: "_insert",
    s.Update: "_update",
    s.Delete: "_delete",
    s.Merge: "_merge",
    s.Truncate: "_truncate",
    s.CreateTable: "_create",
    s.Convert: "_convert",
    s.AddColumns: "_add_columns",
    s.DropColumns: "_drop_columns",
    s.RenameColumn: "_rename_column",
    s.AlterColumn: "_alter_column",
    s.AlterDefault: "_alter_default",
    s.SyncIdentity: "_sync_identity",
    s.SetProperties: "_set_properties",
    s.UnsetProperties: "_unset_properties",
    s.AddConstraint: "_add_constraint",
    s.DropConstraint: "_drop_constraint",
    s.DropFeature: "_drop_feature",
    s.ClusterBy: "_cluster_by",
    s.CommentOnTable: "_comment",
    s.Optimize: "_optimize",
    s.Reorg: "_reorg",
    s.Restore: "_restore",
    s.Describe: "_describe",
    s.DescribeDetail: "_detail",
    s.DescribeHistory: "_history",
    s.ShowTables: "_show_tables",
    s.ShowNamespaces: "_show_namespaces",
    s.ShowColumns: "_show_columns",
    s.ShowProperties: "_show_properties",
}
