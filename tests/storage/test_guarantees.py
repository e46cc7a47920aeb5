"""The guarantees of every storage, tested on local disk and on a real S3 server."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deltasql.exceptions import TxnLogStorageError
from deltasql.storage import FileInfo, Storage

if TYPE_CHECKING:
    from collections.abc import Callable

LOG = "_delta_log/00000000000000000000.json"
ODD_NAMES = [
    "a b/c  d.json",
    "größe=ß/東京/🦆.parquet",
    "day=2024-01-01 00%3A00/50%.parquet",
    "p=%25%2F/%C3%BC.parquet",
    "q=a+b&c=d?e#f/[x]{y}'\".json",
    ".hidden/_x",
    "~!@$^*()|;,<>=.bin",
]


def names(storage: Storage, prefix: str = "", *, after: str | None = None) -> list[str]:
    return [file.name for file in storage.list(prefix, start_after=after)]


def test_storage_implements_the_protocol(storage: Storage) -> None:
    assert isinstance(storage, Storage)


def test_second_conditional_put_changes_nothing(storage: Storage) -> None:
    assert storage.put_if_absent(LOG, b"first") is True
    assert storage.put_if_absent(LOG, b"second, and longer") is False
    assert storage.read(LOG) == b"first"
    assert names(storage) == [LOG]


def test_exactly_one_of_racing_threads_wins_a_conditional_put(storage: Storage) -> None:
    racers = 6
    barrier = threading.Barrier(racers)

    def race(me: int) -> list[str]:
        won = []
        for turn in range(5):
            barrier.wait(timeout=30)
            if storage.put_if_absent(f"{turn}.json", b"%d" % me * 1000):
                won.append(f"{turn}.json")
        return won

    with ThreadPoolExecutor(racers) as pool:
        results = list(pool.map(race, range(racers)))
    assert sorted(name for won in results for name in won) == [f"{t}.json" for t in range(5)]
    for me, won in enumerate(results):
        for name in won:
            assert storage.read(name) == b"%d" % me * 1000


def test_put_replaces_the_whole_file(storage: Storage) -> None:
    storage.put("_delta_log/_last_checkpoint", b"a long content")
    storage.put("_delta_log/_last_checkpoint", b"short")
    assert storage.read("_delta_log/_last_checkpoint") == b"short"
    assert names(storage) == ["_delta_log/_last_checkpoint"]


def test_readers_of_a_replaced_file_see_the_old_or_the_new_content(storage: Storage) -> None:
    size = 200_000
    storage.put("x", b"0" * size)
    stop = threading.Event()

    def replace() -> None:
        for turn in range(12):
            storage.put("x", b"%d" % (turn % 10) * size)
        stop.set()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(replace)
        while not stop.is_set():
            seen = storage.read("x")
            assert (len(seen), len(set(seen))) == (size, 1)
        done.result()


def test_empty_files_are_stored(storage: Storage) -> None:
    assert storage.put_if_absent("empty", b"")
    storage.put("also", b"")
    with storage.writer("streamed"):
        pass
    assert [file.size for file in storage.list()] == [0, 0, 0]
    assert storage.size("empty") == 0
    assert storage.read("empty") == b""
    with storage.open_input("empty") as file:
        assert file.read() == b""


@pytest.mark.parametrize("pieces", [3, 30])
def test_streamed_file_is_invisible_until_it_is_complete(storage: Storage, pieces: int) -> None:
    piece = bytes(range(256)) * 4096
    with storage.writer("part.bin") as sink:
        for number in range(pieces):
            assert sink.tell() == number * len(piece)
            sink.write(piece)
        assert not storage.exists("part.bin")
        assert names(storage) == []
    assert storage.read("part.bin") == piece * pieces
    assert names(storage) == ["part.bin"]


@pytest.mark.parametrize("pieces", [1, 30])
def test_failed_stream_leaves_nothing(storage: Storage, pieces: int) -> None:
    def fail() -> None:
        with storage.writer("part.bin") as sink:
            for _ in range(pieces):
                sink.write(b"x" * 1_000_000)
            raise KeyError("the engine gave up")

    with pytest.raises(KeyError, match="the engine gave up"):
        fail()
    assert not storage.exists("part.bin")
    storage.put("part.bin", b"before")
    with pytest.raises(KeyError):
        fail()
    assert storage.read("part.bin") == b"before"
    assert names(storage) == ["part.bin"]


def test_stream_replaces_an_existing_file(storage: Storage) -> None:
    storage.put("x", b"before")
    with storage.writer("x") as sink:
        sink.write(b"after")
        assert storage.read("x") == b"before"
    assert storage.read("x") == b"after"


def test_arrow_writes_and_reads_through_the_storage(storage: Storage) -> None:
    table = pa.table({"id": range(50_000), "text": [f"row {i}" for i in range(50_000)]})
    with storage.writer("day=1/part.parquet") as sink:
        pq.write_table(table, sink, row_group_size=10_000)
        size = sink.tell()
    assert next(storage.list()).size == size
    with storage.open_input("day=1/part.parquet") as file:
        parquet = pq.ParquetFile(file)
        assert parquet.num_row_groups == 5
        assert parquet.read_row_group(3, columns=["id"]).column("id")[0].as_py() == 30_000
        assert parquet.read() == table


def test_input_file_supports_random_access(storage: Storage) -> None:
    data = b"".join(b"%07d\n" % number for number in range(300_000))
    with storage.writer("big") as sink:
        sink.write(data)
    with storage.open_input("big") as file:
        assert file.seekable()
        assert file.readable()
        assert file.seek(-8, 2) == len(data) - 8
        assert file.read() == b"0299999\n"
        file.seek(8 * 1234)
        assert file.read(8) == b"0001234\n"
        file.seek(8, 1)
        assert file.tell() == 8 * 1236
        assert file.readline() == b"0001236\n"
        file.seek(len(data) + 5)
        assert file.read(1) == b""
        file.seek(0)
        assert file.read() == data


@pytest.mark.parametrize(
    "call",
    [
        lambda storage: storage.read("a/b"),
        lambda storage: storage.open_input("a/b"),
        lambda storage: storage.rename("a/b", "c"),
        lambda storage: storage.copy_from(storage, "a/b"),
        lambda storage: storage.size("a/b"),
    ],
    ids=["read", "open_input", "rename", "copy_from", "size"],
)
def test_missing_file_raises_file_not_found(
    storage: Storage, call: Callable[[Storage], object]
) -> None:
    with pytest.raises(FileNotFoundError):
        call(storage)
    storage.put("a/other", b"")
    with pytest.raises(FileNotFoundError) as caught:
        call(storage)
    assert "a/b" in str(caught.value)
    assert names(storage) == ["a/other"]


def test_deleting_a_missing_file_succeeds(storage: Storage) -> None:
    storage.delete("a/b")
    storage.put("a/b", b"1")
    storage.delete("a/b")
    storage.delete("a/b")
    assert not storage.exists("a/b")
    assert names(storage) == []


def test_deleting_a_folder_name_deletes_no_files(storage: Storage) -> None:
    storage.put("a/b", b"1")
    storage.delete("a")
    assert names(storage) == ["a/b"]
    storage.delete("a/b")
    storage.delete_many(["a"])  # on disk, the folder still exists
    assert names(storage) == []


def test_many_files_are_deleted_at_once(storage: Storage) -> None:
    kept = ["b/5", "b/50"]
    gone = ["a", "b/1", "c d/%41", "z"]
    for name in [*kept, *gone]:
        storage.put(name, b"")
    storage.delete_many(iter([*gone, *(f"missing/{number}" for number in range(1500))]))
    storage.delete_many([])
    assert names(storage) == kept


def test_listing_is_recursive_and_sorted_by_name(storage: Storage) -> None:
    # A folder is sorted with its slash: after "a-", before "a0".
    expected = ["Z", "_x", "a!", "a-b", "a/1", "a/b/c", "a/b0", "a0", "aa/z", "ä", "東"]
    for name in reversed(expected):
        storage.put(name, name.encode())
    assert names(storage) == expected
    assert [file.size for file in storage.list()] == [len(name.encode()) for name in expected]


def test_listing_is_limited_to_a_folder_and_starts_after_a_name(storage: Storage) -> None:
    for name in ["a/1", "a/2", "a/b/1", "a/b/2", "a/c", "ab/1", "b"]:
        storage.put(name, b"")
    assert names(storage, "a/") == names(storage, "a") == ["a/1", "a/2", "a/b/1", "a/b/2", "a/c"]
    assert names(storage, "a/b/") == ["a/b/1", "a/b/2"]
    assert names(storage, "nothing/") == []
    assert names(storage, "a/", after="a/2") == ["a/b/1", "a/b/2", "a/c"]
    assert names(storage, "a/", after="a/b/1") == ["a/b/2", "a/c"]
    assert names(storage, "a/", after="a/b/x") == ["a/c"]
    assert names(storage, after="a/z") == ["ab/1", "b"]
    assert names(storage, after="b") == []


def test_folders_lists_only_direct_subfolders(storage: Storage) -> None:
    assert list(storage.folders()) == []
    for name in ["a/1", "a/b/1", "a/c d/e/1", "ab/1", "x", "ä=%20/1"]:
        storage.put(name, b"")
    assert list(storage.folders()) == ["a/", "ab/", "ä=%20/"]
    assert list(storage.folders("a/")) == list(storage.folders("a")) == ["a/b/", "a/c d/"]
    assert list(storage.folders("x")) == list(storage.folders("nothing/")) == []
    assert [*storage.list(start_after="ä=%20/")] == [*storage.list("ä=%20/")]


def test_listing_of_several_pages_is_complete(storage: Storage) -> None:
    expected = [f"_delta_log/{number:020d}.json" for number in range(1005)]
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda name: storage.put_if_absent(name, b"{}"), expected))
    assert names(storage, "_delta_log/") == expected
    assert names(storage, "_delta_log/", after=expected[1001]) == expected[1002:]


def test_listing_returns_modification_times(storage: Storage) -> None:
    # S3 returns whole seconds, and the kernel clock may be a few milliseconds behind.
    before = int(time.time() - 0.02) * 1000
    storage.put("a", b"12")
    [file] = storage.list()
    assert file == FileInfo("a", 2, file.modified_ms)
    assert before <= file.modified_ms <= time.time() * 1000


@pytest.mark.parametrize("name", ODD_NAMES)
def test_file_names_are_used_unchanged(storage: Storage, name: str) -> None:
    assert storage.put_if_absent(name, b"1")
    assert not storage.put_if_absent(name, b"2")
    assert storage.exists(name)
    assert storage.read(name) == b"1"
    folder = name.rpartition("/")[0]
    assert names(storage, f"{folder}/" if folder else "") == [name]
    with storage.writer(f"{name}.more") as sink:
        sink.write(b"3")
    with storage.open_input(f"{name}.more") as file:
        assert file.read() == b"3"
    storage.rename(f"{name}.more", f"aside/{name}")
    assert names(storage, "aside/") == [f"aside/{name}"]
    storage.delete_many([name, f"aside/{name}"])
    assert names(storage) == []


@pytest.mark.parametrize(
    "name", ["", "/etc/passwd", "../x", "a/../../x", "a//b", "./a", "a/", "\0"]
)
def test_name_outside_the_root_is_rejected(storage: Storage, name: str) -> None:
    for call in (storage.read, storage.exists, storage.delete, storage.open_input, storage.size):
        with pytest.raises(TxnLogStorageError, match="is not the name of a file below") as caught:
            call(name)
        assert (caught.value.name, caught.value.location) == (name, storage.location)
    with pytest.raises(TxnLogStorageError):
        storage.put_if_absent(name, b"")
    with pytest.raises(TxnLogStorageError), storage.writer(name):
        pass
    if name:
        with pytest.raises(TxnLogStorageError):
            list(storage.list("../"))


def test_rename_keeps_the_content_and_replaces_the_target(storage: Storage) -> None:
    storage.put("_delta_log/1.json", b"foreign")
    storage.put("aside/1.json", b"older")
    storage.rename("_delta_log/1.json", "aside/1.json")
    storage.rename("aside/1.json", "new/folder/1.json")
    assert names(storage) == ["new/folder/1.json"]
    assert storage.read("new/folder/1.json") == b"foreign"


def test_paths_of_actions_are_decoded_once(storage: Storage) -> None:
    assert storage.data_name("day=1%202/part%2525.parquet") == "day=1 2/part%25.parquet"
    assert storage.data_name("größe/x+y.parquet") == "größe/x+y.parquet"
    for path in ("../x.parquet", "a/%2E%2E/%2e./x.parquet", "s3://elsewhere/x", "file:///etc/x"):
        with pytest.raises(TxnLogStorageError, match="is not below") as caught:
            storage.data_name(path)
        assert caught.value.operation == "data_name"


def test_absolute_path_of_an_action_is_resolved_below_the_root(storage: Storage) -> None:
    location = storage.location
    root = location if "://" in location else "file://" + location.replace("%", "%25")
    storage.put("a b.parquet", b"1")
    assert storage.data_name(f"{root}/a%20b.parquet") == "a b.parquet"
    assert storage.data_name(f"{root}/x/y.parquet") == "x/y.parquet"
    with pytest.raises(TxnLogStorageError):
        storage.data_name(f"{root}2/x/y.parquet")
    with pytest.raises(TxnLogStorageError):
        storage.data_name(root)
