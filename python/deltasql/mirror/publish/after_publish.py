"""What follows a published version: its checksum, a checkpoint when one is due, clean-up."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltasql import telemetry
from deltasql.mirror.checkpoint.checksum import write_checksum
from deltasql.mirror.checkpoint.due import is_due, unnamed_checkpoint
from deltasql.mirror.publish.cleanup import clean_log

if TYPE_CHECKING:
    from deltasql.config import Config
    from deltasql.storage import Storage
    from deltasql.store.records import TableRow
    from deltasql.store.store import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PostCommit:
    """What a commit wishes for the log after it; None leaves it to the table's properties."""

    create_checkpoint: bool = True
    cleanup_expired_logs: bool | None = None
    counts_commits: bool = False
    """Whether a table's own interval is counted as deltalake counts it: by commits, from one."""


DEFAULT = PostCommit()


def maintain(
    store: Store,
    table: TableRow,
    storage: Storage,
    version: int,
    *,
    config: Config,
    data: bytes | None = None,
    replaces_nothing: bool = False,
    last: int | None = None,
    wish: PostCommit = DEFAULT,
    mends: bool = False,
) -> bool:
    """Write what helps readers of a version that is published; a failure is logged, and False.

    Every part of it is optional to Delta and can be done again: a reader does with the commit
    files alone. `data` are the bytes of the commit file, read if they are not given;
    `replaces_nothing` is as in `write_checksum`. `last` is the end of a span that is published in
    one go: of the checkpoints that are due in it, readers need only the newest.
    `wish` is what the commit itself asks for. `mends` also looks whether what was to be written
    for versions before was.
    """
    try:
        totals = write_checksum(
            store, table, storage, version, data, replaces_nothing=replaces_nothing
        )
        configuration = totals.facts.configuration
        is_wanted = wish.create_checkpoint and is_due(
            configuration, version, config, last=last, counts_commits=wish.counts_commits
        )
        due = version if is_wanted else None
        if due is None and mends:  # the same content takes the same place, now with its hint
            due = unnamed_checkpoint(storage, version, configuration=configuration, config=config)
        if due is not None:
            from deltasql.mirror.checkpoint.write import write_checkpoint  # late: it writes Parquet

            write_checkpoint(store, table, storage, due)
        cleans = is_wanted if wish.cleanup_expired_logs is None else wish.cleanup_expired_logs
        if cleans:
            asked = wish.cleanup_expired_logs is True
            clean_log(store, table, storage, configuration, even_if_disabled=asked)
    except Exception as error:  # optional as a whole, and the commit is ratified
        telemetry.log(
            _log,
            logging.WARNING,
            "log maintenance failed",
            table=table.full_name,
            version=version,
            error=str(error),
        )
        return False
    return True
