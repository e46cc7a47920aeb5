"""Charts: their widths are relative, and empty tables are drawn as empty."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from deltasql.api.inspect.overview import HourCount
from deltasql.api.inspect.stats import DayGrowth, PartitionStats, SizeBucket
from deltasql.console.charts import (
    Bar,
    bar_chart,
    commits_per_hour,
    growth,
    heat_map,
    size_histogram,
)

HOUR = datetime(2024, 5, 1, 3, tzinfo=UTC)


def grown(day: int, size: int) -> DayGrowth:
    return DayGrowth(date(2024, 5, day), 1, 1, size, None, 0, 0, size)


def partition(name: str | None, size: int) -> PartitionStats:
    label = f"shop={name}"
    return PartitionStats({"shop": name}, label, 1, size, 1, 0.1)


def test_chart_without_values_is_empty() -> None:
    assert not bar_chart([Bar(0, "a", "a")], "Nothing")
    assert not commits_per_hour([HourCount(HOUR, 0)])
    assert not size_histogram([SizeBucket(0, 10, 0, 0)])
    assert not growth([grown(1, 0), grown(2, 0)], HOUR)
    assert not heat_map([])


def test_growth_starts_on_the_day_of_the_first_commit_in_binary_units() -> None:
    days = [grown(day, 5_000_000 if day > 28 else 0) for day in range(1, 31)]
    drawn = growth(days, datetime(2024, 5, 28, 12, tzinfo=UTC))
    assert "27 May" not in drawn
    assert "28 May" in drawn
    assert ">6 MiB<" in drawn
    assert ">3 MiB<" in drawn


def test_chart_fills_its_card_and_hides_some_labels_if_it_is_narrow() -> None:
    bars = [Bar(number, f"name {number}", "") for number in range(12)]
    drawn = bar_chart(bars, "Bars")
    assert 'width="100%"' in drawn
    assert "viewBox" not in drawn  # nothing is scaled, so text keeps its size
    assert drawn.count('class="tick extra"') == 8
    assert "3:00 UTC" in commits_per_hour([HourCount(HOUR, 1)])


@pytest.mark.parametrize("count", [3, 40])
def test_partitions_show_their_names_and_null(count: int) -> None:
    names = [None, "<b>", *(f"s{number:02d}" for number in range(count - 2))]
    drawn = heat_map([partition(name, 10) for name in names])
    assert "shop=NULL" in drawn
    assert "shop=&lt;b&gt;" in drawn
    assert "<b>" not in drawn
