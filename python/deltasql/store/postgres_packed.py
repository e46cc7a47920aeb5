"""Lists of files from PostgreSQL, packed by the server: few rows, each with whole columns.

ADBC reads the types of all that a database has when it connects, which takes about as long as to
list a hundred thousand files. Here the connection at hand is asked, and no file becomes a Python
object. A packed statement returns rows of: how many files, then for each column either its
integers (`bytea`), or the lengths of its texts (`..._lengths`) and the texts themselves (`text`).
"""

from __future__ import annotations

import struct
import sys
from array import array
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, Format

from deltasql.store.postgres_wire import flush, next_result, numbered, told

if TYPE_CHECKING:
    from psycopg.pq.abc import PGconn, PGresult

    from deltasql.store.dialect import Row

    Connection = psycopg.Connection[Row]

_PACKED = {
    "files_brief": "packed_files_brief",
    "files_plain": "packed_files_plain",
    "files_to_read": "packed_files_to_read",
}
# To pack costs a server more than COPY: above this, ADBC makes up for what it takes to connect.
_MOST_FILES = 200_000
_BIGINT, _BYTEA = 20, 17
_LENGTHS = "_lengths"
# An integer that is NULL travels as the least of all. Made from bytes: `pa.scalar` loads pandas.
_NULL = pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(struct.pack("=q", -(2**63)))])[0]


def packed_form(name: str, params: dict[str, Any]) -> str | None:
    """Return the packed statement of a bulk read, where there is one and it is the faster way."""
    if name not in _PACKED or params["next_file_id"] - params["first_file_id"] > _MOST_FILES:
        return None
    # A checkpoint reads file after file: of a table of many, ADBC reads what comes later.
    if name == "files_plain" and params["next_file_id"] > _MOST_FILES + 1:
        return None
    return _PACKED[name]


def is_plain(connection: Connection) -> bool:
    """Tell whether texts are as long on the wire as in the database: no encoding is changed."""
    pgconn = connection.pgconn
    encodings = (b"server_encoding", b"client_encoding")
    return all(pgconn.parameter_status(each) == b"UTF8" for each in encodings)


def read_packed(connection: Connection, name: str, params: dict[str, Any]) -> pa.Table:
    """Run a packed statement, whose parameters are all integers."""
    text, names = numbered(name)
    values = [b"%d" % params[each] for each in names]
    pgconn = connection.pgconn
    try:
        pgconn.send_query_params(text, values, [_BIGINT] * len(names), None, Format.BINARY)
        pgconn.set_single_row_mode()  # a page is unpacked while the server packs the next
        flush(pgconn)
        return pa.Table.from_batches(_batches(pgconn))
    except psycopg.Error:
        raise
    except BaseException:
        connection.close()  # an answer that nobody takes would be taken for the next one
        raise


def _batches(pgconn: PGconn) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = []
    refusal: psycopg.Error | None = None
    while (result := next_result(pgconn)) is not None:
        if result.status == ExecStatus.SINGLE_TUPLE:
            batches.append(_unpacked(result))
        elif result.status != ExecStatus.TUPLES_OK:
            refusal = error_from_result(result)
        elif not batches:
            batches.append(_unpacked(result))  # without rows, it still tells the columns
    if refusal is not None:
        raise told(pgconn, refusal)
    return [each for each in batches if each.num_rows] or batches[:1]


def _unpacked(result: PGresult) -> pa.RecordBatch:
    values = [result.get_value(0, number) or b"" for number in range(result.nfields)]
    count = int.from_bytes(values[0], "big")
    columns: dict[str, pa.Array] = {}
    lengths = b""
    for number in range(1, result.nfields):
        name = (result.fname(number) or b"").decode()
        if name.endswith(_LENGTHS):
            lengths = values[number]
        elif result.ftype(number) == _BYTEA:
            columns[name] = _integers(values[number], count)
        else:
            columns[name] = _texts(lengths, values[number], count)
    return pa.RecordBatch.from_pydict(columns)


def _integers(packed: bytes, count: int) -> pa.Array:
    values = array("q", packed)
    if sys.byteorder == "little":
        values.byteswap()
    if len(values) != count:
        raise ValueError(f"{len(values)} integers came for {count} files")
    found = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(values)])
    valid = pc.not_equal(found, _NULL)
    if valid.false_count == 0:
        return found
    return pa.Array.from_buffers(pa.int64(), count, [valid.buffers()[1], found.buffers()[1]])


def _texts(lengths: bytes, packed: bytes, count: int) -> pa.Array:
    # Sums of the lengths from a zero on are the places where the texts begin and end.
    values = array("i", bytes(4) + lengths)
    if sys.byteorder == "little":
        values.byteswap()
    sizes = pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(values)])
    places = pc.cumulative_sum(sizes)
    if len(values) != count + 1 or places[count].as_py() != len(packed):
        raise ValueError(f"{len(values) - 1} texts of {len(packed)} bytes came for {count} files")
    return pa.StringArray.from_buffers(count, places.buffers()[1], pa.py_buffer(packed))
