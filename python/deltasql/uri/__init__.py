"""The `deltasql://` URI: which database holds the log, and which table in it.

    deltasql://sqlite//abs/meta.db?table=sales         an absolute path has two slashes
    deltasql://sqlite/rel/meta.db?table=crm.sales      table `sales` in namespace `crm`
    deltasql://duckdb/:memory:?table=t
    deltasql://postgres/user:pass@host:5432/db/crm/sales?sslmode=require
    deltasql://postgres/db/sales                       host and credentials from PG* variables
    deltasql://postgres/@host/db                       a catalog: no table is named

PostgreSQL takes `db`, `db/table` or `db/namespace/table`. What stands before it is the server,
told from a database name by its `@` or `:port`; a socket directory goes to `?host=`.

A name has 1 to 255 characters, spaces and any script included, but no control character and no
`/`, and is not `.` or `..`. In `?table=` a dot parts namespace and name; a dot that belongs to a
name is written `%2E`. Every part may be percent-encoded; `+` stands for itself.

`${NAME}` and `${NAME:-default}` are replaced by the environment variable, whose text is taken as
it is: a password needs no encoding there. Only a variable that opens the URI may hold a whole URI.

>>> uri = parse_uri("deltasql://postgres/ann:s3cret@db.local/lake/crm/sales?version=3")
>>> uri.host, uri.database, uri.namespace, uri.table, uri.version
('db.local', 'lake', 'crm', 'sales', 3)
>>> print(uri)
deltasql://postgres/ann:***@db.local/lake/crm/sales?version=3
>>> print(uri.catalog().with_table("orders"))
deltasql://postgres/ann:***@db.local/lake/orders
"""

from deltasql.uri.names import DEFAULT_NAMESPACE, join_table_name, split_table_name
from deltasql.uri.parameters import PARAMETERS, Backend, MirrorMode, Parameter, Pooler, SslMode
from deltasql.uri.parse import is_database_file, parse_uri
from deltasql.uri.value import DeltaSqlUri, is_deltasql_uri

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
