"""`WriterProperties` and their effect on Parquet files."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import BloomFilterProperties, ColumnProperties, WriterProperties

from tests.parity.lakes import Lake, sample

DATA = pa.table({"id": list(range(1000)), "s": [str(each % 10) for each in range(1000)]})


def written(lake: Lake, **properties: Any) -> Any:
    """Write one file with these properties and return its Parquet metadata."""
    table = lake.make("t", DATA, writer_properties=WriterProperties(**properties))
    (uri,) = table.file_uris()
    return pq.ParquetFile(uri).metadata


def encodings(metadata: Any, column: int) -> set[str]:
    return set(metadata.row_group(0).column(column).encodings)


@pytest.mark.parametrize(
    ("name", "codec", "ending"),
    [
        ("UNCOMPRESSED", "UNCOMPRESSED", "c000.parquet"),
        ("SNAPPY", "SNAPPY", ".snappy.parquet"),
        ("GZIP", "GZIP", ".gz.parquet"),
        ("BROTLI", "BROTLI", ".br.parquet"),
        ("ZSTD", "ZSTD", ".zstd.parquet"),
        ("LZ4_RAW", "LZ4", ".parquet"),
    ],
)
def test_compression_sets_codec_and_file_suffix(
    lake: Lake, name: str, codec: str, ending: str
) -> None:
    table = lake.make("t", DATA, writer_properties=WriterProperties(compression=name))
    (uri,) = table.file_uris()
    assert pq.ParquetFile(uri).metadata.row_group(0).column(0).compression == codec
    assert uri.endswith(ending)


def test_default_compression_is_snappy(lake: Lake) -> None:
    (uri,) = lake.make("t", DATA).file_uris()
    assert pq.ParquetFile(uri).metadata.row_group(0).column(0).compression == "SNAPPY"
    assert uri.endswith("c000.snappy.parquet")


def test_compression_level_is_accepted(lake: Lake) -> None:
    metadata = written(lake, compression="ZSTD", compression_level=5)
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    assert WriterProperties(compression="ZSTD", compression_level=5).compression == "ZSTD(5)"


def test_max_row_group_size_limits_row_groups(lake: Lake) -> None:
    metadata = written(lake, max_row_group_size=100)
    assert metadata.num_row_groups == 10
    assert metadata.row_group(0).num_rows == 100


def test_dictionary_encoding_can_be_disabled(lake: Lake) -> None:
    plain = ColumnProperties(dictionary_enabled=False)
    assert "RLE_DICTIONARY" not in encodings(written(lake, default_column_properties=plain), 0)


def test_dictionary_encoding_can_be_disabled_for_one_column(lake: Lake) -> None:
    plain = ColumnProperties(dictionary_enabled=False)
    metadata = written(lake, column_properties={"id": plain})
    assert "RLE_DICTIONARY" not in encodings(metadata, 0)
    assert "RLE_DICTIONARY" in encodings(metadata, 1)


def test_encoding_can_be_set_for_one_column(lake: Lake) -> None:
    packed = ColumnProperties(encoding="DELTA_BINARY_PACKED", dictionary_enabled=False)
    metadata = written(lake, column_properties={"id": packed})
    assert "DELTA_BINARY_PACKED" in encodings(metadata, 0)


def test_statistics_can_be_disabled_for_one_column(lake: Lake) -> None:
    metadata = written(lake, column_properties={"id": ColumnProperties(statistics_enabled="NONE")})
    assert metadata.row_group(0).column(0).statistics is None
    assert metadata.row_group(0).column(1).statistics.max == "9"


def test_bloom_filter_options_are_accepted(lake: Lake) -> None:
    bloom = ColumnProperties(bloom_filter_properties=BloomFilterProperties(True, 0.01, 10))
    assert written(lake, column_properties={"s": bloom}).num_rows == 1000


def test_page_size_options_are_accepted(lake: Lake) -> None:
    metadata = written(
        lake,
        data_page_size_limit=1000,
        dictionary_page_size_limit=1000,
        data_page_row_count_limit=100,
        write_batch_size=100,
        statistics_truncate_length=8,
    )
    assert metadata.num_rows == 1000


def test_rewrites_use_writer_properties(lake: Lake) -> None:
    table = lake.make("t", sample())
    table.delete("id = 1", writer_properties=WriterProperties(compression="GZIP"))
    assert [each.split("c000")[-1] for each in table.file_uris()] == [".gz.parquet"]
    table.update({"v": "1"}, writer_properties=WriterProperties(compression="ZSTD"))
    assert [each.split("c000")[-1] for each in table.file_uris()] == [".zstd.parquet"]
    properties = WriterProperties(compression="BROTLI")
    merger = table.merge(sample(), "s.id = t.id", "s", "t", writer_properties=properties)
    merger.when_matched_update_all().execute()
    assert [each.split("c000")[-1] for each in table.file_uris()] == [".br.parquet"]


def test_compaction_compresses_with_zstd_by_default(lake: Lake) -> None:
    table = lake.make("t", sample())
    lake.write_deltalake(table, sample(), mode="append")
    table.optimize.compact()
    (uri,) = table.file_uris()
    assert pq.ParquetFile(uri).metadata.row_group(0).column(0).compression == "ZSTD"


def test_invalid_properties_are_rejected() -> None:
    with pytest.raises(ValueError, match="between 1-22"):
        WriterProperties(compression="ZSTD", compression_level=99)
    with pytest.raises(ValueError, match="without the compression type"):
        WriterProperties(compression_level=9)
    with pytest.raises(ValueError, match="dictionary_enabled=True and encoding"):
        ColumnProperties(encoding="PLAIN", dictionary_enabled=True)
    with pytest.raises(ValueError, match="between 0 and 1"):
        BloomFilterProperties(True, 2.0)
