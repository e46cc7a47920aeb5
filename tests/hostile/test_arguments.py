"""Any value for any parameter of any command gives a documented exit code and a message."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

import deltasql
from deltasql.cli.main import main
from deltasql.uri import DeltaSqlUri
from tests.cli.conftest import Cli, with_sales
from tests.cli.test_help import EVERY, found
from tests.commit.support import audit
from tests.hostile.texts import CRAFTED, MORE, hostile_text
from tests.selection import examples

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FAMILIAR = (
    *(
        "sales",
        "default.sales",
        "SALES",
        "sales@1",
        "id",
        "price",
        "id > 1",
        "2024-05-01",
        "SELECT 1",
    ),
    *("0", "1", "2", "-1", "99999999999999999999", "1e3", "0.5", "nan", "inf", "٣", "id:long"),
    *("id=long", "delta.appendOnly=true", "a=b", "=", "-", "--", "--yes", "--help", "HERE", "."),
)
NUMBERS = st.integers() | st.sampled_from((0, 1, -1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 10**30))
FLOATS = st.floats(width=32) | st.sampled_from((0.05, 1e-300, 1e300))
# These commands run until they are stopped: use the option that ends them at once.
ENDLESS = {
    ("serve",): "--help",
    ("ui",): "--help",
    ("mirror", "run"): "--once",
    ("watch",): "--once",
    ("follow",): None,
}
LEAVES = [path for path in EVERY if path and not isinstance(found(path), click.Group)]


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A catalog with `sales`, restored for every example."""
    folder = tmp_path_factory.mktemp("ready")
    old = dict(os.environ)
    os.environ.pop("DELTASQL_URI", None)
    os.environ |= {
        "DELTASQL_TABLE__DATA_ROOT": str(folder / "now" / "lake"),
        "XDG_STATE_HOME": str(folder / "state"),
        "HOME": str(folder),
    }
    (folder / "now").mkdir()
    before = Path.cwd()
    with_sales(Cli(address(folder)))
    shutil.copytree(folder / "now", folder / "kept")
    os.chdir(folder / "now")  # files that a command writes to a relative path go here
    try:
        yield folder
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ |= old


def address(folder: Path) -> str:
    return DeltaSqlUri(backend="sqlite", database=str(folder / "now" / "meta.db")).to_string()


def anything(parameter: click.Parameter) -> st.SearchStrategy[str]:
    """Return valid values, values at the limits and invalid values."""
    kind: Any = parameter.type
    # An unexpected absolute path could be anywhere on this machine.
    text = hostile_text().map(lambda any_: any_ if any_ in CRAFTED else any_.lstrip("/"))
    odd = text | st.sampled_from(FAMILIAR)
    if isinstance(kind, click.Choice):
        return st.sampled_from([*map(str, kind.choices)] * 3) | odd
    if isinstance(kind, click.IntRange | click.types.IntParamType):
        return NUMBERS.map(str) | odd
    if isinstance(kind, click.FloatRange | click.types.FloatParamType):
        return FLOATS.map(str) | odd
    return st.sampled_from(("sales", "id", *FAMILIAR)) | odd


@st.composite
def command_lines(draw: st.DrawFn, path: Sequence[str]) -> list[str]:
    """Return a call of a command: some or all of its arguments and some of its options."""
    chosen: list[str] = [*path]
    if ENDLESS.get(tuple(path)):
        chosen.append(str(ENDLESS[tuple(path)]))
    for parameter in found(tuple(path)).params:
        if isinstance(parameter, click.Argument):
            if not parameter.required and draw(st.booleans()):
                continue
            chosen += [draw(anything(parameter)) for _ in range(max(1, parameter.nargs))]
            continue
        assert isinstance(parameter, click.Option)
        if {"--watch", "--open"} & {*parameter.opts} or draw(st.integers(0, 3)):
            continue
        name = draw(st.sampled_from([*parameter.opts, *parameter.secondary_opts]))
        chosen.append(name)
        if not (parameter.is_flag or parameter.count):
            chosen.append(draw(anything(parameter)))
    return chosen


@settings(max_examples=examples(2 * MORE))
@given(data=st.data())
@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_any_arguments_give_a_documented_exit_code(
    ready: Path, path: tuple[str, ...], data: st.DataObject
) -> None:
    folder = ready
    shutil.rmtree(folder / "now")
    shutil.copytree(folder / "kept", folder / "now")
    os.chdir(folder / "now")
    call = data.draw(command_lines(path))
    result = CliRunner().invoke(main, ["--uri", address(folder), *call], input="")
    ended = result.exception is None or isinstance(result.exception, SystemExit)
    assert ended, f"{call}: {result.exception!r}"
    assert result.exit_code in (0, 1, 2, 3), call
    assert "Traceback" not in result.output
    if result.exit_code:
        assert result.stderr.strip() or result.stdout.strip(), f"{call} says nothing"
    with deltasql.connect(address(folder), mirror={"mode": "off"}) as catalog:
        audit(catalog)
        for table in catalog.tables():
            table.snapshot().files()
