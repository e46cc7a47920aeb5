"""Large, unusual or many rows: pages stay small, and truncated CSV files say so."""

from __future__ import annotations

import csv
import io
import json
import re
import threading
import time
from html import unescape
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltasql.console import rows
from deltasql.console.pages import sql as sql_page
from deltasql.engine.query_limits import QueryLimits
from deltasql.exceptions import TxnLogEngineError

if TYPE_CHECKING:
    from tests.console.conftest import Site


@pytest.fixture
def backend() -> str:
    """Use SQLite only: rows do not depend on the backend."""
    return "sqlite"


ODD = """
SELECT CAST('\\xFF\\x00a' AS BLOB) AS bytes, INTERVAL 14 MONTH AS span, [1, NULL] AS list,
  {'a': 1, 'b': CAST('\\xFE' AS BLOB)} AS pair, CAST(NULL AS INTEGER[]) AS nothing,
  CAST(NULL AS BLOB) AS no_bytes, 1.50 AS number, 'a, "b"' AS text
"""


def test_unusual_values_are_readable_in_csv(site: Site) -> None:
    shown = site.post("/sql", {"sql": ODD, "format": "csv"})
    assert shown.status_code == 200
    (row,) = csv.DictReader(io.StringIO(shown.text))
    assert row["bytes"] == "ff0061"
    assert row["span"] == "P14M0DT0S"
    assert json.loads(row["list"]) == [1, None]
    assert json.loads(row["pair"]) == {"a": 1, "b": "fe"}
    assert (row["nothing"], row["no_bytes"]) == ("", "")
    assert (row["number"], row["text"]) == ("1.50", 'a, "b"')
    page = site.post("/sql", {"sql": ODD})
    assert page.status_code == 200
    assert "P14M0DT0S" in page.text


