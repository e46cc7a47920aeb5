"""The `deltasql://` URI: the database that contains the log, and a table in it.

    deltasql://sqlite//abs/meta.db?table=sales         an absolute path has two slashes
    deltasql://sqlite/rel/meta.db?table=crm.sales      table `sales` in namespace `crm`
    deltasql://duckdb/:memory:?table=t
    deltasql://postgres/user:pass@host:5432/db?table=crm.sales
    deltasql://postgres/db?table=sales                 host and credentials from PG* variables
    deltasql://postgres/@host/db                       a catalog, without a table

`?table=` names the table on every database. The path of a PostgreSQL URI may also be `db/table` or
`db/namespace/table`. If a part before the database contains `@` or `:port`, that part is the
server. A socket directory is given as `?host=`.

A name has 1 to 255 characters of any script, including spaces, but no control character and no `/`,
and is not `.` or `..`. In `?table=` a dot separates namespace and name; a dot in a name is written
`%2E`. Every part may be percent-encoded; `+` is a plus sign, not a space.

`${NAME}` and `${NAME:-default}` are replaced by the environment variable. Its value is used
literally, so a password in a variable needs no percent-encoding. If a variable contains a whole
URI, the URI must begin with this variable.

>>> uri = parse_uri("deltasql://postgres/ann:s3cret@db.local/lake?table=crm.sales")
>>> uri.host, uri.database, uri.namespace, uri.table
('db.local', 'lake', 'crm', 'sales')
>>> print(uri)
deltasql://postgres/ann:***@db.local/lake?table=crm.sales
>>> print(uri.catalog().with_table("orders"))
deltasql://postgres/ann:***@db.local/lake?table=orders
"""

from deltasql.uri.deltasql_uri import (
    DEFAULT_NAMESPACE,
    DeltaSqlUri,
    is_database_file,
    is_deltasql_uri,
    join_table_name,
    parse_uri,
    split_table_name,
)
from deltasql.uri.parameters import PARAMETERS, Backend, MirrorMode, Parameter, Pooler, SslMode

__all__ = [
    "DEFAULT_NAMESPACE",
    "PARAMETERS",
    "Backend",
    "DeltaSqlUri",
    "MirrorMode",
    "Parameter",
    "Pooler",
    "SslMode",
    "is_database_file",
    "is_deltasql_uri",
    "join_table_name",
    "parse_uri",
    "split_table_name",
]
