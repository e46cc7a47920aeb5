"""An imported and exported log has the state of the original at every version."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from deltasql.mirror.log.read import LogState, read_states
from deltasql.model.actions import DeletionVector
from deltasql.storage import open_storage
from tests.migrate.random_logs import RandomLog, content_of, vector_name
from tests.selection import EXPLORES, examples

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from deltasql import Catalog

EXAMPLES = {"sqlite": 20, "postgres": 10, "duckdb": 5}
_NOT_RESTORED = ("data_change", "extra", "extended_file_metadata")


def test_exported_log_equals_the_imported_log(
    catalog: Catalog, backend: str, tmp_path: Path
) -> None:
    @settings(
        max_examples=examples(EXAMPLES[backend] * (10 if EXPLORES else 1)),
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink) if EXPLORES else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def example(data: st.DataObject) -> None:
        folder = tmp_path / uuid.uuid4().hex
        log = RandomLog(folder / "source", folder / "elsewhere", data)
        log.write(data.draw(st.integers(1, 7)))
        first = data.draw(st.one_of(st.none(), st.integers(0, log.versions - 1)))
        check(catalog, folder, log.versions - 1, first)

    example()


def check(catalog: Catalog, folder: Path, last: int, from_version: int | None) -> None:
    """Import a log, export it both ways, and compare the states."""
    source, name = folder / "source", folder.name
    import_and_verify(catalog, source, name)
    first = from_version or 0
    catalog.export_table(name, str(folder / "urls"), from_version=from_version)
    catalog.export_table(name, str(folder / "data"), from_version=from_version, with_data=True)
    versions = range(first, last + 1)
    for expected, urls, data in zip(
        states(source, versions),
        states(folder / "urls", versions),
        states(folder / "data", versions),
        strict=True,
    ):
        decode_vector = lambda vector: by_url(vector, source)  # noqa: E731
        assert state(urls, lambda path: path, by_url) == state(
            expected, lambda path: url(source, path), decode_vector
        )
        assert files(urls.tombstones, lambda path: path, by_url) == files(
            expected.tombstones, lambda path: url(source, path), decode_vector
        )
        assert state(
            data, lambda path: content_of(folder / "data", path), Content(folder / "data")
        ) == state(expected, lambda path: content_of(source, path), Content(source))
    # The exports can be imported again.
    for kind in ("urls", "data"):
        import_and_verify(catalog, folder / kind, f"{name}-{kind}")


def import_and_verify(catalog: Catalog, source: Path, name: str) -> None:
    """Import a log and verify every version, without deltalake: it cannot read all statistics."""
    catalog.import_table(str(source), name=name, verify=False)
    (report,) = catalog.mirror.verify(name, versions="all", with_deltalake=False)
    assert report.ok, report.summary()


def states(root: Path, versions: range) -> list[LogState]:
    return list(read_states(open_storage(str(root)), versions, tombstones=True))


def state(
    log: LogState, named: Callable[[str], str], vector: Callable[[DeletionVector], Any]
) -> dict[str, Any]:
    """Return the state at a version; a file has the same name however its path is written."""
    return {
        "metadata": log.metadata,
        "protocol": log.protocol,
        "txns": {key: txn.body() for key, txn in log.txns.items()},
        "domains": {key: each.body() for key, each in log.domains.items()},
        "files": files(log.files, named, vector),
    }


def files(
    found: pa.Table, named: Callable[[str], str], vector: Callable[[DeletionVector], Any]
) -> list[str]:
    """Return files as strings, without fields that a checkpoint does not store."""
    texts = []
    restored_columns = [name for name in found.column_names if name not in _NOT_RESTORED]
    for row in found.select(restored_columns).to_pylist():
        text = row.pop("deletion_vector")
        means = None if text is None else vector(DeletionVector.from_body(json.loads(text)))
        comparable = {**row, "path": named(row["path"]), "vector": means}
        comparable["tags"] = json.loads(row["tags"] or "null")
        comparable["stats"] = row["stats"] or None  # an empty string has no information, either
        texts.append(json.dumps(comparable, sort_keys=True))
    return sorted(texts)


def url(root: Path, path: str) -> str:
    return path if "://" in path else f"{root.as_uri()}/{path}"


def by_url(vector: DeletionVector, root: Path | None = None) -> tuple[Any, ...]:
    """Identify a vector by the URL of its file, or by its text if it is inline."""
    stored = vector.path_or_inline_dv
    if vector.storage_type == "u":
        assert root is not None
        stored = f"{root.as_uri()}/{vector_name(vector)}"
    return ("i" if vector.storage_type == "i" else "file", stored, *_rest(vector))


class Content:
    """Identifies a vector by the content of its file."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __call__(self, vector: DeletionVector) -> tuple[Any, ...]:
        stored = vector.path_or_inline_dv
        if vector.storage_type == "u":
            return content_of(self._root, vector_name(vector)), *_rest(vector)
        return stored if vector.storage_type == "i" else content_of(self._root, stored), *_rest(
            vector
        )


def _rest(vector: DeletionVector) -> tuple[Any, ...]:
    return vector.offset, vector.size_in_bytes, vector.cardinality
