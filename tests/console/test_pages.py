"""Every page over HTTP, on every backend."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import quote

import pyarrow as pa
from prometheus_client.parser import text_string_to_metric_families

import deltasql
from deltasql.api.inspect.history import Participant
from deltasql.console.console import READ
from deltasql.console.pages.history import describe
from deltasql.console.server import serving
from deltasql.model.row_changes import RowChanges
from tests.console.conftest import HOSTILE, days, table_name

if TYPE_CHECKING:
    import pytest

    from tests.console.conftest import Site

PAGES = {
    "/": ["orders", "Commits per hour", "<svg"],
    "/?hours=720": ["30 days"],
    "/tables/orders": ["Growth", "Files by size", "Partitions", "Latest commits"],
    "/tables/orders/rows": ["Rows 1 to 35 of 35", "Where", "channel", "NULL"],
    "/tables/orders/rows?where=id+%3E+100&sort=id&descending=1": ["descending", "Open as a query"],
    "/tables/orders/versions/7": ["Added", "commitInfo", "channel", "Metrics"],
    "/tables/orders/versions/6": ["Removed", "DELETE", "predicate"],
    "/tables/orders/versions/0": ["Tables of the transaction", "crm.stock", "protocol"],
    "/?search=STOCK&order=size&descending=1": ["crm", "Search all tables"],
    "/tables/orders/history": ["DELETE", "+1 row", "WRITE"],
    "/tables/orders/history?operation=DELETE": ["DELETE"],
    "/tables/orders/files": ["day=2024-05-01", ".parquet"],
    "/tables/orders/files?predicate=id+%3D+200&order=size&descending=1": [".parquet"],
    "/tables/orders/schema": ["channel", "added", "Version 7", "Version 0", "partition"],
    "/tables/orders/travel": ["&lt;b&gt;", "Differences", "Rows added"],
    "/tables/orders/travel?version=6&against=5": ["Rows removed", "Files removed"],
    "/tables/orders/travel?version=3&against=3": ["The same version"],
    "/tables/crm.stock": ["stock", "crm"],
    "/transactions": ["orders", "crm.stock", "2 tables"],
    "/mirror": ["orders", "up to date"],
    "/mirror?order=lag&descending=1": ["aria-sort"],
    "/mirror/orders": ["complete", "Publish missing versions"],
    "/maintenance": ["orders", "crm.stock"],
    "/maintenance?order=files&descending=1": ["aria-sort", "crm.stock"],
    "/maintenance/orders": ["Optimize", "Vacuum", "Would free"],
    "/migration": ["orders", "the database", "Follow"],
    "/migration/orders": ["Rollback", "Not published"],
    "/sql": ["SELECT", "orders"],
    "/audit": ["No actions yet"],
    "/health": ["connectivity", "Checks"],
    "/login": ["Token"],
}


def test_every_page_shows_its_content(site: Site) -> None:
    for path, texts in PAGES.items():
        shown = site.get(path)
        assert shown.status_code == 200, shown.text
        missing = [each for each in texts if each not in shown.text]
        assert not missing, path


def test_every_read_only_page_has_a_case_in_this_file() -> None:
    seen = [re.sub(r"orders|crm\.stock", "{name}", path.partition("?")[0]) for path in PAGES]
    seen = [re.sub(r"versions/\d+", "versions/{version:int}", path) for path in seen]
    others = {"/sql/schema", "/transactions/{txn_id}", "/jobs/{job_id}", "/tables/{name}/figures"}
    assert {path for path, _ in READ} <= {*seen, *others}


def test_transaction_page_shows_all_its_tables(site: Site) -> None:
    listed = site.get("/transactions").text
    txn_id = re.search(r"/transactions/([^\"]+)\"", listed)
    assert txn_id is not None
    shown = site.get(f"/transactions/{txn_id[1]}").text
    assert "crm.stock" in shown
    assert "orders" in shown


def test_hostile_name_is_escaped(site: Site) -> None:
    for part in ("", "/history", "/files", "/schema", "/travel"):
        shown = site.get(f"/tables/{quote(table_name(HOSTILE), safe='')}{part}")
        assert shown.status_code == 200
        assert "<script>alert" not in shown.text
        assert "&lt;script&gt;alert(1)" in shown.text
        assert "<img src=x" not in shown.text
        assert "{{7*7}}" in shown.text


def test_hostile_name_has_working_links(site: Site) -> None:
    for page in ("/", "/maintenance", "/mirror", "/sql"):
        shown = site.get(page).text
        links = re.findall(r'href="(/(?:tables|maintenance|mirror)/[^"]*script[^"]*)"', shown)
        assert all(site.get(link).status_code == 200 for link in links)
        assert links or page == "/sql"


MISSING = [
    ("/tables/nosuch", 404),
    ("/nosuch", 404),
    ("/tables/orders/history?cursor=zz", 400),
    ("/tables/orders/travel?version=x", 400),
    ("/tables/orders/travel?version=0&against=99", 404),
    ("/tables/orders/files?order=bogus", 400),
    ("/tables/orders/rows?sort=bogus", 400),
    ("/tables/orders/rows?version=99", 404),
    ("/tables/orders/versions/99", 404),
    (f"/tables/orders/versions/{10**30}", 404),
    ("/?order=bogus", 400),
    ("/jobs/nosuch", 404),
    ("/mirror/nosuch", 404),
]


def test_missing_page_is_a_client_error(site: Site) -> None:
    for path, status in MISSING:
        shown = site.get(path)
        assert shown.status_code == status, path
        assert "Back to the catalog" in shown.text
        assert "Traceback" not in shown.text


def test_missing_version_error_names_the_available_range(site: Site) -> None:
    for query in ("version=999", "version=999&against=999", "version=0&against=999"):
        shown = site.get(f"/tables/orders/travel?{query}")
        assert shown.status_code == 404, query
        assert "has no version 999; it has 0 to 7" in shown.text, query


def test_merge_shows_changed_rows_without_copied_rows(site: Site) -> None:
    with site.catalog.begin() as tx:
        tx.write("big", pa.table({"id": range(1000), "v": [0] * 1000}))
        tx.write("other", pa.table({"id": [1]}))
    with site.catalog.begin() as tx:
        changes = pa.table({"id": range(980, 1016), "v": [1] * 36})
        merge = tx.merge("big", changes, "s.id = t.id", "s", "t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        tx.write("other", pa.table({"id": [2]}))
    (event, *_) = site.catalog.inspect.transactions(table="big").items
    pages = (
        "/tables/big",
        "/tables/big/history",
        "/tables/big/travel?version=1",
        "/transactions",
        f"/transactions/{event.txn_id}",
    )
    for page in pages:
        shown = site.get(page).text
        assert ">+16 rows<" in shown, page
        assert ">20 updated<" in shown, page
        assert "1,016 rows<" not in shown, page
    # Nothing was inserted: copied rows must not be shown as inserted.
    with site.catalog.begin() as tx:
        merge = tx.merge("big", pa.table({"id": [5], "v": [2]}), "s.id = t.id", "s", "t")
        merge.when_matched_update_all().execute()
    shown = site.get("/tables/big/travel?version=2").text
    assert ">1 updated<" in shown
    assert ">+1,016 rows<" not in shown


def test_lists_are_paged_completely(sqlite_uri: deltasql.uri.DeltaSqlUri) -> None:
    with deltasql.connect(sqlite_uri, mirror={"mode": "off"}) as catalog:
        for number in range(60):
            with catalog.begin() as tx:
                tx.write(f"t{number:02d}", days(number))
        for number in range(70):
            with catalog.begin() as tx:
                tx.write("t00", days(number))
        import httpx

        with serving(catalog) as served, httpx.Client(base_url=served.address) as client:
            for path, name in (
                ("/", r"/tables/(t\d\d)\""),
                ("/tables/t00/history", r"versions/(\d+)\""),
                ("/tables/t00/files", r"(part-\S+?\.parquet)<"),
                ("/maintenance", r"/maintenance/(t\d\d)\""),
                ("/mirror", r"/mirror/(t\d\d)\?"),
            ):
                seen: list[str] = []
                address: str | None = path
                while address is not None:
                    shown = client.get(address).text
                    seen += dict.fromkeys(re.findall(name, shown))
                    following = re.search(r'href="([^"]+)" rel="next">Next page', shown)
                    address = following[1].replace("&amp;", "&") if following else None
                expected = 71 if "t00" in path else 60
                assert len(seen) == len(set(seen)) == expected, path


def test_query_shows_rows_and_a_plot(site: Site) -> None:
    sql = "SELECT day, count(*) AS n FROM orders GROUP BY day ORDER BY day"
    shown = site.post("/sql", {"sql": sql})
    assert shown.status_code == 200
    assert shown.text.count("<tr>") == 4
    assert "<svg" in shown.text.split('id="result"')[0].split("Plot</h2>")[1]
    assert "&lt;b&gt;0" in site.post("/sql", {"sql": "SELECT note FROM orders@0 ORDER BY id"}).text


def test_invalid_query_shows_its_error(site: Site) -> None:
    for sql, message in (
        ("SELECT * FROM oders", "Did you mean orders?"),
        ("DROP TABLE orders", "only queries can be run"),
        ("SELECT * FROM read_text('/etc/passwd')", "not available"),
        ("SELECT nosuch FROM orders", "nosuch"),
        ("", "the query is empty"),
    ):
        shown = site.post("/sql", {"sql": sql})
        assert shown.status_code == 400
        assert message in shown.text


def test_query_result_is_paged_and_available_as_csv(site: Site) -> None:
    sql = "SELECT n FROM range(250) t(n) ORDER BY n"
    first, third = (site.post("/sql", {"sql": sql, "page": page}).text for page in ("1", "3"))
    assert "Next rows" in first
    assert ">99<" in first
    assert ">100</td>" not in first
    assert ">249<" in third
    assert "Next rows" not in third
    written = site.post("/sql", {"sql": sql, "format": "csv"})
    assert written.headers["content-type"].startswith("text/csv")
    assert written.text.splitlines() == ['"n"', *(str(number) for number in range(250))]
    nested = site.post("/sql", {"sql": "SELECT [1, 2] AS a", "format": "csv"})
    assert "[1, 2]" in nested.text


def test_query_in_a_url_runs_only_if_a_person_opened_the_url(site: Site) -> None:
    query = {"sql": "SELECT 41 + 1 AS answer", "run": "1"}
    for origin in ("cross-site", "same-site", None):
        headers = {"Sec-Fetch-Site": origin} if origin else {}
        shown = site.get("/sql", params=query, headers=headers).text
        assert "SELECT 41 + 1" in shown, origin
        assert 'id="result"' not in shown, origin
    for origin in ("none", "same-origin"):
        shown = site.get("/sql", params=query, headers={"Sec-Fetch-Site": origin}).text
        assert ">42</td>" in shown, origin


def test_query_result_has_a_url_that_shows_the_result_again(site: Site) -> None:
    sql = "SELECT n FROM range(1200) t(n) ORDER BY n DESC"
    shown = site.post("/sql", {"sql": sql, "rows": "500", "page": "3", "plot": "none"}).text
    (address,) = re.findall(r'data-address="([^"]+)"', shown)
    again = site.get(address.replace("&amp;", "&"), headers={"Sec-Fetch-Site": "none"}).text
    assert again.count('<td class="number">') == shown.count('<td class="number">') == 200
    long = site.post("/sql", {"sql": f"{sql} -- {'x' * 9000}"}).text
    assert 'id="result"' in long
    assert "data-address" not in long


def test_editor_completes_tables_and_columns(site: Site) -> None:
    found = site.get("/sql/schema").json()
    assert found["orders"] == ["id", "day", "note", "channel"]
    assert found["crm"] == {"stock": ["sku", "left"]}


def plotted(site: Site, sql: str, kind: str = "auto") -> str | None:
    """Return the label of the plot of a query."""
    shown = site.post("/sql", {"sql": sql, "plot": kind}).text.split("<h2>Plot</h2>")
    return None if len(shown) == 1 else re.findall(r'aria-label="([^"]*)"', shown[1])[0]


def test_plot_is_chosen_by_the_meaning_of_the_columns(site: Site) -> None:
    days = "SELECT DATE '2024-05-01' + n::INT AS day, n AS order_id, n * 2 AS amount, n AS other "
    assert plotted(site, f"{days} FROM range(9) t(n)") == "amount by day"
    assert plotted(site, f"{days} FROM range(9) t(n)", "line") == "order_id, amount, other by day"
    names = "SELECT 'name ' || n AS name, n AS amount FROM range({}) t(n)"
    assert plotted(site, names.format(20)) == "amount by name"
    assert plotted(site, names.format(21)) is None
    assert plotted(site, names.format(21), "bar") == "amount by name"
    assert plotted(site, "SELECT DATE '2024-05-01' AS day, n AS v FROM range(9) t(n)") is None
    assert plotted(site, "SELECT n AS id, n AS v FROM range(9) t(n)") is None
    wide = ", ".join(f"n AS c{number}" for number in range(300))
    assert plotted(site, f"SELECT 'x' || n AS name, {wide} FROM range(9) t(n)") is None


def test_pages_of_an_empty_catalog_open(catalog_uri: deltasql.uri.DeltaSqlUri) -> None:
    import httpx

    with (
        deltasql.connect(catalog_uri, create=True) as catalog,
        serving(catalog) as served,
        httpx.Client(base_url=served.address, timeout=60) as client,
    ):
        for path in ("/", "/transactions", "/mirror", "/maintenance", "/sql", "/health"):
            assert client.get(path).status_code == 200, path
        assert "No tables yet" in client.get("/").text


def test_metrics_page_has_prometheus_metrics(site: Site) -> None:
    site.get("/metrics")  # collection starts with this request
    site.get("/tables/orders")
    shown = site.get("/metrics")
    assert shown.status_code == 200
    assert "pool_connections" in shown.text
    assert 'mirror_lag_seconds{table="' in shown.text
    families = text_string_to_metric_families(shown.text)
    (files,) = [each for each in families if each.name == "files_active"]
    output = {each.labels["table"]: each.value for each in files.samples}
    tables = site.catalog.inspect.tables().items
    assert {each.name: each.files for each in tables}.items() <= output.items()


def test_metrics_that_are_not_finite_are_left_out() -> None:
    metrics = {"numFiles": "inf", "executionTimeMs": "NaN", "numDeletedFiles": 2}
    commit = Participant("orders", 1, "VACUUM END", metrics, RowChanges(None, None, None))
    assert describe(commit) == ["2 files deleted"]


def test_version_with_deleted_files_shows_a_message(site: Site) -> None:
    location = site.catalog.table("crm.stock").location
    for path in site.catalog.table("crm.stock").scan().paths():
        pa.fs.LocalFileSystem().delete_file(f"{location}/{path}")
    shown = site.get("/tables/crm.stock/travel")
    assert shown.status_code == 200
    assert "can no longer be read" in shown.text
    with site.catalog.begin() as tx:
        tx.write("crm.stock", pa.table({"sku": ["b"], "left": [6]}), mode="overwrite")
    assert "can no longer be compared" in site.get("/tables/crm.stock/travel").text


def test_rows_are_filtered_sorted_and_paged_by_the_server(site: Site) -> None:
    with site.catalog.begin() as tx:
        tx.write("many", pa.table({"n": range(120), "even": [n % 2 == 0 for n in range(120)]}))

    def numbers(query: str) -> list[int]:
        shown = site.get(f"/tables/many/rows?{query}")
        assert shown.status_code == 200, shown.text
        return [int(each) for each in re.findall(r'<td class="number">(\d+)</td>', shown.text)]

    assert numbers("sort=n&descending=1") == list(range(119, 69, -1))
    assert numbers("sort=n&descending=1&page=3") == list(range(19, -1, -1))
    assert numbers("where=even+AND+n+%3C+9&sort=n") == [0, 2, 4, 6, 8]
    # The next page reads the version of the first page, also after another commit.
    first = site.get("/tables/many/rows?sort=n").text
    (following,) = re.findall(r'href="([^"]+)" rel="next">Next page', first)
    with site.catalog.begin() as tx:
        tx.write("many", pa.table({"n": [-1] * 60, "even": [False] * 60}))
    shown = site.get(following.replace("&amp;", "&")).text
    assert ">50</td>" in shown
    assert "Version 0" in shown
    for where in ("nosuch = 1", "n = (", "1) SELECT", "read_text('/etc/passwd') = ''"):
        refused = site.get("/tables/many/rows", params={"where": where})
        assert refused.status_code == 400, where
        assert 'role="alert"' in refused.text, where
    assert "No row matches" in site.get("/tables/many/rows?where=n+%3E+999").text


def test_tables_are_searched_and_sorted_over_all_pages(site: Site) -> None:
    with site.catalog.begin() as tx:
        for number in range(60):
            tx.write(f"t{number:02d}", pa.table({"id": range(number + 1)}))

    def listed(query: str) -> list[str]:
        return re.findall(
            r'<td class="name"><a href="/tables/([^"/]+)"', site.get(f"/?{query}").text
        )

    assert listed("search=T5") == [f"t5{number}" for number in range(10)]
    assert listed("search=crm.s") == ["crm.stock"]
    assert listed("search=%25") == listed("search=script")  # not a wildcard
    assert listed("search=nosuch") == []
    assert listed("search=t&order=rows&descending=1")[:2] == ["t59", "t58"]
    # Later pages continue in the same order.
    first = site.get("/?order=rows&descending=1").text
    (following,) = re.findall(r'href="/?([^"]+)" rel="next">Next page', first)
    page = listed(following.replace("&amp;", "&").lstrip("?"))
    assert page[-1] in ("t00", "crm.stock")
    assert len(page) == 13


def test_commit_page_has_files_and_participants(site: Site) -> None:
    shown = site.get("/tables/orders/versions/0").text
    assert "/tables/crm.stock/versions/0" in shown
    assert shown.count(".parquet") >= 3
    assert "Version 0" in shown
    deleted = site.get("/tables/orders/versions/6").text
    assert "Removed" in deleted
    assert "Added" in deleted
    assert "id = 3" in deleted


def test_commit_of_many_files_is_shown_without_its_actions(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deltasql.console.pages.history.JSON_FILES", 2)
    shown = site.get("/tables/orders/versions/0")
    assert shown.status_code == 200
    assert "too many to show its actions" in shown.text