def test_file_name_of_a_truncated_csv_has_its_number_of_rows(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = "SELECT n FROM range(3000) t(n)"
    whole = site.post("/sql", {"sql": sql, "format": "csv"})
    assert 'filename="query.csv"' in whole.headers["content-disposition"]
    assert len(whole.text.splitlines()) == 3001
    monkeypatch.setattr(rows, "MAX_CSV_ROWS", 2500)
    cut = site.post("/sql", {"sql": sql, "format": "csv"})
    assert 'filename="query-first-2500-rows.csv"' in cut.headers["content-disposition"]
    assert len(cut.text.splitlines()) == 2501
    monkeypatch.setattr(rows, "MAX_CSV_BYTES", 100)
    assert (
        "query-first-"
        in site.post("/sql", {"sql": sql, "format": "csv"}).headers["content-disposition"]
    )


def test_rows_above_the_size_limit_are_omitted_with_a_message(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = "SELECT n, repeat('x', 10000) AS text FROM range(90) t(n)"
    assert "size limit" not in site.post("/sql", {"sql": sql}).text
    monkeypatch.setattr(rows, "MAX_BYTES", 100_000)
    shown = site.post("/sql", {"sql": sql})
    assert shown.status_code == 200
    assert "exceeds the size limit" in shown.text
    assert 0 < shown.text.count("xxxxx…") < 90
    monkeypatch.setattr(rows, "MAX_BYTES", 1)
    shown = site.get("/tables/orders/travel")
    assert shown.status_code == 200
    assert "exceeds the size limit" in shown.text


def test_limits_are_checked_per_batch_and_shown(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql = "SELECT n FROM range(10000) t(n)"
    result = site.catalog.query(sql, batch_rows=rows.BATCH_ROWS)
    assert max(each.num_rows for each in result) <= rows.BATCH_ROWS
    read = []

    def counted(sql: str, **options: Any) -> pa.RecordBatchReader:
        found = ask(sql, **options)
        output = (read.append(each.num_rows) or each for each in found)
        return pa.RecordBatchReader.from_batches(found.schema, output)

    ask = site.catalog.query
    monkeypatch.setattr(site.catalog, "query", counted)
    monkeypatch.setattr(rows, "MAX_BYTES", 1000)
    shown = site.post("/sql", {"sql": sql, "page": "100"}).text
    assert "exceeds the size limit" in shown
    assert sum(read) <= rows.BATCH_ROWS
    monkeypatch.undo()
    shown = site.post("/sql", {"sql": sql.replace("10000", "10001"), "page": "100"}).text
    assert "Up to 60 seconds, 10,000 rows and 64 MiB on this page" in shown
    assert "pages end at 10,000 rows" in shown
    assert "pages end at" not in site.post("/sql", {"sql": sql, "page": "100"}).text


def test_query_is_stopped_at_its_timeout_with_a_message(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_page, "TIMEOUT_S", 0.2)
    endless = (
        "SELECT count(*) AS n FROM range(100000000) a, range(100000) b WHERE a.range < b.range"
    )
    for form in ({}, {"format": "csv"}):
        shown = site.post("/sql", {"sql": endless, **form})
        assert shown.status_code == 400
        assert "it took longer than 0.2 s" in shown.text


def test_large_value_is_truncated(site: Site) -> None:
    sql = """
    SELECT encode(repeat('x', 3000000)) AS bytes, repeat('y', 3000000) AS text,
      [repeat('z', 3000000)] AS list
    """
    shown = site.post("/sql", {"sql": sql})
    assert shown.status_code == 200
    assert len(shown.text) < 100_000
    assert all(f"{each * 20}" in shown.text for each in ("78 ", "y", "z"))


def test_values_larger_than_the_limit_are_shortened_on_pages_and_refused_in_files(
    site: Site,
) -> None:
    # Each value alone exceeds the size limit of a page.
    sql = "SELECT n, repeat('y', 80000000) AS long, n AS long FROM range(3) t(n)"
    shown = site.post("/sql", {"sql": sql})
    assert shown.status_code == 200
    assert shown.text.count("yyyyy…") == 3
    assert len(shown.text) < 100_000
    for kind in ("csv", "parquet"):
        refused = site.post("/sql", {"sql": sql, "format": kind})
        assert refused.status_code == 400, kind
        assert "a value of the column long has more than 64 MiB" in refused.text
    half = "SELECT encode(repeat('y', 1000)) AS bytes, repeat('ü', 3000) AS text"
    (row,) = csv.DictReader(io.StringIO(site.post("/sql", {"sql": half, "format": "csv"}).text))
    assert (len(row["bytes"]), row["text"]) == (2000, "ü" * 3000)


def test_rows_with_shortened_values_keep_their_order(site: Site) -> None:
    sql = """SELECT 'key ' || n AS key, CAST('{"n": 1}' AS JSON) AS document
    FROM range(5000) t(n) ORDER BY n DESC"""
    shown = site.post("/sql", {"sql": sql, "rows": "1000"}).text
    found = [int(each) for each in re.findall(r">key (\d+)</td>", shown)]
    assert found == list(range(4999, 3999, -1))


def test_type_that_parquet_lacks_is_an_error_with_a_remedy(site: Site) -> None:
    form = {"sql": "SELECT [INTERVAL 1 DAY] AS spans", "format": "parquet"}
    refused = site.post("/sql", form)
    assert refused.status_code == 400
    assert "cannot be written as PARQUET" in refused.text
    assert site.post("/sql", {**form, "format": "csv"}).status_code == 200


@pytest.mark.everything("three values of 1 GB take several gigabytes of memory")
def test_gigabyte_values_do_not_hang_a_request(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sql_page, "TIMEOUT_S", 600.0)  # other tests use the processor, too
    for value in ("{}", "[{}]"):
        sql = f"SELECT {value.format('repeat(chr(121), 1000000000)')} AS long FROM range(3) t(n)"
        for form, status in (({}, 200), ({"format": "csv"}, 400)):
            started = time.process_time()
            shown = site.post("/sql", {"sql": sql, **form}, timeout=600)
            assert shown.status_code == status, value
            assert len(shown.content) < 100_000
            assert time.process_time() - started < 60, value


NESTED = """
SELECT [{0}] AS list, [[{0}], NULL] AS lists, {{'a b': {0}, 'n': 1}} AS pair, row({0}, 1) AS "row",
  MAP {{'k': {0}}} AS map, array_value({0}, 'z') AS "array", [encode({0})] AS bytes,
  range({1}) AS numbers, [{{'a': {0}}}] AS pairs, CAST(NULL AS STRUCT(a VARCHAR)) AS no_pair,
  CAST(NULL AS VARCHAR[]) AS no_list, CAST(NULL AS MAP(VARCHAR, VARCHAR)) AS no_map
"""


def test_long_nested_values_are_shortened_on_pages_and_refused_in_downloads(site: Site) -> None:
    short = NESTED.format("'y'", 3)
    shown = site.post("/sql", {"sql": short})
    assert shown.status_code == 200
    for value in ('["y"]', '[["y"], null]', '{"a b": "y", "n": 1}', "[0, 1, 2]", '["79"]'):
        assert value in unescape(shown.text), value
    (row,) = csv.DictReader(io.StringIO(site.post("/sql", {"sql": short, "format": "csv"}).text))
    assert json.loads(row["pair"]) == {"a b": "y", "n": 1}
    assert json.loads(row["array"]) == ["y", "z"]
    assert json.loads(row["row"]) == {"1": "y", "2": 1}
    assert (row["no_pair"], row["no_list"], row["no_map"]) == ("", "", "")
    long = NESTED.format("repeat('y', 120000)", 120_000)
    limits = QueryLimits(shorten=100)
    (batch,) = site.catalog.query(long, limits=limits).read_all().to_batches()
    assert batch.nbytes < 3000
    found = batch.to_pylist()[0]
    assert found["list"] == ["y" * 100]
    assert found["pair"] == {"a b": "y" * 100, "n": 1}
    assert found["map"] == [("k", "y" * 100)]
    assert found["array"] == ["y" * 100, "z"]
    assert found["numbers"] == list(range(100))
    assert (found["no_pair"], found["no_list"], found["no_map"]) == (None, None, None)
    for column in ("list", "lists", "pair", "row", "map", "array", "bytes", "numbers", "pairs"):
        sql = f'SELECT "{column}" AS long FROM ({long})'
        with pytest.raises(TxnLogEngineError, match="a value of the column long has more than"):
            site.catalog.query(sql, limits=QueryLimits(longest_value=100_000)).read_all()
    for many in (
        "list_transform(range(100000), lambda x: '')",
        "map(range(100000), range(100000))",
        "union_value(text := repeat('y', 300000))",
        "bitstring('1', 300000)",
    ):
        with pytest.raises(TxnLogEngineError, match="a value of the column long has more than"):
            site.catalog.query(
                f"SELECT {many} AS long", limits=QueryLimits(longest_value=100_000)
            ).read_all()
    rows = "SELECT array_value(row(1, repeat('y', 3000)), row(3, 'z')) AS rows"
    (found,) = site.catalog.query(rows, limits=limits).read_all().to_pylist()
    assert found == {"rows": [{"1": 1, "2": "y" * 100}, {"1": 3, "2": "z"}]}


def test_text_that_starts_like_a_formula_is_escaped_in_csv(site: Site) -> None:
    sql = """
    SELECT '=1+1' AS "=head", '+1' AS plus, '-1' AS minus, '@x' AS at, -1.5 AS number,
      'a=1' AS plain, CAST(NULL AS VARCHAR) AS nothing, INTERVAL '-1' DAY AS span
    """
    shown = site.post("/sql", {"sql": sql, "format": "csv"}).text
    (row,) = csv.DictReader(io.StringIO(shown))
    assert row["'=head"] == "'=1+1"
    assert (row["plus"], row["minus"], row["at"]) == ("'+1", "'-1", "'@x")
    assert (row["number"], row["plain"], row["nothing"]) == ("-1.5", "a=1", "")


def test_result_can_be_downloaded_as_parquet(site: Site) -> None:
    sql = """SELECT n, '=' || n AS text, INTERVAL 14 MONTH AS span, [n] AS list
    FROM range(5000) t(n) ORDER BY n"""
    file = site.post("/sql", {"sql": sql, "format": "parquet"})
    assert 'filename="query.parquet"' in file.headers["content-disposition"]
    found = pq.read_table(io.BytesIO(file.content))
    assert found.num_rows == 5000
    assert found.slice(4999).to_pylist() == [
        {"n": 4999, "text": "=4999", "span": "P14M0DT0S", "list": [4999]}
    ]


def test_query_is_cancelled_when_the_browser_stops_loading(site: Site) -> None:
    endless = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(1000000) b"
    started, ended = threading.Event(), threading.Event()
    run = site.catalog.query

    def watched(*arguments: Any, **options: Any) -> pa.RecordBatchReader:
        started.set()
        try:
            return run(*arguments, **options)
        finally:
            ended.set()

    with patch.object(site.catalog, "query", watched):
        with pytest.raises(httpx.ReadTimeout):
            site.post("/sql", {"sql": endless}, timeout=2)
        assert started.is_set()
        assert ended.wait(30)
