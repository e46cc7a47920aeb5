"""Which columns a merge leaves as they are, though a clause sets them."""

from __future__ import annotations

import pytest

from deltasql.model.schema import StructField, StructType
from deltasql.operations.merge_plan import Clause, MergeSpec, resolve_merge

TARGET = StructType(
    (
        StructField("id", "long"),
        StructField("small", "integer"),
        StructField("x", "double"),
        StructField("s", "string"),
    )
)


@pytest.mark.parametrize(
    ("on", "updates", "kept"),
    [
        ("t.id = s.id", {"id": "s.id", "s": "s.s"}, {"id"}),
        ("(s.id = t.id) AND t.s = s.s", {"id": "s.id", "s": "s.s", "x": "s.x"}, {"id", "s"}),
        ("t.id = s.id", {"id": "s.id + 1"}, set()),
        ("t.id = s.id OR t.s = s.s", {"id": "s.id"}, set()),
        ("t.id = s.small", {"id": "s.small"}, set()),  # of another type
        ("t.x = s.x", {"x": "s.x"}, set()),  # 0.0 and -0.0 are equal and not the same
        ("t.id = s.id", {"s": "s.s"}, set()),
    ],
)
def test_column_that_gets_the_key_by_which_it_was_found_stays(
    on: str, updates: dict[str, str], kept: set[str]
) -> None:
    spec = MergeSpec(on, "s", "t", matched=[Clause("update", None, updates)])
    plan = resolve_merge(TARGET, TARGET, spec)
    assert plan.copied_keys(plan.matched[0]) == kept
