"""Validate a staged commit: its actions, and their fit with the protocol and schema."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from deltasql._core import canonical_path, nests_too_deep
from deltasql.exceptions import InvalidActionError, TxnLogTransactionError
from deltasql.model.actions import logical_file
from deltasql.model.properties import check_values
from deltasql.model.protocol import check_lawful, check_writable, required_features, writer_features
from deltasql.model.schema.column_mapping import check_mapping
from deltasql.model.schema.rules import validate_schema
from deltasql.model.schema.schema import StructType

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deltasql.commit.staged import Staged
    from deltasql.commit.table_state import TableState
    from deltasql.model.actions import Metadata, Protocol


def validate_staged(staged: Staged) -> None:
    """Check the actions of a commit by themselves, without the table."""
    table = staged.table.full_name
    _refuse(table, "adds a file without a path", ("''" for f in staged.adds if not f.path))
    _refuse(
        table,
        "adds a file with a negative size or time",
        (f.path for f in staged.adds if f.size < 0 or f.modification_time < 0),
    )
    _refuse(
        table,
        "has a file with statistics that are nested too deep",
        (path for path, stats in _statistics(staged) if nests_too_deep(stats)),
        help="Omit the statistics: no reader of the log could parse them.",
    )
    if len(staged.adds) == 1 and staged.is_blind_append and not (staged.txns or staged.domains):
        return  # nothing can be duplicated
    paths = {canonical_path(f.path) for f in staged.adds}
    paths.update(canonical_path(f.path) for f in staged.removes)
    if len(paths) < len(staged.adds) + len(staged.removes):
        _refuse_repeated(staged)  # one path may occur twice, with different deletion vectors
    apps = Counter(txn.app_id for txn in staged.txns)
    _refuse(table, "sets an application's version twice", (a for a, n in apps.items() if n > 1))
    domains = Counter(domain.domain for domain in staged.domains)
    _refuse(table, "sets a metadata domain twice", (d for d, n in domains.items() if n > 1))


def _statistics(staged: Staged) -> Iterator[tuple[str, str | None]]:
    yield from ((file.path, file.stats) for file in staged.adds)
    yield from ((file.path, file.stats) for file in staged.removes)


def _refuse_repeated(staged: Staged) -> None:
    table = staged.table.full_name
    added = Counter(map(logical_file, staged.adds))
    removed = Counter(map(logical_file, staged.removes))
    _refuse(table, "adds a file twice", (k[0] for k, n in added.items() if n > 1))
    _refuse(table, "removes a file twice", (k[0] for k, n in removed.items() if n > 1))
    _refuse(table, "adds and removes the same file", (k[0] for k in added.keys() & removed.keys()))


def validate_against(staged: Staged, state: TableState) -> None:
    """Check the commit against the protocol, schema and properties that the table will have."""
    table = staged.table.full_name
    expected = state.partition_keys
    for add in staged.adds:
        if add.partition_values.keys() != expected:
            raise InvalidActionError(
                f"{add.path!r} has partition values for {sorted(add.partition_values)}, "
                f"but {table} is partitioned by {list(state.partition_columns)}",
                help="Give every partition column a value, or null.",
            )
    if "deletionVectors" not in state.features:
        _refuse(
            table,
            "has a deletion vector but the table does not support the feature deletionVectors",
            (f.path for f in staged.adds if f.deletion_vector),
        )
    if staged.domains and "domainMetadata" not in state.features:
        raise InvalidActionError(
            f"{table} does not support the feature domainMetadata",
            help="Enable the table feature domainMetadata first.",
        )
    if state.append_only and any(f.data_change for f in staged.removes):
        raise TxnLogTransactionError(
            "The transaction includes Remove action with data change but "
            "Delta table is append-only",
            table=table,
            help="Set delta.appendOnly to false to delete or change rows.",
        )


def validate_table(metadata: Metadata, protocol: Protocol) -> None:
    """Check new metadata and protocol: valid schema, valid properties, all required features."""
    schema = StructType.from_json(metadata.schema_string)
    validate_schema(schema, metadata.partition_columns)
    check_values(metadata.configuration)
    check_mapping(schema, metadata.configuration)
    check_lawful(protocol)
    check_writable(protocol, schema, metadata.configuration)
    missing = required_features(schema, metadata.configuration) - writer_features(protocol)
    if missing:
        raise InvalidActionError(
            "the schema or properties need table features that the protocol lacks: "
            + ", ".join(sorted(missing)),
            help="Stage a protocol action with these features in the same commit.",
        )


def _refuse(
    table: str,
    problem: str,
    paths: Iterable[str],
    *,
    help: str = "Each file, application and domain appears once in a commit.",
) -> None:
    shown = sorted(paths)
    if shown:
        more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
        raise InvalidActionError(
            f"a commit to {table} {problem}: {', '.join(shown[:3])}{more}",
            help=help,
        )
