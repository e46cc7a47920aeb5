"""The options of `format("deltasql")`."""

from __future__ import annotations

import json
from dataclasses import dataclass

from deltasql.api.stream.options import READING, STREAMING, WRITING, TextOptions
from deltasql.exceptions import TxnLogConfigError, TxnLogUriError
from deltasql.uri import DeltaSqlUri, is_deltasql_uri, parse_uri, split_table_name


@dataclass(frozen=True, slots=True)
class SourceOptions(TextOptions):
    """The options of one `load` or `save`."""

    catalog: str | None = None
    """The catalog in which a table name without a URI is looked up."""

    def check(self) -> None:
        """Raise if an option is unknown, because it would be ignored silently."""
        if "provider" in self.given or "owner" in self.given:
            raise TxnLogConfigError(
                "CREATE TABLE … USING deltasql and saveAsTable cannot create a table of the "
                "catalog: Spark would only add it to its own catalog",
                key="provider",
                help="Create it with deltasql.spark.write(df, uri) or DeltaTable.create(spark).",
            )
        self.check_names((*READING, *STREAMING, *WRITING, "path"))

    def table(self) -> DeltaSqlUri:
        """Return the URI of the table that `load` or `save` names."""
        path = self.text("path")
        if path is not None and is_deltasql_uri(path):
            uri = parse_uri(path)
        elif path is not None and self.catalog is not None and "/" not in path:
            namespace, name = split_table_name(path)
            uri = parse_uri(self.catalog).with_table(name, namespace)
        else:
            raise TxnLogUriError(
                f"format('deltasql') needs the name or the URI of a table, not {path!r}",
                help="Give a URI, as in .load('deltasql://sqlite//lake/meta.db?table=sales'), or "
                "call deltasql.spark.register(spark, catalog) and give the table's name.",
            )
        if uri.table is None:
            raise TxnLogUriError(
                f"{uri} names a catalog, not a table",
                help="Add ?table=name.",
            )
        return uri

    def names(self, name: str) -> list[str] | None:
        """Return an option that lists column names, separated by commas or as a JSON list."""
        found = self.text(name)
        if found is None:
            return None
        if found.lstrip().startswith("["):
            return [str(each) for each in json.loads(found)]
        return [each.strip() for each in found.split(",") if each.strip()]
