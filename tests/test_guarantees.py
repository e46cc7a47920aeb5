"""docs/internals/guarantees.md names a test in `make test` for every guarantee."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from deltasql.commit.conflict import RULES
from deltasql.phases import HAND_OVER_PHASES, MIRROR_PHASES, PHASES, WRITE_PHASES
from tests.each import check_each

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/internals/guarantees.md").read_text("utf-8")
ROWS = [line for line in PAGE.splitlines() if re.match(r"\| (?!---)[^|]*\|", line)]
GUARANTEES = [line for line in ROWS if not line.endswith("| tests |") and "---" not in line]
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@cache
def functions(path: str) -> dict[str, bool]:
    """Return the tests of a file and whether `make test` runs each."""
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    is_left_out = any(
        ast.unparse(node).startswith("pytestmark = pytest.mark.everything") for node in tree.body
    )
    found: dict[str, bool] = {}
    for scope in (tree, *(node for node in tree.body if isinstance(node, ast.ClassDef))):
        outside = is_left_out or _is_marked(scope)
        for node in scope.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found[node.name] = not (outside or _is_marked(node))
    return found


def _is_marked(node: ast.AST) -> bool:
    """Return whether a whole test is only in `make test-everything`."""
    marks = map(ast.unparse, getattr(node, "decorator_list", ()))
    return any(mark.startswith("pytest.mark.everything(") for mark in marks)


def test_every_guarantee_has_a_test_that_runs() -> None:
    def check(row: str) -> None:
        named = TEST.findall(row)
        assert named, "no test is named"
        missing = [f"{path}::{name}" for path, name in named if name not in functions(path)]
        assert missing == [], "no such test"
        assert any(functions(path)[name] for path, name in named), "`make test` runs none of them"

    check_each(GUARANTEES, check, name=lambda row: row.split("|")[1].strip())


def test_every_guarantee_rule_and_phase_has_a_row() -> None:
    names = [row.split("|")[1] for row in GUARANTEES]
    wanted = [
        *(f" {number}. " for number in range(1, 10)),
        *(f" `{rule.__name__}` " for rule in RULES),
        *(f"`{point}`" for point in (*WRITE_PHASES, *PHASES, *MIRROR_PHASES, *HAND_OVER_PHASES)),
    ]
    assert [each for each in wanted if not any(each in name for name in names)] == []
