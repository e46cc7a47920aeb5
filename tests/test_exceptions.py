"""Errors have fields, a cause and a Help line, can be pickled, and hide secrets."""

from __future__ import annotations

import builtins
import copy
import pickle
import re
import subprocess
import sys
import traceback
from concurrent.futures import ProcessPoolExecutor
from dataclasses import fields
from multiprocessing import get_context
from pathlib import Path

import deltalake.exceptions as stock
import pytest
from hypothesis import given
from hypothesis import strategies as st

import deltasql.exceptions as errors
from deltasql.exceptions import CommitConflictError, TxnLogError, is_secret_name, redact
from deltasql.exceptions.documentation import documentation
from tests.each import check_each

CLASSES = [
    value
    for name in errors.__all__
    if isinstance(value := getattr(errors, name), type) and issubclass(value, TxnLogError)
]
CONFLICTS = [each for each in CLASSES if issubclass(each, CommitConflictError)]
FACTS = {
    "table": "crm.sales",
    "expected_version": 3,
    "actual_version": 5,
    "winning_version": 4,
    "winning_txn_id": "9f2c",
    "winning_operation": "DELETE",
}


def example(cls: type[TxnLogError]) -> TxnLogError:
    """Return an error of the class with every field set."""
    values: dict[str, object] = {}
    for each in fields(cls):
        if each.name not in ("message", "help"):
            kinds = {"int | None": 7, "tuple[str, ...] | None": ("a", "b")}
            values[each.name] = kinds.get(str(each.type), f"some {each.name}")
    return cls("it broke", help="do this.", **values)  # type: ignore[arg-type]


def open_unreachable() -> None:
    try:
        raise OSError("connection refused")
    except OSError as cause:
        raise errors.StoreUnavailableError(backend="postgres") from cause


def raise_conflict() -> None:
    raise errors.ConcurrentAppendError(**FACTS)


def test_all_lists_exactly_the_error_classes() -> None:
    public = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, TxnLogError)
    }
    assert {each.__name__ for each in CLASSES} == public
    assert len(set(errors.__all__)) == len(errors.__all__)


def test_docstring_tree_matches_the_class_hierarchy() -> None:
    parents: list[str] = []
    drawn = {}
    for line in (errors.__doc__ or "").splitlines():
        if found := re.match(r" {4}([│├└─ ]*)(\w+Error)(?: {2,}(.*))?$", line):
            depth = len(found.group(1)) // 4
            parents[depth:] = [found.group(2)]
            drawn[found.group(2)] = (parents[depth - 1] if depth else None, found.group(3))
    assert drawn.keys() == {each.__name__ for each in CLASSES}
    for name, (parent, also) in drawn.items():
        cls = getattr(errors, name)
        if parent:
            assert cls.__bases__[0] is getattr(errors, parent)
        if also and also.startswith("deltalake "):
            assert issubclass(cls, getattr(stock, also.removeprefix("deltalake ")))
        elif also:
            assert issubclass(cls, getattr(builtins, also))
        if not also:
            assert len(cls.__bases__) == 1


def test_every_error_ends_with_one_help_line() -> None:
    check_each(CLASSES, check_help)


def check_help(cls: type[TxnLogError]) -> None:
    error = cls()
    lines = str(error).splitlines()
    assert lines[0].startswith(cls.default_prefix + cls.default_message)
    assert lines[-1] == f"Help: {cls.default_help}"
    assert sum(line.startswith("Help:") for line in lines) == 1
    assert cls.default_help != TxnLogError.default_help or cls is TxnLogError


def test_every_traceback_names_a_page_that_documents_the_error() -> None:
    check_each(CLASSES, check_docs)


def check_docs(cls: type[TxnLogError]) -> None:
    *_, last = "".join(traceback.format_exception(cls())).splitlines()
    topic = last.removeprefix("Docs: deltasql docs ")
    assert documentation(topic).startswith(f"# {cls.__name__}\n\n- **Cause**: ")


def test_pickled_and_copied_errors_keep_their_fields() -> None:
    check_each(CLASSES, check_clones)


def check_clones(cls: type[TxnLogError]) -> None:
    error = example(cls)
    error.add_note("seen twice")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(again) is cls
        assert (str(again), repr(again), again.args) == (str(error), repr(error), error.args)
        assert (again.fields, again.help) == (error.fields, error.help)
        assert again.__notes__ == [f"Docs: {error.docs}", "seen twice"]


def test_error_can_be_raised_across_processes() -> None:
    with (
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
        pytest.raises(errors.ConcurrentAppendError) as caught,
    ):
        pool.submit(raise_conflict).result()
    assert caught.value.winning_version == 4


def test_every_conflict_names_table_versions_winner_and_help() -> None:
    check_each(CONFLICTS, check_conflict_fields)


