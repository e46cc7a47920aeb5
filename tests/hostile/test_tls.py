"""PostgreSQL over TLS: a valid certificate is accepted, every other one is rejected."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import deltasql
from deltasql.exceptions import TxnLogStoreError
from tests.hostile.tls import Authority, TlsFront

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql.uri import DeltaSqlUri


@pytest.fixture
def authority() -> Authority:
    return Authority.new("Test CA")


def through(front: TlsFront, uri: DeltaSqlUri, root: str) -> DeltaSqlUri:
    return replace(uri, host="localhost", port=front.port, sslmode="verify-full", sslrootcert=root)


def test_catalog_works_with_a_verified_certificate(
    postgres_uri: DeltaSqlUri, authority: Authority, tmp_path: Path
) -> None:
    root = authority.write_root(tmp_path / "root.pem")
    with TlsFront(authority.server_context(tmp_path, "localhost")) as front:
        place = {"data_root": str(tmp_path / "lake")}
        with deltasql.connect(through(front, postgres_uri, root), table=place) as catalog:
            for number in range(3):
                with catalog.begin() as tx:
                    tx.write("t", pa.table({"id": [number]}))
            rows = catalog.query("SELECT id FROM t ORDER BY id").read_all()
            assert catalog.table("t").files().num_rows == 3
        assert rows["id"].to_pylist() == [0, 1, 2]
        assert front.passed_on > 0


@pytest.mark.parametrize("wrong", ["authority", "host", "none at all"])
def test_unverified_server_gets_no_password(
    postgres_uri: DeltaSqlUri, authority: Authority, tmp_path: Path, wrong: str
) -> None:
    signer = Authority.new("Test CA") if wrong == "authority" else authority
    host = "db.example" if wrong == "host" else "localhost"
    context = None if wrong == "none at all" else signer.server_context(tmp_path, host)
    root = authority.write_root(tmp_path / "root.pem")
    with TlsFront(context) as front:
        uri = replace(through(front, postgres_uri, root), password="s3cr3t-Zx9")
        with pytest.raises(TxnLogStoreError) as failure, deltasql.connect(uri) as catalog:
            catalog.tables()
        message = str(failure.value)
        assert "s3cr3t" not in message
        assert "SSL" in message or "certificate" in message, message
