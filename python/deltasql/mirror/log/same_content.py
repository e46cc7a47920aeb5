"""Compare commit files by their actions, where their bytes differ."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from deltasql._core import encode_commit, parse_commit

if TYPE_CHECKING:
    from deltasql._core import Commit
    from deltasql.model.actions import Action

_INFO = b'{"commitInfo":'


def same_content(ours: bytes, theirs: bytes) -> bool:
    """Return whether another writer's commit file has the same actions as our own.

    A commit that was imported or adopted keeps the file of its writer. It has the actions of SQL
    in any order and formatting. It may lack the transaction id, which SQL gives to every commit.

    >>> ours = b'{"commitInfo":{"operation":"WRITE","txnId":"1"}}'
    >>> same_content(ours, b'{"commitInfo":{"operation":"WRITE"}}')
    True
    >>> same_content(ours, b'{"commitInfo":{"operation":"MERGE"}}')
    False
    """
    if ours == theirs:
        return True
    right = parse_commit(theirs)
    encoded = encode_commit(list(right.actions()))
    # Most files differ only in formatting and order: then sorted lines are equal.
    (info, lines), (_, others) = _sorted_lines(ours), _sorted_lines(encoded)
    if lines == others:
        return _same_info(parse_commit(info), right)
    left = parse_commit(ours)
    return _canonical_actions(left) == _canonical_actions(right) and _same_info(left, right)


def _sorted_lines(data: bytes) -> tuple[bytes, list[bytes]]:
    """Return the commitInfo line, and the other lines sorted."""
    lines = data.splitlines()
    info = b"".join(each for each in lines if each.startswith(_INFO))
    return info, sorted(each for each in lines if not each.startswith(_INFO))


def _canonical_actions(commit: Commit) -> Counter[str]:
    """Return every action except commitInfo as canonical JSON."""
    return Counter(
        json.dumps(_canonical(action), sort_keys=True)
        for action in commit.actions()
        if action.kind != "commitInfo"
    )


def _canonical(action: Action) -> dict[str, Any]:
    body = action.body()
    if body.get("partitionValues"):
        # A null partition value may be left out.
        values = body["partitionValues"]
        body["partitionValues"] = {name: v for name, v in values.items() if v is not None}
    return {**action.to_dict(), action.kind: body}


def _same_info(left: Commit, right: Commit) -> bool:
    ours = left.commit_info.body() if left.commit_info else {}
    theirs = right.commit_info.body() if right.commit_info else {}
    if "txnId" not in theirs:
        ours.pop("txnId", None)
    return ours == theirs
