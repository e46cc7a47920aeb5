"""Serve the console from a thread of this process."""

from __future__ import annotations

import errno
import ipaddress
import logging
import secrets
import socket
import threading
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deltasql.console.console import Console
from deltasql.console.security import LOOPBACK, ProxySignIn
from deltasql.exceptions import MissingDriverError, TxnLogConfigError, TxnLogError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import uvicorn

    from deltasql.api.catalog.catalog import Catalog
    from deltasql.console.jobs import Jobs
    from deltasql.console.oidc import OidcSettings


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Served:
    """The URL of a running console and its token."""

    address: str
    token: str | None
    is_token_generated: bool
    token_to_read: bool
    is_reachable: bool
    """Whether other machines can reach the console: by its host, or by a name through a proxy."""


@contextmanager
def serving(catalog: Catalog, *, warm_up: bool = False, **options: Any) -> Iterator[Served]:
    """Serve a catalog from a thread while the block runs.

    The server listens on `host` and `port`; port 0 chooses a free port. `names` are additional host
    names that browsers may use. With `allow_writes`, users with the `token` can start maintenance
    and publish. Reading also needs the token if one is given, or if other machines can reach the
    console, by its host or by one of its names. If a token is needed and none is given, one is
    generated. With `user_header`, a reverse proxy at one of the addresses `proxies` signs users in
    and names them in this header; `operators` may start actions, all other users may read. With
    `oidc`, an OpenID Connect provider signs users in. Operators may import and follow logs below
    the locations `import_from`. `warm_up` loads in advance what the first query needs, which takes
    about a second. At the end of the block, running jobs are completed.
    """
    with _prepared(catalog, **options) as (server, listening, served, jobs):
        threads = [threading.Thread(target=server.run, args=([listening],))]
        if warm_up:
            threads.append(threading.Thread(target=_warm_up, args=(catalog,)))
        for thread in threads:
            thread.start()
        try:
            yield served
        finally:
            server.should_exit = True
            for thread in threads:
                thread.join()
            # The process must not exit while DuckDB runs a query.
            jobs.finish()


def _warm_up(catalog: Catalog) -> None:
    try:
        catalog.query("SELECT 1").read_all()
    except TxnLogError:  # the page that runs a query will show the error
        _log.debug("the warm-up query failed", exc_info=True)


@contextmanager
def _prepared(
    catalog: Catalog,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    names: Sequence[str] = (),
    allow_writes: bool = False,
    token: str | None = None,
    user_header: str | None = None,
    proxies: Sequence[str] = ("127.0.0.1", "::1"),
    operators: Sequence[str] = (),
    oidc: OidcSettings | None = None,
    import_from: Sequence[str] = (),
) -> Iterator[tuple[uvicorn.Server, socket.socket, Served, Jobs]]:
    try:
        import uvicorn
    except ImportError as error:
        raise MissingDriverError(driver="uvicorn", extra="console") from error
    # A name that is not local belongs to a proxy, through which other machines connect.
    is_reachable = not all(map(is_loopback, (host, *names)))
    proxy = None
    if user_header is not None:
        proxy = ProxySignIn(user_header, frozenset(proxies), frozenset(operators))
    provider = None
    if oidc is not None:
        from deltasql.console.oidc import OidcSignIn  # lazy import: optional package

        provider = OidcSignIn(oidc)
    has_users = proxy is not None or provider is not None
    needs_token = (allow_writes or is_reachable) and not has_users
    token_to_read = is_reachable or bool(token) or has_users
    chosen = token or (secrets.token_urlsafe(24) if needs_token else None)
    console = Console(
        catalog,
        token=chosen,
        allow_writes=allow_writes,
        hosts=[*LOOPBACK, host, *names],
        token_to_read=token_to_read,
        proxy=proxy,
        oidc=provider,
        import_from=import_from,
    )
    config = uvicorn.Config(
        console.application(),
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=5,
    )
    # Listen before the server starts, so that early requests wait instead of failing.
    with closing(_listening(host, port)) as listening:
        name = f"[{host}]" if ":" in host else host
        address = f"http://{name}:{listening.getsockname()[1]}"
        is_generated = chosen is not None and not token
        served = Served(address, chosen, is_generated, token_to_read, is_reachable)
        yield uvicorn.Server(config), listening, served, console.state.jobs


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to a host.

    >>> is_loopback("localhost"), is_loopback("127.0.0.9"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host.casefold() in LOOPBACK:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        is_taken = error.errno in (errno.EADDRINUSE, errno.EACCES)
        raise TxnLogConfigError(
            f"cannot listen on {host} port {port}: {error.strerror}",
            help="Choose another --port; 0 chooses a free port."
            if is_taken
            else f"{host} is not an address of this machine: choose another --host, such as "
            "127.0.0.1, or 0.0.0.0 for all addresses.",
        ) from error
    return listening
