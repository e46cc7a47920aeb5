"""Random logs of other writers: JSON commits, and a file for every path in them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from hypothesis import strategies as st

from deltasql.model.actions import (
    AddCdcFile,
    AddFile,
    DeletionVector,
    Metadata,
    Protocol,
)
from deltasql.model.clock import now_ms
from tests import strategies
from tests.mirror.checkpoint_support import Replay
from tests.mirror.random_commits import removal
from tests.mirror.support import commit_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deltasql.model.actions import Action

PARTITIONS = strategies.PARTITIONS
_FEATURES = ("deletionVectors", "domainMetadata", "changeDataFeed")
_NAMES = st.one_of(
    st.sampled_from(["a.parquet", "day=1/b c.parquet", "é%/x#y?.parquet", "p=%2F/100%.parquet"]),
    st.builds("{}/{}".format, st.sampled_from(["f", "x=1"]), st.integers(0, 9)),
)
# A checkpoint cannot store fields that Delta does not define.
_APPS = st.builds(replace, strategies.transactions, extra=st.just({}))
_DOMAINS = st.builds(
    replace, strategies.domains, domain=st.sampled_from(["a.b", "it's"]), extra=st.just({})
)
_STATS = st.sampled_from(
    [
        *(None, "", "{}", "not json", '{"numRecords":0}', '{ "numRecords" : 3, "x": [1] }'),
        '{"numRecords":2,"minValues":{"id":-9},"maxValues":{"id":9223372036854775807}}',
    ]
)
_BRIEF = dict.fromkeys(
    ("extended_file_metadata", "partition_values", "size", "stats", "tags"), None
)
_PLACES = st.sampled_from(["relative", "relative", "relative", "inside", "elsewhere"])
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_IDS = st.lists(st.sampled_from(_Z85[:60]), min_size=20, max_size=20).map("".join)


@dataclass(slots=True)
class RandomLog:
    """A log that grows by drawn commits; `root` is the table, `elsewhere` another folder."""

    root: Path
    elsewhere: Path
    data: st.DataObject
    replay: Replay = field(default_factory=Replay)
    versions: int = 0
    _metadata: Metadata = field(init=False)

    def write(self, commits: int) -> None:
        """Write this many commits; the first creates the table."""
        schema = strategies.SCHEMA.to_json()
        self._metadata = Metadata(
            id=f"{self.root.parent.name}", schema_string=schema, partition_columns=PARTITIONS
        )
        readers = tuple(each for each in _FEATURES if each == "deletionVectors")
        self._commit([Protocol(3, 7, readers, _FEATURES), self._metadata, *self._adds()])
        while self.versions < commits:
            self._commit(self._step())

    def _step(self) -> list[Action]:
        live = list(self.replay.adds.values())
        gone = self._draw(st.lists(st.sampled_from(live), max_size=2, unique_by=id)) if live else []
        removes = [removal(add) for add in gone]
        if self._draw(st.booleans()):
            removes = [replace(each, **_BRIEF) for each in removes]
        keys = {_key(each) for each in gone}
        adds = [add for add in self._adds() if _key(add) not in keys]
        if live and self._draw(st.booleans()):  # added again, with other statistics
            again = replace(live[0], stats='{"numRecords":3}', modification_time=7)
            adds += [] if _key(again) in keys | {_key(each) for each in adds} else [again]
        actions: list[Action] = [*removes, *adds, *self._draw(_few(_APPS))]
        actions += self._draw(st.lists(_DOMAINS, max_size=1))
        if self._draw(st.booleans()):
            path = self._path("_change_data/")
            actions.append(AddCdcFile(path, dict.fromkeys(PARTITIONS), 5))
        if self._draw(st.integers(0, 4)) == 0:
            owner = self._draw(strategies.texts)
            self._metadata = replace(self._metadata, configuration={"owner": owner})
            actions.append(self._metadata)
        unique = {(a.kind, getattr(a, "app_id", id(a))): a for a in actions}
        return list(unique.values())

    def _commit(self, actions: Sequence[Action]) -> None:
        info = self._draw(st.one_of(st.none(), strategies.commit_infos))
        lines = list(actions)
        random.Random(self.versions).shuffle(lines)
        if info is not None:
            lines.insert(0, replace(info, timestamp=now_ms() - 1000 + self.versions))
        path = commit_path(self.root, self.versions)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes("\n".join(each.to_json() for each in lines).encode())
        self.replay.commit([*actions])
        self.versions += 1

    def _adds(self) -> list[AddFile]:
        files = []
        for _ in range(self._draw(st.integers(0, 3))):
            drawn: Any = self._draw(strategies.adds)
            vector = self._vector() if self._draw(st.booleans()) else None
            # The total size of all files must fit, too.
            fields = {"size": drawn.size % 10**12, "stats": self._draw(_STATS)}
            files.append(replace(drawn, path=self._path(), deletion_vector=vector, **fields))
        return list({each.path: each for each in files}.values())

    def _path(self, folder: str = "") -> str:
        """Draw the path of a file, and create that file."""
        place = self._draw(_PLACES)
        # A file must not have two different paths: they would be two files.
        name = f"{folder}{'' if place == 'relative' else 'by url/'}{self._draw(_NAMES)}"
        root = self.elsewhere if place == "elsewhere" else self.root
        self._put(root / name)
        encoded = quote(name, safe="/=")
        return encoded if place == "relative" else f"{root.as_uri()}/{encoded}"

    def _vector(self) -> DeletionVector:
        kind = self._draw(st.sampled_from(["i", "u", "p"]))
        body = {"size_in_bytes": 34, "cardinality": 1}
        if kind == "i":
            return DeletionVector("i", self._draw(strategies.names), **body)
        offset = self._draw(st.integers(0, 3))
        if kind == "p":
            self._put(self.elsewhere / "vectors 1.bin")
            uri = f"{self.elsewhere.as_uri()}/vectors%201.bin"
            return DeletionVector("p", uri, **body, offset=offset)
        stored = self._draw(st.sampled_from(["", "ab"])) + self._draw(_IDS.filter(_fits))
        vector = DeletionVector("u", stored, **body, offset=offset)
        self._put(self.root / vector_name(vector))
        return vector

    def _put(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {path}")

    def _draw(self, strategy: st.SearchStrategy[Any]) -> Any:
        return self.data.draw(strategy)


def content_of(root: Path, path: str) -> str:
    """Return the content of the file at a path in the log of `root`."""
    if path.startswith("file://"):
        return Path(unquote(path.removeprefix("file://"))).read_text()
    return (root / unquote(path)).read_text()


def vector_name(vector: DeletionVector) -> str:
    """Return the relative path of a vector's file, as the protocol defines it."""
    stored = vector.path_or_inline_dv
    number = b"".join(_word(stored[-20:][at : at + 5]).to_bytes(4, "big") for at in (0, 5, 10, 15))
    text = number.hex()
    parts = (text[:8], text[8:12], text[12:16], text[16:20], text[20:])
    name = f"deletion_vector_{'-'.join(parts)}.bin"
    return f"{stored[:-20]}/{name}" if len(stored) > 20 else name


def _word(text: str) -> int:
    value = 0
    for letter in text:
        value = value * 85 + _Z85.index(letter)
    return value


def _fits(text: str) -> bool:
    return all(_word(text[at : at + 5]) < 2**32 for at in (0, 5, 10, 15))


def _few(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(strategy, max_size=2, unique_by=lambda each: each.app_id)


def _key(file: Any) -> tuple[str, str | None]:
    vector = file.deletion_vector
    return file.path, None if vector is None else vector.unique_id
