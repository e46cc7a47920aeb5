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
    help="Allow users with the token, and each --operator, to run actions.",
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
    help="Allow this user of --user-header, or users with this value of --oidc-claim, to run "
    "actions, with --allow-writes.",
)
@click.option(
    "--oidc-issuer",
    metavar="URL",
    help="Let this OpenID Connect provider sign users in, such as https://sso.example.com.",
)
@click.option("--oidc-client-id", metavar="ID", help="Identify the console to the provider.")
@click.option(
    "--oidc-client-secret",
    envvar="DELTASQL_UI_OIDC_SECRET",
    metavar="SECRET",
    help="Set the secret of the client; prefer DELTASQL_UI_OIDC_SECRET. A public client has none.",
)
@click.option(
    "--oidc-claim",
    default="groups",
    show_default=True,
    metavar="CLAIM",
    help="Take the role of a user from this claim.",
)
@click.option(
    "--oidc-scope",
    "oidc_scopes",
    multiple=True,
    metavar="SCOPE",
    help="Also request this scope, for example if the provider needs it for the claim.",
)
@click.option(
    "--reader",
    "readers",
    multiple=True,
    help="Allow only users with this value of --oidc-claim, and operators, to read.",
)
@click.option(
    "--import-from",
    multiple=True,
    metavar="LOCATION",
    help="Allow operators to import and follow tables below this folder or bucket.",
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
    oidc_issuer: str | None,
    oidc_client_id: str | None,
    oidc_client_secret: str | None,
    oidc_claim: str,
    oidc_scopes: tuple[str, ...],
    readers: tuple[str, ...],
    import_from: tuple[str, ...],
    open_browser: bool,
) -> None:
    """Serve the web console until SIGTERM or Ctrl-C.

    The console shows tables, history, files, transactions, the mirror, maintenance and migration,
    and runs SQL queries. It is read-only unless --allow-writes is given. Only this machine can
    reach it unless --host or --name is given. With --host, --name or --token, readers need the
    token. With --user-header, a reverse proxy signs users in, and no token is needed. With
    --oidc-issuer, an OpenID Connect provider signs users in: register the console's address
    followed by /oidc/callback at the provider. Prometheus metrics are at /metrics.

    \b
    Example:
      $ deltasql ui --port 0
    """
    from deltasql.console.server import serving  # lazy import: optional packages

    if operators and user_header is None and oidc_issuer is None:
        raise click.UsageError("--operator needs --user-header or --oidc-issuer.")
    if user_header is not None and oidc_issuer is not None:
        raise click.UsageError("Give --user-header or --oidc-issuer, not both.")
    if oidc_issuer is None and (oidc_client_id or readers or oidc_scopes):
        raise click.UsageError("--oidc-client-id, --oidc-scope and --reader need --oidc-issuer.")
    oidc = None
    if oidc_issuer is not None:
        from deltasql.console.oidc import OidcSettings  # lazy import: optional package

        if not oidc_client_id:
            raise click.UsageError("--oidc-issuer needs --oidc-client-id.")
        oidc = OidcSettings(
            issuer=oidc_issuer,
            client_id=oidc_client_id,
            client_secret=oidc_client_secret or None,
            claim=oidc_claim,
            operators=frozenset(operators),
            readers=frozenset(readers),
            scopes=oidc_scopes,
        )

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
            oidc=oidc,
            import_from=import_from,
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
