"""Runs the commands of the production and backup guides. Each test has its own roles and schema."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from click.testing import CliRunner

from deltasql.cli.main import main
from deltasql.uri import DeltaSqlUri

if TYPE_CHECKING:
    import psycopg

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
PASSWORD = "hunter2"
ROLES = ("lake_admin", "lake_writer", "lake_reader", "ops", "etl", "analyst")
NAMES = re.compile(rf"\b({'|'.join(ROLES)}|lake_before|lake)\b(?!\.(?:dump|sql))")


@dataclass(slots=True)
class Guide:
    """The production guide, applied to one database."""

    connection: psycopg.Connection[Any]
    suffix: str

    @classmethod
    def begin(cls, connection: psycopg.Connection[Any]) -> Guide:
        """Create the roles and the schema as the guide says, as a superuser."""
        guide = cls(connection, uuid.uuid4().hex[:12])
        (roles,) = guide.blocks("sql", page="production.md")
        connection.execute(roles)  # type: ignore[call-overload]
        for name in ("ops", "etl", "analyst"):
            connection.execute(f"ALTER ROLE {name}_{guide.suffix} PASSWORD '{PASSWORD}'")  # type: ignore[call-overload]
        return guide

    def end(self) -> None:
        """Drop what `begin` created."""
        for schema in ("lake", "lake_before"):
            self.connection.execute(f"DROP SCHEMA IF EXISTS {schema}_{self.suffix} CASCADE")  # type: ignore[call-overload]
        for name in ROLES:
            self.connection.execute(f"DROP OWNED BY {name}_{self.suffix}")  # type: ignore[call-overload]
        for name in reversed(ROLES):
            self.connection.execute(f"DROP ROLE {name}_{self.suffix}")  # type: ignore[call-overload]

    def blocks(self, language: str, page: str = "backup.md") -> list[str]:
        """Return the code blocks of a language in a guide."""
        text = (GUIDES / page).read_text("utf-8")
        found = re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        return [NAMES.sub(rf"\1_{self.suffix}", block) for block in found]

    def uri(self, role: str) -> DeltaSqlUri:
        """Return the URI of the catalog for a role of the guide."""
        info = self.connection.info
        return DeltaSqlUri(
            backend="postgres",
            database=info.dbname,
            user=f"{role}_{self.suffix}",
            password=PASSWORD,
            host=info.host,
            port=info.port,
            search_path=f"lake_{self.suffix}",
        )

    def address(self, role: str) -> str:
        """Return the same connection as a `psql` connection string."""
        uri = self.uri(role)
        login = f"user={uri.user} password={uri.password}"
        return f"host={uri.host} port={uri.port} dbname={uri.database} {login}"

    def init(self, data_root: str) -> str:
        """Run the guide's `deltasql init` as `ops`; return its messages."""
        (command,) = (
            block
            for block in self.blocks("text", page="production.md")
            if block.startswith("deltasql init")
        )
        _, *arguments = shlex.split(command)
        # Use the test server instead of the server in the guide.
        arguments[1] = (
            replace(self.uri("ops"), password="***").to_string().replace("***", "${PASSWORD}")
        )
        arguments[arguments.index("--data-root") + 1] = data_root
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output
        return result.stderr

    def run(self, block: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run commands of the guide unchanged in a folder."""
        return subprocess.run(
            ["bash", "-c", block],
            cwd=folder,
            env={**os.environ, **variables},
            capture_output=True,
            text=True,
            check=False,
        )
