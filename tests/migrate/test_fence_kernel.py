"""Delta's Java kernel reads a fenced table, and its writer refuses to commit to it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from deltasql.model.protocol import FENCE
from tests.conftest import JARS
from tests.migrate.authority_support import NAME, open_catalog, ours, verify_all_versions
from tests.migrate.sources import rows

if TYPE_CHECKING:
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.everything("the Java kernel as another reader and writer")
PROBE = Path(__file__).parent / "kernel" / "KernelProbe.java"


def probe(path: str) -> tuple[str, str]:
    """Return what the kernel reads, and what happens when it commits."""
    jars = [f"{JARS}/kernel/*", f"{JARS}/*", f"{Path(pyspark.__file__).parent}/jars/*"]
    ended = subprocess.run(
        ["java", "-cp", ":".join(jars), str(PROBE), path], capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    read, written = ended.stdout.splitlines()
    return read, written


@pytest.mark.parametrize("checkpointed", [False, True])
def test_java_kernel_reads_a_fenced_table_and_refuses_to_commit(
    catalog_uri: DeltaSqlUri, tmp_path: Path, checkpointed: bool
) -> None:
    with open_catalog(catalog_uri, table={"data_root": str(tmp_path / "lake")}) as catalog:
        for number in (1, 2):
            with catalog.begin() as tx:
                tx.write(NAME, rows(number))
        location = catalog.table(NAME).location
        assert catalog.fence(NAME).is_published
        if checkpointed:
            catalog.mirror.checkpoint(NAME)
        read, written = probe(location)
        assert read == "rows 2"
        assert written.startswith("refused: ")
        assert FENCE in written
        ours(catalog, 3)
        assert verify_all_versions(catalog)
        assert catalog.unfence(NAME).is_published
        assert probe(location) == ("rows 3", "committed")
