"""After any sequence of commits, deltalake reads the state of deltasql at every version."""

from __future__ import annotations

import os
import random
import uuid
from typing import TYPE_CHECKING

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from deltasql.storage import Storage, join_location, open_storage
from tests.mirror.support import commit_name, open_mirrored
from tests.oracles.deltasql_reader import own_log
from tests.oracles.random_commits import Random
from tests.oracles.readers import Deltalake, Place, stock_log
from tests.selection import examples

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri
    from tests.oracles.writing import Written

pytestmark = pytest.mark.two_databases

EXAMPLES = {"sqlite": 12, "postgres": 8, "duckdb": 5}
STEPS = 12
# A failure is shrunk only if DELTASQL_SEED is set to the printed seed, because shrinking takes
# minutes on a real database.
PHASES = tuple(Phase) if "DELTASQL_SEED" in os.environ else (Phase.generate,)


def test_any_sequence_of_commits_is_published_correctly(
    backend: str, catalog_uri: DeltaSqlUri, tmp_path: Path
) -> None:
    with open_mirrored(catalog_uri, tmp_path / "lake") as catalog:
        run(catalog, str(tmp_path / "copies"), {}, examples(EXAMPLES[backend]))


@pytest.mark.everything("random commits to S3; test_s3_tables has fixed ones")
def test_any_sequence_of_commits_is_published_correctly_to_s3(
    sqlite_uri: DeltaSqlUri, s3_location: str, s3_options: dict[str, str]
) -> None:
    with open_mirrored(sqlite_uri, s3_location, storage={"options": s3_options}) as catalog:
        run(catalog, f"{s3_location}/copies", s3_options, tries=2)


def run(catalog: Catalog, copies: str, options: dict[str, str], tries: int) -> None:
    """Run random sequences, each in its own namespace, and compare the results."""
    chosen = random.randrange(2**32) if os.environ.get("DELTASQL_EXPLORE") else 20261115
    seed = int(os.environ.get("DELTASQL_SEED", chosen))
    print(f"DELTASQL_SEED={seed}")

    @hypothesis.seed(seed)
    @settings(
        max_examples=tries,
        deadline=None,
        database=None,
        derandomize=False,  # the seed determines the examples
        print_blob=True,
        phases=PHASES,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def example(data: st.DataObject) -> None:
        sequence = Random(catalog, f"n{uuid.uuid4().hex[:12]}", data)
        for _ in range(STEPS):
            sequence.step()
        for table in sequence.written.values():
            compare(table, f"{copies}/{uuid.uuid4().hex}", options)

    example()


def compare(table: Written, copies: str, options: dict[str, str]) -> None:
    """Compare every version with deltalake's result, with and without checkpoints."""
    last = len(table.states) - 1
    assert table.table.version() == last
    location = table.table.location
    source = open_storage(location, table.catalog.config.storage)
    names = [file.name for file in source.list("_delta_log/")]
    commits = [name for name in names if commit_name(name.partition("/")[2])]
    assert len(commits) == last + 1, "every version is published"
    checkpoints = [number_of(name) for name in names if ".checkpoint." in name]
    whole = Place(location, options)
    check(table, whole, range(last + 1))

    def copy(kind: str, keep: Callable[[str], bool]) -> Place:
        place = join_location(copies, kind)
        copy_log(source, open_storage(place, table.catalog.config.storage), keep)
        return Place(place, options)

    check(table, copy("without", lambda name: name in commits), range(last + 1))
    if checkpoints:
        first = max(checkpoints)
        gone = {name for name in commits if number_of(name) < first}
        # A checksum contains parts of the state, and some readers use it.
        gone |= {name for name in names if name.endswith(".crc")}
        check(table, copy("with", lambda name: name not in gone), range(first, last + 1))


def check(table: Written, place: Place, versions: range) -> None:
    """Compare versions of a table with deltalake's result at a location."""
    for version in versions:
        expected = own_log(table.table, version)
        assert stock_log(place, version, expected.apps) == expected
        assert Deltalake().rows(place, version) == table.states[version]


def copy_log(source: Storage, target: Storage, keep: Callable[[str], bool]) -> None:
    """Copy the data files of a table, and the log files to keep."""
    for file in source.list():
        if not file.name.startswith("_delta_log/") or keep(file.name):
            target.copy_from(source, file.name)


def number_of(name: str) -> int:
    """Return the version in the name of a log file."""
    return int(name.partition("/")[2].partition(".")[0])
