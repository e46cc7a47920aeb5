"""Whether two commit files say the same although their bytes differ."""

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
    """Tell whether another writer's commit file has the content that SQL has for the version.

    A commit that was imported or adopted keeps the file of its writer. Its actions are those of
    SQL in any order and spelling; only the transaction id may be missing there, since SQL gives
    one to every commit.

    >>> ours = b'{"commitInfo":{"operation":"WRITE","txnId":"1"}}'
    >>> same_content(ours, b'{"commitInfo":{"operation":"WRITE"}}')
    True
    >>> same_content(ours, b'{"commitInfo":{"operation":"MERGE"}}')
    False
    """
    if ours == theirs:
        return True
    right = parse_commit(theirs)
    spelled = encode_commit(list(right.actions()))
    # Most writers differ from us only in spelling and order: then lines need not be taken apart.
    (info, lines), (_, others) = _parted(ours), _parted(spelled)
    if lines == others:
        return _same_info(parse_commit(info), right)
    left = parse_commit(ours)
    return _lines(left) == _lines(right) and _same_info(left, right)


def _parted(data: bytes) -> tuple[bytes, list[bytes]]:
    """Return the line of the commitInfo, and the others in one order."""
    lines = data.splitlines()
    info = b"".join(each for each in lines if each.startswith(_INFO))
    return info, sorted(each for each in lines if not each.startswith(_INFO))


def _lines(commit: Commit) -> Counter[str]:
    """Every action but commitInfo, spelled in one way."""
    return Counter(
        json.dumps(_known(action), sort_keys=True)
        for action in commit.actions()
        if action.kind != "commitInfo"
    )


def _known(action: Action) -> dict[str, Any]:
    body = action.body()
    if body.get("partitionValues"):
        # A partition value that is null need not be written.
        values = body["partitionValues"]
        body["partitionValues"] = {name: v for name, v in values.items() if v is not None}
    return {**action.to_dict(), action.kind: body}


def _same_info(left: Commit, right: Commit) -> bool:
    ours = left.commit_info.body() if left.commit_info else {}
    theirs = right.commit_info.body() if right.commit_info else {}
    if "txnId" not in theirs:
        ours.pop("txnId", None)
    return ours == theirs
