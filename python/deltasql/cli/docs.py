"""`deltasql docs`: print the documentation that is installed with the package."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

import click

from deltasql.cli.output import echo

if TYPE_CHECKING:
    from deltasql.cli.context import Context


@click.command()
@click.argument("topic", required=False)
@click.pass_obj
def docs(context: Context, topic: str | None) -> None:
    """Print a page of the documentation, or explain an error.

    Without TOPIC, list all pages and errors with their titles.

    \b
    Example:
      $ deltasql docs TxnLogUriError
      # TxnLogUriError
      - **Cause**: A `deltasql://` URI is not valid.
      - **Remedy**: Write deltasql://sqlite//abs/meta.db?table=t, deltasql://…
      - **Default message**: this is not a deltasql URI
      - **Fields**: `prefix`, `part`, `uri`
      - **A kind of**: `TxnLogError`
    """
    # A late import: the errors need deltalake, and `deltasql --help` imports this module.
    from deltasql.exceptions.documentation import documentation, titles, topics

    if topic is None:
        rows = [{"topic": name, "title": title} for name, title in titles().items()]
        context.output.rows(rows, ("topic", "title"))
        return
    try:
        echo(documentation(topic))
    except LookupError:
        names = {each.lower(): each for each in topics()}
        near = get_close_matches(topic.lower(), names, 1)
        hint = f" Did you mean {names[near[0]]!r}?" if near else ""
        raise click.UsageError(
            f"There is no page or error {topic!r}.{hint} `deltasql docs` lists all."
        ) from None
