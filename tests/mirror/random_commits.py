"""Random valid commits: files are added, removed and added again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import strategies as st

from deltasql import AddFile, RemoveFile
from deltasql.model.clock import now_ms
from tests import strategies

if TYPE_CHECKING:
    from tests.mirror.checkpoint_support import Replay

PARTITIONS = ("day", "it's/100%é")
SCHEMA = pa.schema([("id", pa.int64()), *((name, pa.string()) for name in PARTITIONS)])
FEATURES = {
    "delta.enableDeletionVectors": "true",
    "delta.feature.domainMetadata": "supported",
}
DAY_MS = 86_400_000


def removal(add: AddFile, days_ago: float = 0.0, **fields: Any) -> RemoveFile:
    """Return a remove action with every optional field."""
    return RemoveFile(
        path=add.path,
        deletion_timestamp=now_ms() - int(days_ago * DAY_MS),
        extended_file_metadata=True,
        partition_values=add.partition_values,
        size=add.size,
        stats=add.stats,
        tags=add.tags,
        deletion_vector=add.deletion_vector,
        **fields,
    )


vectors = st.one_of(
    st.none(),
    st.builds(
        replace,
        strategies.deletion_vectors,
        offset=strategies.maybe(st.integers(0, 2**31 - 1)),
        size_in_bytes=st.integers(0, 2**31 - 1),
    ),
)
files = st.builds(
    replace,
    strategies.adds,
    size=st.integers(0, 10**12),
    deletion_vector=vectors,
    partition_values=st.fixed_dictionaries(
        {name: strategies.maybe(strategies.texts) for name in PARTITIONS}
    ),
)
steps = st.lists(
    st.fixed_dictionaries(
        {
            "adds": st.lists(files, max_size=3, unique_by=lambda add: add.path),
            "remove": st.lists(st.integers(0, 20), max_size=3),
            "again": st.lists(st.integers(0, 20), max_size=2),
            "days_ago": st.sampled_from([0.0, 1.0, 8.0, 400.0]),
            "txns": st.lists(strategies.transactions, max_size=2, unique_by=lambda txn: txn.app_id),
            "domains": st.lists(
                st.builds(
                    replace,
                    strategies.domains,
                    domain=st.sampled_from(["a", "b", "it's"]),
                ),
                max_size=2,
                unique_by=lambda domain: domain.domain,
            ),
        }
    ),
    min_size=1,
    max_size=6,
)


def actions_of(step: dict[str, Any], replay: Replay) -> list[Any]:
    """Turn a drawn step into a commit that is valid for the current live files."""
    live = list(replay.adds.values())
    gone = {live[i % len(live)].path: live[i % len(live)] for i in step["remove"]} if live else {}
    removes = [removal(add, step["days_ago"]) for add in gone.values()]
    known = [add for add in live if add.path not in gone]
    known += [
        AddFile(r.path, r.partition_values or {}, 5, 5, deletion_vector=r.deletion_vector)
        for r in replay.removes.values()
        if r.path not in gone
    ]
    again = (
        {known[i % len(known)].path: known[i % len(known)] for i in step["again"]} if known else {}
    )
    taken = gone.keys() | again.keys()
    adds = [add for add in step["adds"] if add.path not in taken]
    return [*step["txns"], *step["domains"], *removes, *again.values(), *adds]
