from collections.abc import Sequence
from typing import final

from deltasql.model.actions import AddFile

__version__: str

def encode_key(delta_type: str, text: str) -> bytes | None: ...
def key_bounds(delta_type: str, text: str) -> tuple[bytes, bytes] | None: ...
def path_key(path: str, dv_unique_id: str | None = None) -> bytes: ...
def index_files(
    adds: Sequence[AddFile],
    columns: Sequence[tuple[int, tuple[str, ...], str]],
    partition_columns: Sequence[str],
    first_file_id: int,
    range_size: int = 256,
) -> IndexedFiles: ...

FileRow = tuple[
    int,
    str,
    bytes,
    str,
    int,
    int,
    bool,
    str | None,
    int | None,
    str | None,
    str | None,
    int | None,
    int | None,
    str | None,
    str | None,
]
StatsRow = tuple[int, int, int, bytes | None, bytes | None, int | None, int | None]

@final
class IndexedFiles:
    @property
    def files(self) -> list[FileRow]: ...
    @property
    def stats(self) -> list[StatsRow]: ...
    @property
    def partitions(self) -> list[str]: ...
    def __len__(self) -> int: ...
