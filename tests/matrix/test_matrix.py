"""The matrix itself: its cells, its stored results, and the relay that loses responses."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from docs.tools import tested_with

from tests.matrix import report
from tests.matrix.__main__ import cells, main
from tests.matrix.behaviours import BEHAVIOURS, OK, Place, relayed_store
from tests.matrix.relay import Relay
from tests.matrix.report import Result, load, save, terminal, write_rows
from tests.spark.on_release import FROM_4_2, NO_BUILD, YES
from tests.spark.releases import failures

if TYPE_CHECKING:
    from pathlib import Path

COMMIT = "0123456789ab"


def test_matrix_lists_each_cell_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    names = capsys.readouterr().out.splitlines()
    assert len(names) == len(set(names)) == sum(map(len, cells().values()))
    assert "PostgreSQL 18" in names


def test_unknown_cell_is_an_error() -> None:
    with pytest.raises(SystemExit):
        main(["--only", "no such cell"])


def test_failed_and_skipped_cells_are_run_again(tmp_path: Path) -> None:
    finished = Result("SQLite", "3.37.0", {"commit": OK}, None, 1.0, COMMIT)
    failed = Result("SQLite", "3.37.0", {"commit": "Failure: rows"}, None, 1.0, COMMIT)
    skipped = Result("SQLite", "3.37.0", {}, "cargo is missing", 1.0, COMMIT)
    kept = []
    for number, result in enumerate((finished, failed, skipped)):
        save(tmp_path / str(number), result)
        kept.append(load(tmp_path / str(number)))
    assert kept == [finished, None, None]
    assert load(tmp_path / "missing") is None


def test_table_shows_failures_and_reasons() -> None:
    failed = Result("SQLite", "3.37.0", {"commit": "Failure: rows"}, None, 1.0, COMMIT)
    skipped = Result("DuckDB", "1.4", {}, "not installed", 1.0, COMMIT)
    text = terminal([failed, skipped], tuple(BEHAVIOURS))
    assert "FAILED" in text
    assert "SQLite 3.37.0: commit: Failure: rows" in text
    assert "skipped: not installed" in text


def test_page_describes_every_behaviour() -> None:
    assert list(tested_with.BEHAVIOURS) == list(BEHAVIOURS)


def test_page_names_the_commit_at_which_each_row_was_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "ROWS", tmp_path)
    monkeypatch.setattr(tested_with, "ROWS", tmp_path)
    results = [
        Result("SQLite", release, {"commit": OK}, None, 1.0, commit)
        for release, commit in (("3.37.0", COMMIT), ("3.54.1", "fedcba987654"))
    ]
    names = [each.name for each in results]
    for each in results:
        write_rows("databases", names, {each.name: each})
    rows = [line for line in tested_with.tested_with_page().splitlines() if "| SQLite" in line]
    assert [row.split(" | ")[1] for row in rows] == ["3.37.0", "3.54.1"]
    assert [row.split(" | ")[-1] for row in rows] == [f"{COMMIT} |", "fedcba987654 |"]


def test_check_that_needs_a_newer_spark_is_not_counted_as_a_failure() -> None:
    found = {"a": YES, "b": FROM_4_2, "c": NO_BUILD, "d": "AssertionError: found 1, expected 2"}
    assert failures(found) == {"d": "AssertionError: found 1, expected 2"}


def test_relay_loses_one_response_of_a_request_that_arrived() -> None:
    arrived: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def echo() -> None:
            with suppress(OSError):  # the test closes the server at its end
                while True:
                    connection, _ = server.accept()
                    with connection:
                        while data := connection.recv(100):
                            arrived.append(data)
                            connection.sendall(data)

        threading.Thread(target=echo, daemon=True).start()
        with Relay(*server.getsockname()) as relay:
            client = socket.create_connection(("127.0.0.1", relay.port))
            relay.lose(after=1)
            assert _ask(client, b"first") == b"first"
            assert _ask(client, b"second") == b""
            again = socket.create_connection(("127.0.0.1", relay.port))
            assert _ask(again, b"third") == b"third"
            client.close()
            again.close()
    assert arrived == [b"first", b"second", b"third"]
    assert relay.lost == 1


def test_relay_address_replaces_the_store_in_the_options_and_in_the_spark_settings() -> None:
    options = {"AZURE_STORAGE_ENDPOINT": "http://127.0.0.1:9/account", "AZURE_ALLOW_HTTP": "true"}
    place = Place("deltasql://sqlite/meta.db", "az://lake", options)
    settings = {"spark.hadoop.fs.azure.abfs.endpoint": "127.0.0.1:9"}
    with relayed_store(place, settings) as (relayed, changed):
        (relay,) = relayed.relays
        address = f"127.0.0.1:{relay.port}"
        assert relayed.storage_options == {
            **options,
            "AZURE_STORAGE_ENDPOINT": f"http://{address}/account",
        }
        assert changed == {"spark.hadoop.fs.azure.abfs.endpoint": address}


def _ask(client: socket.socket, request: bytes) -> bytes:
    client.sendall(request)
    return client.recv(100)
