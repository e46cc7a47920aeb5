"""Random writes through SQL and outside it, with interruptions, lose and duplicate no row."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import deltalake
import pytest

from deltasql.exceptions import TableFollowsError
from deltasql.phases import HAND_OVER_PHASES, hooked
from tests.migrate.authority_support import (
    NAME,
    is_write_blocked,
    open_catalog,
    ours,
    sql_ids,
    theirs,
    verify_all_versions,
)
from tests.migrate.sources import read_ids
from tests.selection import smoke

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from deltasql import Catalog
    from deltasql.uri import DeltaSqlUri

pytestmark = pytest.mark.two_databases

STEPS = 40
LEFT = HAND_OVER_PHASES.index("left")
SEEDS = [int(os.environ["DELTASQL_SEED"])] if "DELTASQL_SEED" in os.environ else [1, 2, 3]


class Interruption(BaseException):
    """Raised to interrupt a run at some step."""


class MixedWriters:
    """A table, a catalog that may contain it, and all acknowledged rows."""

    def __init__(self, catalog: Catalog, place: Path, seed: int) -> None:
        self.catalog, self.place = catalog, place
        self.chance = random.Random(seed)
        self.ids: list[int] = []
        self.followed: list[int] = []  # rows that a follower must have at least
        self.path()

    def choices(self) -> list[str]:
        if not self.catalog.exists(NAME):
            return ["path", "path", "follow", "import_table", "complete_rollback"]
        if self.catalog.table(NAME).row.is_following:
            return ["path", "path", "refresh", "rejected_write", "cutover", "cutover", "leave"]
        if self.is_path_writable():
            return ["path", "catch_up", "sql", "cutover", "cutover", "leave"]
        return ["sql", "sql", "maintain", "rejected_write", "cutover", "leave"]

    def is_path_writable(self) -> bool:
        features = deltalake.DeltaTable(str(self.place)).protocol().writer_features or []
        return "inCommitTimestamp" not in features

    def step(self) -> str:
        choice = self.chance.choice(self.choices())
        getattr(self, choice)()
        assert read_ids(self.place) == sorted(self.ids), choice
        if self.catalog.exists(NAME):
            known = sql_ids(self.catalog)
            assert set(known) <= set(self.ids), choice
            assert set(self.followed) <= set(known), choice
        return choice

    def remember_ids(self) -> None:
        self.followed = list(self.ids)

    def new_id(self) -> int:
        return len(self.ids) + 1

    # Steps

    def path(self) -> None:
        if self.place.exists() and not self.is_path_writable():
            return  # an interrupted rollback does not allow these writes yet
        wanted = self.new_id()
        theirs(self.place, wanted)
        self.ids.append(wanted)
        if self.chance.random() < 0.1:
            deltalake.DeltaTable(str(self.place)).create_checkpoint()

    def sql(self) -> None:
        # Before a cutover both may write: SQL must load the log first.
        self.catch_up()
        wanted = self.new_id()
        ours(self.catalog, wanted)
        self.ids.append(wanted)
        self.remember_ids()

    def maintain(self) -> None:
        self.catalog.optimize(NAME)

    def catch_up(self) -> None:
        self.catalog.import_table(str(self.place))
        self.remember_ids()

    def follow(self) -> None:
        if self.is_path_writable():
            self.catalog.follow(str(self.place))
            self.remember_ids()

    def refresh(self) -> None:
        self.catalog.refresh(NAME)
        self.remember_ids()

    def complete_rollback(self) -> None:
        """Repeat a rollback that may have been interrupted."""
        if self.catalog.dropped():
            self.catalog.rollback(NAME)
            assert self.is_path_writable()

    def rejected_write(self) -> None:
        if self.catalog.table(NAME).row.is_following:
            with pytest.raises(TableFollowsError):
                ours(self.catalog, 0)
        else:
            assert is_write_blocked(self.place)

    def cutover(self) -> None:
        is_following = self.catalog.table(NAME).row.is_following
        if self.chance.random() < 0.4:
            phase = self.chance.choice(HAND_OVER_PHASES[:LEFT])
            with hooked(die(phase)):
                try:
                    self.catalog.cutover(NAME)
                except Interruption:
                    self.catalog.mirror.publisher.forget()
            if is_following and self.chance.random() < 0.5:
                return  # others write before it is repeated
        self.catalog.cutover(NAME)
        self.remember_ids()
        assert is_write_blocked(self.place)

    def leave(self) -> None:
        phase = self.chance.choice(HAND_OVER_PHASES[LEFT:])
        if self.chance.random() < 0.4:
            with hooked(die(phase)):
                try:
                    self.catalog.rollback(NAME)
                except Interruption:
                    return
        else:
            self.catalog.rollback(NAME)
            assert self.is_path_writable()

    def import_table(self) -> None:
        if self.is_path_writable():
            self.catalog.import_table(str(self.place))
            self.remember_ids()


def die(phase: str) -> Callable[[str], None]:
    def hook(reached: str) -> None:
        if reached == phase:
            raise Interruption

    return hook


@pytest.mark.parametrize("seed", smoke(SEEDS, SEEDS[:1], "more seeds"))
def test_mixed_writers_lose_and_duplicate_no_row(
    catalog_uri: DeltaSqlUri, tmp_path: Path, seed: int
) -> None:
    with open_catalog(catalog_uri) as catalog:
        writers = MixedWriters(catalog, tmp_path / NAME, seed)
        seen = {writers.step() for _ in range(STEPS)}
        assert len(seen) > 6
        if catalog.exists(NAME):
            writers.refresh() if catalog.table(NAME).row.is_following else writers.catch_up()
        else:
            writers.complete_rollback()
            writers.follow()
        assert sql_ids(catalog) == read_ids(writers.place) == sorted(writers.ids)
        assert verify_all_versions(catalog)
