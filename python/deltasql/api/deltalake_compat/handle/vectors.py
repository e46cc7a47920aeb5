"""Deletion vectors as masks of live rows, as deltalake returns them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from deltasql.engine.files.addresses import address_url

if TYPE_CHECKING:
    from deltasql.engine.files.live_files import LiveFiles

SELECTIONS = pa.schema(
    [
        pa.field("filepath", pa.large_string(), nullable=False),
        pa.field(
            "selection_vector",
            pa.list_(pa.field("item", pa.bool_(), nullable=False)),
            nullable=False,
        ),
    ]
)


def selections(live: LiveFiles, listed: pa.Table) -> pa.RecordBatchReader:
    """Return the URL and the mask (True for a live row) of every file with deleted rows."""
    paths, masks = [], []
    for file, records in zip(live.files, listed["num_records"].to_pylist(), strict=True):
        if not file.vector:
            continue
        deleted = live.deleted([file])["row_number"].to_pylist()
        # Without statistics the mask ends at the last deleted row; later rows are live.
        keep = [True] * max(records or 0, max(deleted, default=-1) + 1)
        for number in deleted:
            keep[number] = False
        paths.append(address_url(file.address))
        masks.append(keep)
    return pa.table([paths, masks], schema=SELECTIONS).to_reader()
