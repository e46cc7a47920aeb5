"""Any text in any field is stored unchanged and has no side effects."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction

from deltasql import RemoveFile
from deltasql.exceptions import TxnLogError, TxnLogUriError
from deltasql.uri import join_table_name
from tests.conftest import add_file
from tests.each import check_each
from tests.hostile.logs import output

if TYPE_CHECKING:
    from pathlib import Path

    from deltasql import Catalog

pytestmark = pytest.mark.two_databases

INJECTIONS = (
    "'; DROP TABLE dl_tables; --",
    '"; DROP TABLE dl_tables; --',
    "x'); DELETE FROM dl_add_files; --",
    "$1 $name :name ? %s %(name)s {in:ids} {use:x}",
    "\\'; --",
    "E'\\x00' || chr(39)",
    "\\copy\\.\n\tNULL\\N",
    "\u202e\u2066\U0001f600\u0301 İıſß",
    "<script>alert(1)</script>{{7*7}}",
    "null",
    "x" * 200,
)
BAD_NAMES = ("", ".", "..", "a/b", "../x", "a\0b", "a\nb", "x" * 256, "\x7f", "\ud800")


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    """A catalog with a table that the tests must not change."""
    with catalog.begin() as tx:
        tx.write("untouched", pa.table({"id": [1, 2]}))
    return catalog


def assert_untouched(catalog: Catalog, *others: str) -> None:
    assert sorted(each.name for each in catalog.tables()) == sorted(["untouched", *others])
    assert catalog.query("SELECT sum(id) AS n FROM untouched").read_all()["n"].to_pylist() == [3]


def test_injection_texts_are_stored_unchanged(catalog: Catalog) -> None:
    check_each(INJECTIONS, lambda text: check_stored_unchanged(catalog, text), name=repr)


def check_stored_unchanged(catalog: Catalog, text: str) -> None:
    name = join_table_name(re.sub(r"[\n\t/]", " ", text[:100]), "t")
    schema = pa.schema([("id", pa.int64()), (f"c {text}", pa.string())])
    catalog.create_table(
        name, schema, properties={f"k.{text}": text}, description=text, partition_by=None
    )
    rows = pa.table({"id": [1], f"c {text}": [text]}, schema=schema)
    with catalog.begin() as tx:
        tx.write(name, rows)
        tx.stage_table(name, [{"txn": {"appId": text, "version": 7}}])
    table = catalog.table(name)
    snapshot = table.snapshot()
    assert snapshot.metadata.configuration[f"k.{text}"] == text
    assert snapshot.metadata.description == text
    assert snapshot.schema.names == ("id", f"c {text}")
    quoted = '"' + f"c {text}".replace('"', '""') + '"'
    literal = "'" + text.replace("'", "''") + "'"
    with catalog.begin() as tx:
        tx.update(name, {"id": "id + 1"}, predicate=f"{quoted} = {literal}")
    namespace = '"' + table.namespace.replace('"', '""') + '"'
    found = catalog.query(f"SELECT * FROM {namespace}.t").read_all()
    assert found.to_pydict() == {"id": [2], f"c {text}": [text]}
    assert_untouched(catalog, "t")
    catalog.drop(name)
    assert_untouched(catalog)


@pytest.mark.parametrize("text", INJECTIONS, ids=range(len(INJECTIONS)))
def test_tags_and_commit_info_are_stored_unchanged(
    catalog: Catalog, tmp_path: Path, text: str
) -> None:
    with catalog.begin() as tx:
        tx.stage_table("untouched", [add_file("more", tags={f"k {text}": text})])
        tx.set_commit_properties(
            "untouched",
            CommitProperties(
                custom_metadata={f"k {text}": text, "userMetadata": text, "deep": {text: [text]}},
                app_transactions=[Transaction(text, 7)],
            ),
        )
    snapshot = catalog.table("untouched").snapshot()
    [tags] = [each for each in snapshot.files()["tags"].to_pylist() if each]
    assert json.loads(tags) == {f"k {text}": text}
    assert snapshot.transaction_version(text) == 7
    catalog.mirror.publish("untouched")
    published = (tmp_path / "lake/default/untouched/_delta_log").glob("*1.json")
    actions = [json.loads(line) for path in published for line in path.read_text().splitlines()]
    [add] = [each["add"] for each in actions if "add" in each]
    [info] = [each["commitInfo"] for each in actions if "commitInfo" in each]
    assert add["tags"] == {f"k {text}": text}
    assert (info[f"k {text}"], info["userMetadata"], info["deep"]) == (text, text, {text: [text]})
    with catalog.begin() as tx:
        tx.stage_table("untouched", [RemoveFile(path="more", data_change=True)])
    assert_untouched(catalog)


def test_unsafe_names_are_rejected(catalog: Catalog, tmp_path: Path) -> None:
    before = sorted(os.listdir(tmp_path))

    def check(name: str) -> None:
        for attempt in (
            lambda: catalog.create_table(
                join_table_name("n", name), pa.schema([("id", pa.int64())])
            ),
            lambda: catalog.create_table(
                join_table_name(name, "t"), pa.schema([("id", pa.int64())])
            ),
            lambda: catalog.create_namespace(name),
            lambda: catalog.rename("untouched", join_table_name("n", name)),
        ):
            refused = output(attempt)
            assert isinstance(refused, TxnLogUriError)
        assert sorted(os.listdir(tmp_path)) == before
        assert_untouched(catalog)

    check_each(BAD_NAMES, check, name=repr)


def test_column_name_with_nul_is_rejected(catalog: Catalog) -> None:
    with pytest.raises(TxnLogError):
        catalog.create_table("t", pa.schema([("a\0b", pa.int64())]))
    assert_untouched(catalog)
