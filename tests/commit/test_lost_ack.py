"""Lost acknowledgements of PostgreSQL: a commit is applied once and its outcome is never wrong."""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING

import psycopg
import pytest
from deltalake import DeltaTable

from deltasql.commit.committer import Committer
from deltasql.exceptions import (
    CommitOutcomeUnknownError,
    StoreBusyError,
    StoreUnavailableError,
    TableChangedError,
    TableExistsError,
    TxnLogTransactionError,
)
from deltasql.phases import hooked
from tests.commit.proxy import Cut, Proxy
from tests.commit.support import SCHEMA, audit, commit, file, live, open_catalog

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from deltasql import AddFile, Catalog
    from deltasql.uri import DeltaSqlUri

QUICK = {"max_attempts": 3, "initial_backoff_ms": 1, "max_backoff_ms": 5}


@pytest.fixture
def direct(postgres_uri: DeltaSqlUri) -> Iterator[Catalog]:
    """A catalog with tables t and u, over a connection that is never cut."""
    name = f"deltasql-{uuid.uuid4().hex[:12]}"
    with open_catalog(postgres_uri, store={"application_name": name}) as catalog:
        catalog.create_table("t", SCHEMA)
        catalog.create_table("u", SCHEMA)
        yield catalog


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with Proxy() as running:
        yield running


@pytest.fixture
def proxied(direct: Catalog, proxy: Proxy) -> Iterator[Catalog]:
    """The same catalog through the proxy, after a first commit.

    After the first commit, a blind append of one file is one statement. All other commits are
    transactions from BEGIN to COMMIT.
    """
    settings = {"retry": QUICK, "pool": {"timeout_s": 1}}
    with open_catalog(proxy.uri(direct.uri), **settings) as catalog:
        commit(catalog, file("warm"))
        yield catalog


def two(name: str) -> list[AddFile]:
    """Return two files, whose commit is a transaction from BEGIN to COMMIT."""
    return [file(f"{name}1"), file(f"{name}2")]


def test_commit_with_a_lost_acknowledgement_is_applied_once_and_succeeds(
    direct: Catalog, proxied: Catalog, proxy: Proxy
) -> None:
    proxy.arm("reply to COMMIT")
    with proxied.begin() as tx:
        tx.stage_table("t", file("a"))
        tx.stage_table("u", file("b"))
    assert proxy.cuts == 1
    assert tx.versions == {"t": 2, "u": 1}
    assert (live(direct), live(direct, "u")) == (["a", "warm"], ["b"])
    assert direct.table("t").history(1)[0].txn_id == tx.txn_id
    audit(direct)