def check_conflict_fields(cls: type[CommitConflictError]) -> None:
    text = str(cls(**FACTS))  # type: ignore[arg-type]
    for fact in ("crm.sales", "version 3", "version 5", "version 4", "9f2c", "DELETE", "Help: "):
        assert fact in text


def test_error_keeps_its_cause() -> None:
    with pytest.raises(errors.StoreUnavailableError) as caught:
        open_unreachable()
    assert isinstance(caught.value.__cause__, OSError)


def test_field_that_is_in_the_message_is_not_repeated() -> None:
    message = str(errors.LogParseError("bad JSON at line 7", line=7, path="_delta_log/1.json"))
    assert message.splitlines()[0] == "bad JSON at line 7 (path: _delta_log/1.json)"


def test_missing_driver_error_gives_the_install_command() -> None:
    error = errors.MissingDriverError(driver="psycopg", extra="postgres")
    assert error.help == "Run: pip install 'deltasql[postgres]'"
    assert isinstance(error, ImportError)


SECRET = "hunter2"
LEAKS = [
    f"postgresql://ann:{SECRET}@db/lake",
    f"deltasql://postgres/ann:{SECRET}@db:5432/lake/t?sslmode=require",
    f"deltasql://postgres/ann:a@{SECRET}@db/lake",
    f"host=db password={SECRET} user=ann",
    f"host=db password = '{SECRET} and more' user=ann",
    f'password="{SECRET}',
    f"password={{{SECRET}}}",
    f"PGPASSWORD={SECRET}",
    f"{{'AWS_SECRET_ACCESS_KEY': '{SECRET}', 'AWS_REGION': 'eu'}}",
    f'{{"aws_session_token":"{SECRET}"}}',
    f"azure_storage_account_key={SECRET}==",
    f"https://x.blob/y?sig={SECRET}&se=1",
    f"s3://b/k?X-Amz-Signature={SECRET}&X-Amz-Credential={SECRET}",
    f"x-amz-security-token: {SECRET}",
    f"Authorization: Bearer {SECRET}hunter2hunter2",
    f"curl -H 'bearer {SECRET}hunter2hunter2'",
    f"password: {SECRET}",
    f"${{PASSWORD:-{SECRET}}}",
    f"${{DB_PASSWORD:-{SECRET}}} and {{secret_key: {SECRET}}}",
    f"PASSWORD=…{SECRET}",
]


@pytest.mark.parametrize("text", LEAKS)
def test_secrets_never_reach_an_error(text: str) -> None:
    error = TxnLogError(text, help=f"try {text}")
    other = errors.TxnLogMirrorError("x", location=text, table=text)
    for shown in (str(error), repr(error), str(error.args), error.help, str(other), repr(other)):
        assert SECRET not in shown
    assert all(SECRET not in str(value) for value in other.fields.values())


@pytest.mark.parametrize(
    "text",
    [
        "file:///data/user@example.com/x",
        "http://localhost:8080/x",
        "unexpected token: foo",
        "table crm.tokens has no column secret_santa",
        "at 2026-01-01T12:00:00 by ann@example.com",
        "deltasql://postgres/db/schema/table?version=3",
        "s3://bucket/a=1/b=2/part-0.parquet",
        "export PASSWORD=…, or give a default: ${PASSWORD:-value}.",
        "write ${PASSWORD} or ${AWS_SECRET_KEY:-default}",
    ],
)
def test_redact_keeps_text_without_secrets(text: str) -> None:
    assert redact(text) == text


@given(st.text() | st.sampled_from(LEAKS), st.text(alphabet="ab:@/='\"& {},pw*", max_size=30))
def test_redact_is_idempotent(text: str, tail: str) -> None:
    once = redact(text + tail)
    assert redact(once) == once


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("password", True),
        ("AWS_ACCESS_KEY_ID", True),
        ("sas_token", True),
        ("azure_storage_sas_key", True),
        ("table", False),
        ("path_key", False),
        ("region", False),
    ],
)
def test_is_secret_name_recognizes_secret_options(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret


def test_importing_exceptions_imports_only_deltalake() -> None:
    # The package's __init__ imports the whole API, so this imports the module without it.
    package = str(Path(errors.__file__).parent.parent)
    code = f"""
import sys, types, deltalake.exceptions
sys.modules["deltasql"] = types.ModuleType("deltasql")
sys.modules["deltasql"].__path__ = [{package!r}]
before = set(sys.modules)
import deltasql.exceptions
print(*sorted(name for name in set(sys.modules) - before if not name.startswith("deltasql")))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == []


def test_told_is_a_deprecated_alias_of_full_message() -> None:
    error = errors.LogParseError("bad JSON at line 7", line=7)
    with pytest.warns(DeprecationWarning, match="use full_message"):
        assert error.told == error.full_message
