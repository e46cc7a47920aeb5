"""`deltasql ui`: serve the web console."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from deltasql.cli.output import message
from deltasql.cli.services import opentelemetry_option, stopping

if TYPE_CHECKING:
    from deltasql.cli.context import Context


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Listen on this address.")
@click.option(
    "--port",
    default=8420,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Listen on this port; 0 chooses a free one.",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    help="Accept requests for this host name, which browsers use to reach the console.",
)
@click.option(
    "--allow-writes",
    is_flag=True,
    help="Allow users with the token, and each --operator, to publish, optimize and vacuum.",
)
@click.option(
    "--token",
    envvar="DELTASQL_UI_TOKEN",
    help="Set the token; prefer DELTASQL_UI_TOKEN. By default, one is generated and printed once.",
)
@click.option(
    "--user-header",
    help="Trust this header of a reverse proxy, such as X-Forwarded-User, for the user's name.",
)
@click.option(
    "--proxy",
    "proxies",
    multiple=True,
    default=("127.0.0.1", "::1"),
    show_default=True,
    help="Accept --user-header only from this IP address of the proxy.",
)
@click.option(
    "--operator",
    "operators",
    multiple=True,
    help="Allow this user of --user-header to run actions, with --allow-writes.",
)
@opentelemetry_option
@click.option("--open", "open_browser", is_flag=True, help="Open the console in the browser.")
@click.pass_obj
def ui(
    context: Context,
    host: str,
    port: int,
    names: tuple[str, ...],
    allow_writes: bool,
    token: str | None,
    user_header: str | None,
    proxies: tuple[str, ...],
    operators: tuple[str, ...],
    open_browser: bool,
) -> None:
    """Serve the web console until SIGTERM or Ctrl-C.

    The console shows tables, history, files, transactions, the mirror and maintenance, and runs SQL
    queries. It is read-only unless --allow-writes is given. Only this machine can reach it unless
    --host or --name is given. With --host, --name or --token, readers need the token. With
    --user-header, a reverse proxy signs users in, and no token is needed. Prometheus metrics are at
    /metrics.

    \b
    Example:
      $ deltasql ui --port 0
    """
    from deltasql.console.server import serving  # lazy import: optional packages

    if operators and user_header is None:
        raise click.UsageError("--operator needs --user-header, which names the users.")

    with (
        context.open() as catalog,
        stopping() as stop,
        serving(
            catalog,
            warm_up=True,
            host=host,
            port=port,
            names=names,
            allow_writes=allow_writes,
            token=token,
            user_header=user_header,
            proxies=proxies,
            operators=operators,
        ) as served,
    ):
        message(f"console at {served.address}; stop with SIGTERM or Ctrl-C")
        if served.is_token_generated:
            message(f"token: {served.token}")
        if served.is_reachable:
            message("other machines can reach the console: use TLS to protect the token")
        if open_browser:
            click.launch(served.address)
        stop.wait()
    message("stopped")
