"""`deltasql serve`: run the service that Spark's catalog and other programs connect to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from deltasql.cli.output import message
from deltasql.cli.services import opentelemetry_option, stopping

if TYPE_CHECKING:
    from deltasql.cli.context import Context


@click.command()
@click.option(
    "--service",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the service file to this path, and give the path to Spark as an option. Spark "
    "finds the default path, which depends on the catalog, without an option.",
)
@click.option(
    "--port",
    default=0,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="The port on this machine; 0 chooses a free one.",
)
@opentelemetry_option
@click.pass_obj
def serve(context: Context, file: Path | None, port: int) -> None:
    """Answer the requests of Spark's catalog until SIGTERM or Ctrl-C.

    Only programs on this machine that can read the service file can connect. The file has the
    address and a token, and only your user can read it.

    \b
    Example:
      $ deltasql serve --port 0
    """
    from deltasql.serve.service import Service  # lazy import: few commands need it
    from deltasql.serve.service_file import default_service_file

    path = file or default_service_file(context.catalog_uri())
    with context.open() as catalog, stopping() as stop:
        service = Service(catalog, port=port).start(path)
        try:
            message(f"service at {service.address}, service file {path}")
            stop.wait()
        finally:
            service.stop()
    message("stopped")
