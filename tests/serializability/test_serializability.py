"""One order of transactions explains what many clients read, and the checker finds violations."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.selection import EVERYTHING
from tests.serializability.checker import Log, Version, problems
from tests.serializability.record import COMMITTED, FAILED, READ, Recorder, Transaction, load
from tests.serializability.rows import (
    APPEND,
    INSERT,
    OVERWRITE,
    REPLACE,
    UPSERT,
    Change,
    RowLog,
    row_problems,
)
from tests.serializability.run import in_processes, in_threads

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri

_SECONDS = 8.0 if EVERYTHING else 5.0
LEVELS = ("Serializable", "WriteSerializable")
NOTHING: frozenset[str] = frozenset()


def test_reads_of_concurrent_clients_are_explained_by_one_order(
    backend: str, catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    run = in_threads if backend == "duckdb" else in_processes
    result = run(catalog_uri, tmp_path, seed="fixed", seconds=_SECONDS)
    assert result.problems == []
    assert result.transactions[COMMITTED] > 0
    assert result.transactions[READ] > 0
    assert result.changes.keys() >= {APPEND, OVERWRITE, REPLACE, UPSERT}


def test_partial_line_of_a_killed_client_is_ignored(tmp_path: Path) -> None:
    out = tmp_path / "client.jsonl"
    with out.open("w") as lines:
        recorder = Recorder(lines)
        recorder.record_start(Transaction("first", 1))
        recorder.record_end("first", COMMITTED, {})
        recorder.record_start(Transaction("second", 2))
    content = out.read_bytes()
    for cut in range(1, len(content) + 1):
        out.write_bytes(content[:cut])
        found = load([out])
        ended = [each.outcome for each in found]
        assert ended == [[], [None], [COMMITTED], [COMMITTED, None]][content[:cut].count(b"\n")]


# The checker finds violations


def test_checker_accepts_a_valid_order() -> None:
    assert problems([WRITER, reader(a=1, b=1)], LOGS) == []
    assert problems([WRITER, reader(a=0, b=0, start=0)], LOGS) == []


def test_checker_finds_a_lost_commit() -> None:
    lost = committed("lost", {"a": 2}, start=5, end=6, adds={"a": {"z"}})
    assert "was acknowledged" in problems([WRITER, lost], LOGS)[0]


def test_checker_finds_a_rejected_commit_in_the_log() -> None:
    failed = Transaction("w", 1, adds={"a": frozenset({"x"}), "b": frozenset({"y"})})
    failed.outcome = FAILED
    assert "failed but is in" in problems([failed], LOGS)[0]


def test_checker_finds_a_partial_commit() -> None:
    logs = {**LOGS, "b": Log(LOGS["b"].versions[:1], serializable=True)}
    no_response = Transaction("w", 1, adds=WRITER.adds)
    assert "only in ['a']" in problems([no_response], logs)[0]


def test_checker_finds_a_duplicated_commit() -> None:
    twice = [*LOGS["a"].versions, LOGS["a"].versions[1]]
    logs = {**LOGS, "a": Log(twice, serializable=True)}
    assert any("twice" in problem for problem in problems([WRITER], logs))


def test_checker_finds_a_read_of_nonexistent_files() -> None:
    read = reader(a=1)
    read.reads["a"] = (1, frozenset({"other"}))
    assert "did not read a as version 1" in problems([WRITER, read], LOGS)[0]


def test_checker_finds_a_read_of_two_snapshots() -> None:
    [problem] = problems([WRITER, reader(a=0, b=1)], LOGS)
    assert "did not see a later version" in problem


def test_checker_finds_a_read_older_than_an_acknowledged_commit() -> None:
    [problem] = problems([WRITER, reader(a=0, start=10)], LOGS)
    assert "did not see a later version" in problem


def test_checker_finds_a_change_based_on_an_outdated_read() -> None:
    late = committed("late", {"a": 2}, start=1, end=9, adds={"a": {"z"}})
    late.reads["a"] = (0, NOTHING)
    versions = [*LOGS["a"].versions, Version("late", frozenset({"z"}), NOTHING)]
    logs = {**LOGS, "a": Log(versions, serializable=True)}
    assert any("before it in a" in problem for problem in problems([WRITER, late], logs))
    logs["a"] = Log(versions, serializable=False)
    assert problems([WRITER, late], logs) == []


# The checker finds rows that no order of the changes explains


def test_checker_finds_two_overwrites_that_both_survive() -> None:
    both = [change(OVERWRITE, 1, saw=0), change(OVERWRITE, 2, saw=0)]
    for level in LEVELS:
        assert row_problems(*history(level, both, [[1], [1, 2]]))
        assert row_problems(*history(level, both, [[1], [2]])) == []


def test_checker_finds_an_append_that_survives_an_overwrite_when_serializable() -> None:
    both = [change(APPEND, 1, saw=0), change(OVERWRITE, 2, saw=0)]
    assert row_problems(*history("Serializable", both, [[1], [1, 2]]))
    assert row_problems(*history("WriteSerializable", both, [[1], [1, 2]])) == []
    lost = row_problems(*history("WriteSerializable", both, [[1], [2]]))
    assert lost, "the append was removed by a commit that did not see it"


def test_checker_finds_an_inserted_row_that_survives_an_overwrite() -> None:
    both = [change(INSERT, 1, saw=0), change(OVERWRITE, 2, saw=0)]
    for level in LEVELS:
        assert row_problems(*history(level, both, [[1], [1, 2]]))


def test_checker_finds_a_key_that_was_inserted_twice() -> None:
    both = [change(OVERWRITE, 1, saw=0), change(INSERT, 1, saw=0)]
    for level in LEVELS:
        assert row_problems(*history(level, both, [[1], [1, 1]]))


def test_checker_finds_an_append_without_a_possible_order() -> None:
    """The insert saw the append, and the overwrite saw neither."""
    changes = [change(APPEND, 1, saw=0), change(INSERT, 4, saw=1), change(REPLACE, 1, saw=0)]
    [problem] = row_problems(*history("WriteSerializable", changes, [[1], [1, 4], [1, 1, 4]]))
    assert "no order" in problem


def change(kind: str, key: int, *, saw: int) -> Change:
    part = "xyz"[key % 3]
    return Change(kind, ((key, part, ""),), saw, part if kind == REPLACE else None)


def history(
    level: str, changes: list[Change], states: list[list[int]]
) -> tuple[list[Transaction], dict[str, RowLog]]:
    """Return a table that is created at version 0 and changed by one transaction after another."""
    transactions = [
        Transaction(str(number), number, changes={"t": each}, outcome=COMMITTED)
        for number, each in enumerate(changes, 1)
    ]
    rows = [Counter((key, "xyz"[key % 3], "") for key in keys) for keys in ([], *states)]
    versions = [(str(number), each) for number, each in enumerate(rows)]
    return transactions, {"t": RowLog(versions, serializable=level == "Serializable")}


def committed(
    txn_id: str, versions: dict[str, int], *, start: int, end: int, adds: dict[str, set[str]]
) -> Transaction:
    files = {name: frozenset(paths) for name, paths in adds.items()}
    return Transaction(txn_id, start, adds=files, outcome=COMMITTED, versions=versions, end_ns=end)


def reader(*, start: int = 2, **versions: int) -> Transaction:
    states = {"a": (NOTHING, frozenset({"x"})), "b": (NOTHING, frozenset({"y"}))}
    reads = {name: (version, states[name][version]) for name, version in versions.items()}
    return Transaction("r", start, reads, outcome=READ, end_ns=start + 5)


WRITER = committed("w", {"a": 1, "b": 1}, start=1, end=4, adds={"a": {"x"}, "b": {"y"}})
LOGS = {
    name: Log(
        [Version(f"create {name}", NOTHING, NOTHING), Version("w", frozenset({path}), NOTHING)],
        serializable=True,
    )
    for name, path in (("a", "x"), ("b", "y"))
}
