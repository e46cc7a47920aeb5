"""`deltasql ui`: the catalog in a browser."""

from __future__ import annotations

import click

from deltasql.cli.context import Context, talk
from deltasql.cli.operate.metrics import opentelemetry_option
from deltasql.cli.signals import stopping


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen.")
@click.option(
    "--port",
    default=8420,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="0 takes a free one.",
)
@click.option(
    "--name", "names", multiple=True, help="A further host name that browsers may call it by."
)
@click.option(
    "--allow-writes",
    is_flag=True,
    help="Let those who have the token retry, optimize and vacuum.",
)
@click.option(
    "--token",
    envvar="DELTASQL_UI_TOKEN",
    help="The token, better given as DELTASQL_UI_TOKEN; made and printed once if there is none.",
)
@opentelemetry_option
@click.option("--open", "open_browser", is_flag=True, help="Open it in the browser.")
@click.pass_obj
def ui(
    context: Context,
    host: str,
    port: int,
    names: tuple[str, ...],
    allow_writes: bool,
    token: str | None,
    open_browser: bool,
) -> None:
    """Show the catalog in a browser, until SIGTERM or Ctrl-C.

    Tables, their history and files, transactions, the mirror, maintenance and SQL. It only reads,
    unless --allow-writes is given, and answers only to this machine, unless --host or --name says
    otherwise; then, and with --token, reading takes the token, too. Metrics for Prometheus are at
    /metrics.

    \b
    Example:
      deltasql ui --port 0
    """
    from deltasql.console.server import serving  # late: only this command needs it

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
        ) as served,
    ):
        talk(f"console at {served.address}; stop with SIGTERM or Ctrl-C")
        if served.token_was_made:
            talk(f"token: {served.token}")
        if served.is_reachable:
            talk("others can reach it: use it behind TLS, the token crosses the network")
        if open_browser:
            click.launch(served.address)
        stop.wait()
    talk("stopped")