def test_commit_with_a_lost_acknowledgement_is_found_although_the_history_expires(
    direct: Catalog, proxied: Catalog, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("delta.logRetentionDuration", "delta.deletedFileRetentionDuration")
    with direct.begin() as tx:
        tx.set_table_properties("t", dict.fromkeys(names, "interval 0 seconds"))
    commit(proxied, file("again"))

    def expire(*_: object) -> float:
        commit(direct, file("later"))
        time.sleep(0.01)
        direct.expire_history("t", dry_run=False)
        return 0.0

    proxy.arm("reply to COMMIT")
    monkeypatch.setattr(Committer, "_backoff_s", expire)
    assert commit(proxied, two("a")) == 4
    assert proxy.cuts == 1
    assert live(direct) == ["a1", "a2", "again", "later", "warm"]


def test_commit_with_a_lost_acknowledgement_is_looked_up_even_if_retries_are_off(
    direct: Catalog, proxy: Proxy
) -> None:
    with open_catalog(proxy.uri(direct.uri), retry={"max_attempts": 1}) as once:
        commit(once, file("warm"))
        proxy.arm("reply to COMMIT")
        assert commit(once, two("a")) == 2
        proxy.arm("reply to SELECT")
        assert commit(once, file("b")) == 3
    assert proxy.cuts == 2
    assert live(direct) == ["a1", "a2", "b", "warm"]


@pytest.mark.parametrize("cut", ["request after BEGIN", "half of it"])
def test_commit_is_retried_when_the_connection_fails_before_commit_is_sent(
    direct: Catalog, proxied: Catalog, proxy: Proxy, cut: Cut
) -> None:
    proxy.arm(cut)
    assert commit(proxied, two("a")) == 2
    assert proxy.cuts == 1
    assert live(direct) == ["a1", "a2", "warm"]
    audit(direct)


def test_create_table_with_a_lost_acknowledgement_succeeds(
    direct: Catalog, proxied: Catalog, proxy: Proxy
) -> None:
    proxy.arm("reply to COMMIT")
    proxied.create_table("new", SCHEMA)
    assert direct.table("new").version() == 0
    with pytest.raises(TableExistsError):
        proxied.create_table("new", SCHEMA)


def test_commit_with_a_lost_acknowledgement_is_found_after_a_rename(
    direct: Catalog, proxied: Catalog, proxy: Proxy
) -> None:
    proxy.arm("reply to COMMIT", then=lambda: direct.rename("t", "renamed") and None)
    assert commit(proxied, two("a")) == 2
    assert live(direct, "renamed") == ["a1", "a2", "warm"]


def test_commit_with_a_lost_acknowledgement_is_found_after_another_commit(
    direct: Catalog, proxied: Catalog, proxy: Proxy
) -> None:
    proxy.arm("reply to COMMIT", then=lambda: commit(direct, file("theirs")) and None)
    assert commit(proxied, two("ours")) == 2
    assert live(direct) == ["ours1", "ours2", "theirs", "warm"]
    assert direct.table("t").version() == 3


def test_outcome_is_unknown_when_the_server_stops_after_commit_was_sent(
    direct: Catalog, proxied: Catalog, proxy: Proxy
) -> None:
    proxy.arm("reply to COMMIT", then=proxy.stop_accepting)
    tx = proxied.begin()
    tx.stage_table("t", two("a"))
    began = time.monotonic()
    with pytest.raises(CommitOutcomeUnknownError) as caught:
        tx.commit()
    assert time.monotonic() - began < 20
    assert caught.value.txn_id == tx.txn_id
    assert caught.value.table == "t"
    # The commit was applied: the latest version has its transaction id.
    assert direct.table("t").history(1)[0].txn_id == tx.txn_id


@pytest.fixture
def short_lock_timeout_role(direct: Catalog) -> Iterator[str]:
    """A role with a very short lock timeout."""
    name = f"impatient_{uuid.uuid4().hex[:12]}"
    with psycopg.connect(os.environ["TEST_DATABASE_URL"], autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN SUPERUSER PASSWORD '{name}'")
        connection.execute(f"ALTER ROLE {name} SET lock_timeout = 20")
        yield name
        connection.execute(f"DROP ROLE {name}")


def test_outcome_is_unknown_when_the_lookup_fails(
    direct: Catalog, proxy: Proxy, short_lock_timeout_role: str
) -> None:
    """The attempt with the lost acknowledgement may have committed, however later attempts fail."""
    uri = replace(
        proxy.uri(direct.uri), user=short_lock_timeout_role, password=short_lock_timeout_role
    )
    with (
        psycopg.connect(os.environ["TEST_DATABASE_URL"]) as other,
        open_catalog(uri, retry=QUICK) as proxied,
    ):
        heads = f"{direct.uri.search_path}.dl_table_heads"
        commit(proxied, file("warm"))
        proxy.arm(
            "reply to COMMIT",
            then=lambda: other.execute(f"SELECT FROM {heads} FOR UPDATE") and None,
        )
        tx = proxied.begin()
        tx.stage_table("t", two("a"))
        with pytest.raises(CommitOutcomeUnknownError) as caught:
            tx.commit()
        other.rollback()
        assert caught.value.txn_id == tx.txn_id
        assert direct.table("t").history(1)[0].txn_id == tx.txn_id
        # A lock timeout without a lost acknowledgement: nothing was committed, and the error says
        # so.
        other.execute(f"SELECT FROM {heads} FOR UPDATE")
        with pytest.raises(StoreBusyError):
            commit(proxied, two("b"))
        with pytest.raises(StoreBusyError):
            commit(proxied, file("b"))
    assert live(direct) == ["a1", "a2", "warm"]


def test_single_file_append_with_a_lost_acknowledgement_is_applied_once(
    direct: Catalog, proxied: Catalog, proxy: Proxy
) -> None:
    proxy.arm("reply to SELECT", then=lambda: commit(direct, file("theirs")) and None)
    assert commit(proxied, file("ours")) == 2
    assert proxy.cuts == 1
    assert live(direct) == ["ours", "theirs", "warm"]
    audit(direct)


def test_single_file_append_outcome_is_unknown_when_the_server_stops(
    direct: Catalog, proxied: Catalog, proxy: Proxy
) -> None:
    proxy.arm("reply to SELECT", then=proxy.stop_accepting)
    tx = proxied.begin()
    tx.stage_table("t", file("a"))
    with pytest.raises(CommitOutcomeUnknownError) as caught:
        tx.commit()
    assert caught.value.txn_id == tx.txn_id
    assert direct.table("t").history(1)[0].txn_id == tx.txn_id


def test_single_file_append_detects_new_metadata_renames_and_live_files(
    direct: Catalog, proxied: Catalog
) -> None:
    commit(proxied, file("a"))
    metadata = direct.table("t").snapshot().metadata
    properties = {**metadata.configuration, "delta.appendOnly": "false"}
    changed = replace(metadata, configuration=properties)
    with direct.begin() as tx:
        tx.stage_table("t", [changed])
    assert commit(proxied, file("b")) == 4  # on the general path, which reads the new metadata
    assert commit(proxied, file("b")) == 5  # the same path again replaces the live file
    assert live(direct) == ["a", "b", "warm"]
    direct.rename("t", "renamed")
    with pytest.raises(TableChangedError):
        commit(proxied, file("c"))
    audit(direct)


def test_commit_succeeds_when_the_server_stops_before_the_commit_is_published(
    direct: Catalog, proxy: Proxy, tmp_path: Path
) -> None:
    location = str(tmp_path / "p")
    direct.create_table("p", SCHEMA, location=location)
    settings = {"mirror": {"mode": "sync"}, "retry": QUICK, "pool": {"timeout_s": 1}}

    def at(phase: str) -> None:
        if phase == "ratified":
            proxy.stop_accepting()

    with open_catalog(proxy.uri(direct.uri), **settings) as proxied, hooked(at):
        assert commit(proxied, file("a"), table="p") == 1
    with open_catalog(direct.uri, **settings) as near:
        assert commit(near, file("b"), table="p") == 2
    assert DeltaTable(location).version() == 2  # the next commit published both


def test_commit_fails_when_the_server_stops_before_commit_is_sent(
    direct: Catalog, proxied: Catalog, proxy: Proxy
) -> None:
    tx = proxied.begin()
    tx.stage_table("t", two("a"))
    proxy.stop_accepting()
    with pytest.raises((StoreUnavailableError, TxnLogTransactionError)) as caught:
        tx.commit()
    assert not isinstance(caught.value, CommitOutcomeUnknownError)
    assert live(direct) == ["warm"]


def test_connections_closed_by_the_server_are_replaced_silently(direct: Catalog) -> None:
    assert live(direct) == []  # opens the connection of bulk reads
    terminate_all(direct)
    assert commit(direct, file("a")) == 1
    terminate_all(direct)
    assert live(direct) == ["a"]
    terminate_all(direct)
    assert live(direct, version=0) == []  # not in the cache: a bulk read
    terminate_all(direct)
    direct.rename("u", "v")
    terminate_all(direct)
    assert [table.name for table in direct.tables()] == ["t", "v"]


def terminate_all(catalog: Catalog) -> None:
    """Close every connection of a catalog from the server."""
    with psycopg.connect(os.environ["TEST_DATABASE_URL"], autocommit=True) as admin:
        ended = admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity "
            "WHERE application_name = %s",
            [catalog.config.store.application_name],
        ).fetchall()
    assert ended
