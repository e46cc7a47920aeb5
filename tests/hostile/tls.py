"""A TLS proxy for PostgreSQL with its own certificates.

The embedded PostgreSQL is built without TLS (`SHOW ssl_library` is empty), so the proxy terminates
TLS and forwards the content. The real client, libpq, verifies the certificate, in both drivers.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import ssl
import struct
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Self

import psycopg
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

_SSL_REQUEST, _GSS_REQUEST = 80877103, 80877104


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls, name: str) -> Self:
        key = ec.generate_private_key(ec.SECP256R1())
        return cls(key, _certificate(name, key, name, key, is_authority=True))

    def write_root(self, path: Path) -> str:
        path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        return str(path)

    def server_context(self, folder: Path, host: str) -> ssl.SSLContext:
        """Return the TLS context of a server with this host name."""
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self.certificate.subject.rfc4514_string().removeprefix("CN=")
        signed = _certificate(host, key, issuer, self.key)
        chain, secret = folder / f"{host}.pem", folder / f"{host}.key"
        chain.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain, secret)
        return context


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    signer: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool = False,
) -> x509.Certificate:
    now = datetime.now(UTC)

    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    return (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(signer, hashes.SHA256())
    )


class TlsFront:
    """A TCP port that speaks TLS, or declines it, and forwards to the real server."""

    def __init__(self, context: ssl.SSLContext | None) -> None:
        with psycopg.connect(os.environ["TEST_DATABASE_URL"]) as connection:
            self._host, self._port = connection.info.host, connection.info.port
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.passed_on = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, struct.error), client:
            while (request := struct.unpack("!ii", client.recv(8))[1]) == _GSS_REQUEST:
                client.sendall(b"N")
            if request != _SSL_REQUEST or self._context is None:
                client.sendall(b"N")
                return  # a client without TLS is not let in
            client.sendall(b"S")
            with self._context.wrap_socket(client, server_side=True) as secure:
                self.passed_on += 1
                self._pass_on(secure)

    def _pass_on(self, secure: ssl.SSLSocket) -> None:
        if self._host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{self._host}/.s.PGSQL.{self._port}")
        else:
            server = socket.create_connection((self._host, self._port))
        with server, selectors.DefaultSelector() as selector:
            other: dict[object, socket.socket] = {secure: server, server: secure}
            for each in (secure, server):
                selector.register(each, selectors.EVENT_READ)
            while True:
                # Data that is already decrypted does not make the socket ready.
                waiting: list[socket.socket] = [secure] if secure.pending() else []
                for source in waiting or [key.fileobj for key, _ in selector.select()]:
                    piece = source.recv(65_536)
                    if not piece:
                        return
                    other[source].sendall(piece)
