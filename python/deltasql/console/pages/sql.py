"""SQL over the catalog's tables: results in pages, as a plot or as CSV."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from starlette.responses import Response

from deltasql.console.plots import KINDS, Plot, plot_of
from deltasql.console.values import Grid, grid_of
from deltasql.exceptions import TxnLogError

if TYPE_CHECKING:
    from deltasql.console.asking import Ask

PER_PAGE = 100
MOST_PAGES = 100
MOST_CSV_ROWS = 1_000_000
TIMEOUT_S = 60.0
_SHOWN_TABLES = 200
# A name in quotes is never wrong; one without is easier to read where it is no word of SQL.
_PLAIN = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)+|[a-z]{2,}s")


@dataclass(frozen=True, slots=True)
class Result:
    """What a query gave."""

    grid: Grid
    plot: Plot | None
    seconds: float
    page: int
    has_more: bool


def show(ask: Ask) -> Response:
    """The editor; a query in the address is put there, not run."""
    return _page(ask, ask.text("sql"))


def run(ask: Ask) -> Response:
    """Answer a query."""
    text = ask.form.get("sql", "")
    try:
        if ask.form.get("format") == "csv":
            return _csv(ask, text)
        return _page(ask, text, result=_result(ask, text))
    except TxnLogError as error:
        return _page(ask, text, problem=error, status=400)


def written(namespace: str, name: str) -> str:
    """Return a table's name as a query writes it, quoted where it has to be.

    >>> written("default", "sales"), written("crm", "a b")
    ('sales', '"crm"."a b"')
    """
    parts = [name] if namespace == "default" else [namespace, name]
    if all(_PLAIN.fullmatch(part) for part in parts):
        return ".".join(parts)
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)


def _result(ask: Ask, text: str) -> Result:
    given = ask.form.get("page", "1")
    page = min(MOST_PAGES, max(1, int(given) if given.isdecimal() else 1))
    started = time.perf_counter()
    found = ask.catalog.query(text, limit=page * PER_PAGE + 1, timeout=TIMEOUT_S).read_all()
    seconds = time.perf_counter() - started
    shown = found.slice((page - 1) * PER_PAGE, PER_PAGE)
    return Result(
        grid=grid_of(shown),
        plot=plot_of(found.slice(0, page * PER_PAGE), ask.form.get("plot", "auto")),
        seconds=seconds,
        page=page,
        has_more=found.num_rows > page * PER_PAGE and page < MOST_PAGES,
    )


def _csv(ask: Ask, text: str) -> Response:
    import pyarrow.csv as pa_csv

    answer = ask.catalog.query(text, limit=MOST_CSV_ROWS, timeout=TIMEOUT_S).read_all()
    nested = [f.name for f in answer.schema if pa.types.is_nested(f.type)]
    if nested:
        answer = pa.table(
            [
                pa.array([str(value) for value in column.to_pylist()], pa.string())
                if pa.types.is_nested(column.type)
                else column
                for column in answer.columns
            ],
            names=answer.column_names,
        )
    sink = pa.BufferOutputStream()
    pa_csv.write_csv(answer, sink)
    return Response(
        bytes(sink.getvalue()),
        media_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": 'attachment; filename="query.csv"'},
    )


def _page(ask: Ask, text: str, status: int = 200, **values: Any) -> Response:
    tables = ask.catalog.tables()
    given: dict[str, Any] = {"result": None, "problem": None, **values}
    return ask.page(
        "sql.html",
        status,
        sql=text,
        tables=tables[:_SHOWN_TABLES],
        hidden=max(0, len(tables) - _SHOWN_TABLES),
        plot=ask.form.get("plot", "auto"),
        kinds=KINDS,
        **given,
    )
