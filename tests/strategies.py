"""Hypothesis strategies for Delta actions: every field, with values that are easily lost."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from deltasql.model.actions import (
    AddCdcFile,
    AddFile,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Format,
    RemoveFile,
    SetTransaction,
)
from deltasql.model.schema.schema import StructField, StructType

PARTITIONS = ("day", "it's 100% / é")
FEATURES = ("deletionVectors", "domainMetadata", "inCommitTimestamp", "changeDataFeed")
SCHEMA = StructType(
    (
        StructField("id", "long"),
        StructField(PARTITIONS[0], "string"),
        StructField(PARTITIONS[1], "string"),
    )
)
BIG = 2**63 - 1

# No NUL and no lone surrogate: PostgreSQL text has neither, and no Delta writer writes them.
_CHARACTERS = st.characters(exclude_characters="\0", exclude_categories=["Cs"])
_AWKWARD = ("", "NULL", "null", "it's", '"', "\\", "100%", "%s", "a/b", "$1", "{in:x}", "é\u2028😀")
texts = st.one_of(st.sampled_from(_AWKWARD), st.text(_CHARACTERS, max_size=12))
names = texts.filter(bool)
ints = st.one_of(st.sampled_from([0, 1, -1, BIG, -BIG - 1]), st.integers(-BIG - 1, BIG))
sizes = st.one_of(st.sampled_from([0, BIG]), st.integers(0, BIG))
json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        ints,
        st.floats(allow_nan=False, allow_infinity=False),
        texts,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=5,
)
# No known field starts with this prefix.
extras = st.dictionaries(texts.map(lambda key: f"x-{key}"), json_values, max_size=3)
partition_values = st.fixed_dictionaries({name: st.one_of(st.none(), texts) for name in PARTITIONS})
tags = st.one_of(st.none(), st.dictionaries(texts, st.one_of(st.none(), texts), max_size=3))
stats = st.one_of(
    st.none(),
    st.sampled_from(["", "{}", '{"numRecords":0}', "not json", '{ "numRecords" : 3, "x": [1] }']),
    st.builds(
        '{{"numRecords":{},"minValues":{{"id":{}}},"maxValues":{{"id":{}}}}}'.format,
        st.integers(0, BIG),
        ints,
        ints,
    ),
)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), strategy)


deletion_vectors = st.builds(
    DeletionVector,
    storage_type=st.sampled_from(["u", "i", "p"]),
    path_or_inline_dv=texts,
    size_in_bytes=sizes,
    cardinality=sizes,
    offset=maybe(sizes),
    extra=extras,
)
adds = st.builds(
    AddFile,
    path=names,
    partition_values=partition_values,
    size=sizes,
    modification_time=sizes,
    data_change=st.booleans(),
    stats=stats,
    tags=tags,
    deletion_vector=maybe(deletion_vectors),
    base_row_id=maybe(ints),
    default_row_commit_version=maybe(ints),
    clustering_provider=maybe(texts),
    extra=extras,
)
removes = st.builds(
    RemoveFile,
    path=names,
    deletion_timestamp=maybe(ints),
    data_change=st.booleans(),
    extended_file_metadata=maybe(st.booleans()),
    partition_values=maybe(partition_values),
    size=maybe(sizes),
    stats=stats,
    tags=tags,
    base_row_id=maybe(ints),
    default_row_commit_version=maybe(ints),
    extra=extras,
)
cdc_files = st.builds(
    AddCdcFile,
    path=names,
    partition_values=partition_values,
    size=sizes,
    data_change=st.booleans(),
    tags=tags,
    extra=extras,
)
formats = st.builds(Format, options=st.dictionaries(texts, texts, max_size=2), extra=extras)
transactions = st.builds(
    SetTransaction, app_id=texts, version=ints, last_updated=maybe(ints), extra=extras
)
domains = st.builds(
    DomainMetadata, domain=texts, configuration=texts, removed=st.booleans(), extra=extras
)
commit_infos = st.builds(
    CommitInfo,
    operation=maybe(texts),
    operation_parameters=maybe(st.dictionaries(texts, json_values, max_size=3)),
    operation_metrics=maybe(st.dictionaries(texts, json_values, max_size=3)),
    engine_info=maybe(texts),
    user_metadata=maybe(texts),
    extra=extras,
)
