"""Log files that are made while the commit is being ratified are those of the commit, or none."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest

from deltasql.api.mirror import Mirror
from deltasql.mirror import foreseen as module
from deltasql.mirror.log_files import commit_bytes
from tests.mirror.support import LOG, commit_path, log_names, open_mirrored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

ROWS = pa.table({"id": [1, 2, 3]})
PROPERTIES = {"delta.checkpointInterval": "1000"}


@pytest.fixture
def mirrored(postgres_uri: DeltaSqlUri, tmp_path: Path) -> Iterator[Catalog]:
    with open_mirrored(postgres_uri, tmp_path / "lake") as catalog:
        catalog.create_table("t", ROWS.schema, properties=PROPERTIES)
        for _ in range(2):  # the first append takes the long way
            append(catalog)
        yield catalog


@pytest.fixture
def foreseen(mirrored: Catalog, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was foreseen since, as it was made."""
    made: list[Any] = []
    foresee = Mirror.foresee

    def told(mirror: Mirror, commit: Any) -> Any:
        made.append(foresee(mirror, commit))
        return made[-1]

    committer: Any = mirrored.committer
    monkeypatch.setattr(committer, "_foresee", lambda commit: told(mirrored.mirror, commit))
    return made


def append(catalog: Catalog) -> None:
    with catalog.begin() as tx:
        tx.write("t", ROWS)


def check(catalog: Catalog) -> None:
    """The log is what SQL says, every version has a checksum, and nothing else is there."""
    table = catalog.table("t")
    last = table.version()
    with catalog.store.session() as session:
        for version in range(last + 1):
            wanted = commit_bytes(session, table.row.table_id, version)
            assert commit_path(table.location, version).read_bytes() == wanted
    ends = (".crc", ".json")
    assert log_names(table.location) == [f"{v:020d}{end}" for v in range(last + 1) for end in ends]
    [report] = catalog.mirror.verify("t", with_deltalake=False)
    assert report.ok, report.summary()
    assert report.checksums == last + 1


def test_an_append_that_nobody_disturbs_is_foreseen(mirrored: Catalog, foreseen: list[Any]) -> None:
    for _ in range(3):
        append(mirrored)
    assert [each.file.version for each in foreseen] == [3, 4, 5]
    assert all(each.commit is not None and each.checksum is not None for each in foreseen)
    check(mirrored)


def test_another_commit_in_between_makes_it_another_version(
    mirrored: Catalog, foreseen: list[Any], postgres_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with open_mirrored(postgres_uri, tmp_path / "lake") as other:
        with mirrored.begin() as tx:
            tx.write("t", ROWS)
            append(other)
        assert tx.versions == {"t": 4}
    assert [each.file.version for each in foreseen] == [3]
    check(mirrored)


def test_a_head_of_the_future_makes_it_another_time(mirrored: Catalog, foreseen: list[Any]) -> None:
    with mirrored.store.session() as session:
        session.script("UPDATE dl_table_heads SET committed_at_ms = committed_at_ms + 3600000")
    for _ in range(2):
        append(mirrored)
    assert [each.file.version for each in foreseen] == [3, 4]
    for version, each in enumerate(foreseen, 3):
        assert commit_path(mirrored.table("t").location, version).read_bytes() != each.file.data
    check(mirrored)


def test_what_cannot_be_foreseen_is_made_afterwards(
    mirrored: Catalog, foreseen: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("no totals today")

    monkeypatch.setattr(module, "foreseen_totals", fail)
    append(mirrored)
    assert foreseen == [None]
    check(mirrored)


def test_a_replica_gets_files_of_its_own(
    mirrored: Catalog, foreseen: list[Any], tmp_path: Path
) -> None:
    replica = tmp_path / "replica"
    mirrored.mirror.add_target("t", "second", str(replica))
    append(mirrored)
    place = Path(mirrored.table("t").location)
    assert len(foreseen) == 1
    for name in log_names(place):
        assert (replica / LOG / name).read_bytes() == (place / LOG / name).read_bytes()
    check(mirrored)


def test_nobody_waits_for_the_note_that_a_version_is_published(
    mirrored: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialect: Any = mirrored.store.dialect
    handed, hand_over = [], dialect.hand_over

    def told(name: str, **params: Any) -> bool:
        handed.append(name)
        return bool(hand_over(name, **params))

    monkeypatch.setattr(dialect, "hand_over", told)
    append(mirrored)
    assert handed == ["note_staged_files", "record_published"]
    assert dialect._pool._home.note is not None  # on its way
    assert [each.published_version for each in mirrored.mirror.status("t")] == [3]
    check(mirrored)


def test_a_note_of_a_published_version_that_is_lost_is_made_good(mirrored: Catalog) -> None:
    pool = mirrored.store.dialect._pool  # type: ignore[attr-defined]
    with pool.lend() as connection:
        other = psycopg.connect(connection.info.dsn)
        pid = connection.info.backend_pid
    with other:
        other.execute("SELECT 1 FROM dl_mirror_targets FOR UPDATE")
        append(mirrored)  # its note waits for the row
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    assert [each.published_version for each in mirrored.mirror.status("t")] == [2]
    append(mirrored)
    assert [each.published_version for each in mirrored.mirror.status("t")] == [4]
    check(mirrored)


def test_a_log_that_was_shut_meanwhile_is_found_out(mirrored: Catalog) -> None:
    with mirrored.store.session() as session:
        session.script("UPDATE dl_mirror_targets SET state = 'QUARANTINED'")
    append(mirrored)
    [status] = mirrored.mirror.status("t")
    assert (status.state, status.published_version) == ("QUARANTINED", 2)
    append(mirrored)
    assert [each.published_version for each in mirrored.mirror.status("t")] == [2]
    mirrored.mirror.repair("t")
    check(mirrored)


def test_a_prepared_note_that_is_gone_is_sent_anew(mirrored: Catalog) -> None:
    for _ in range(3):  # prepared when it comes for the second time
        append(mirrored)
    with mirrored.store.session() as session:
        names = session._connection.execute("SELECT statement FROM pg_prepared_statements")  # type: ignore[attr-defined]
        assert any("dl_mirror_status" in text for (text,) in names)
        session._connection.execute("DEALLOCATE ALL")  # type: ignore[attr-defined]
    append(mirrored)
    assert [each.published_version for each in mirrored.mirror.status("t")] == [6]
    check(mirrored)
