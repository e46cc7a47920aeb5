//! Encoding and parsing a commit returns the same actions, with known and unknown fields.
#![allow(clippy::unwrap_used)]
mod cases;

use std::sync::Arc;

use deltasql_core::actions::*;
use deltasql_core::codec::{encode, parse};
use deltasql_core::error::Error;
use proptest::collection::{hash_map, vec};
use proptest::option;
use proptest::prelude::*;
use serde_json::{Map, Number, Value};

use cases::cases;

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9=/._-]{0,12}", any::<String>()]
}

fn string_map() -> impl Strategy<Value = StringMap> {
    hash_map(text(), option::of(text()), 0..4).prop_map(|map| map.into_iter().collect())
}

/// Numbers, including those that a double cannot represent.
fn number() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        "-?(0|[1-9][0-9]{0,40})",
        "-?(0|[1-9][0-9]{0,20})\\.[0-9]{1,30}",
        "-?[1-9]\\.[0-9]{1,5}e-?[1-9][0-9]?",
    ];
    text.prop_map(|text| Value::Number(serde_json::from_str::<Number>(&text).unwrap()))
}

fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number(),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            hash_map(text(), inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// Fields with names that no action has.
fn extra() -> impl Strategy<Value = Map<String, Value>> {
    hash_map("x_[a-z]{1,8}", json(), 0..3).prop_map(|map| map.into_iter().collect())
}

prop_compose! {
    fn deletion_vector()(
        storage_type in "[uip]", path_or_inline_dv in text(), size_in_bytes in any::<i64>(),
        cardinality in any::<i64>(), offset in option::of(any::<i64>()), extra in extra(),
    ) -> DeletionVector {
        DeletionVector { storage_type, path_or_inline_dv, size_in_bytes, cardinality, offset, extra }
    }
}

prop_compose! {
    fn add_file()(
        path in text(), partition_values in string_map(), size in any::<i64>(),
        modification_time in any::<i64>(), data_change in any::<bool>(),
        stats in option::of(text()), tags in option::of(string_map()),
        deletion_vector in option::of(deletion_vector()), base_row_id in option::of(any::<i64>()),
        default_row_commit_version in option::of(any::<i64>()), extra in extra(),
    )(
        clustering_provider in option::of(text()),
        path in Just(path), partition_values in Just(partition_values), size in Just(size),
        modification_time in Just(modification_time), data_change in Just(data_change),
        stats in Just(stats), tags in Just(tags), deletion_vector in Just(deletion_vector),
        base_row_id in Just(base_row_id), extra in Just(extra),
        default_row_commit_version in Just(default_row_commit_version),
    ) -> AddFile {
        AddFile {
            path, partition_values, size, modification_time, data_change, stats, tags,
            deletion_vector, base_row_id, default_row_commit_version, clustering_provider, extra,
        }
    }
}

prop_compose! {
    fn remove_file()(
        add in add_file(), deletion_timestamp in option::of(any::<i64>()),
        extended_file_metadata in option::of(any::<bool>()), full in any::<bool>(),
    ) -> RemoveFile {
        RemoveFile {
            path: add.path, deletion_timestamp, data_change: add.data_change,
            extended_file_metadata,
            partition_values: full.then_some(add.partition_values),
            size: full.then_some(add.size),
            stats: add.stats, tags: add.tags, deletion_vector: add.deletion_vector,
            base_row_id: add.base_row_id,
            default_row_commit_version: add.default_row_commit_version, extra: add.extra,
        }
    }
}

prop_compose! {
    fn metadata()(
        id in text(), schema_string in text(), partition_columns in vec(text(), 0..3),
        configuration in string_map(), provider in text(), options in string_map(),
        name in option::of(text()), description in option::of(text()),
        created_time in option::of(any::<i64>()), format_extra in extra(), extra in extra(),
    ) -> Metadata {
        let format = Format { provider, options, extra: format_extra };
        Metadata {
            id, schema_string, partition_columns, configuration, format, name, description,
            created_time, extra,
        }
    }
}

/// commitInfo may have any JSON; a missing field and null are the same.
fn commit_info() -> impl Strategy<Value = CommitInfo> {
    let fields = vec(option::of(json().prop_filter("null", |v| !v.is_null())), 11);
    (fields, extra()).prop_map(|(fields, extra)| {
        let [timestamp, in_commit_timestamp, operation, operation_parameters, operation_metrics, read_version, isolation_level, is_blind_append, engine_info, user_metadata, txn_id] =
            fields.try_into().unwrap();
        CommitInfo {
            timestamp,
            in_commit_timestamp,
            operation,
            operation_parameters,
            operation_metrics,
            read_version,
            isolation_level,
            is_blind_append,
            engine_info,
            user_metadata,
            txn_id,
            extra,
        }
    })
}

fn action() -> impl Strategy<Value = Action> {
    let number = any::<i64>;
    prop_oneof![
        add_file().prop_map(|a| Action::Add(Arc::new(a))),
        remove_file().prop_map(|a| Action::Remove(Arc::new(a))),
        metadata().prop_map(|a| Action::Metadata(Box::new(a))),
        commit_info().prop_map(|a| Action::CommitInfo(Box::new(a))),
        (
            text(),
            string_map(),
            number(),
            any::<bool>(),
            option::of(string_map()),
            extra()
        )
            .prop_map(|(path, partition_values, size, data_change, tags, extra)| {
                Action::Cdc(Box::new(AddCdcFile {
                    path,
                    partition_values,
                    size,
                    data_change,
                    tags,
                    extra,
                }))
            }),
        (
            number(),
            number(),
            option::of(vec(text(), 0..3)),
            option::of(vec(text(), 0..3)),
            extra()
        )
            .prop_map(
                |(
                    min_reader_version,
                    min_writer_version,
                    reader_features,
                    writer_features,
                    extra,
                )| {
                    Action::Protocol(Box::new(Protocol {
                        min_reader_version,
                        min_writer_version,
                        reader_features,
                        writer_features,
                        extra,
                    }))
                }
            ),
        (text(), number(), option::of(number()), extra()).prop_map(
            |(app_id, version, last_updated, extra)| {
                Action::Txn(Box::new(SetTransaction {
                    app_id,
                    version,
                    last_updated,
                    extra,
                }))
            }
        ),
        (text(), text(), any::<bool>(), extra()).prop_map(
            |(domain, configuration, removed, extra)| {
                Action::DomainMetadata(Box::new(DomainMetadata {
                    domain,
                    configuration,
                    removed,
                    extra,
                }))
            }
        ),
        (
            text(),
            number(),
            number(),
            option::of(string_map()),
            extra()
        )
            .prop_map(|(path, size_in_bytes, modification_time, tags, extra)| {
                Action::Sidecar(Box::new(Sidecar {
                    path,
                    size_in_bytes,
                    modification_time,
                    tags,
                    extra,
                }))
            }),
        (number(), option::of(string_map()), extra()).prop_map(|(version, tags, extra)| {
            Action::CheckpointMetadata(Box::new(CheckpointMetadata {
                version,
                tags,
                extra,
            }))
        }),
        ("x_[a-z]{1,8}", json()).prop_map(|(kind, body)| Action::Unknown { kind, body }),
    ]
}

fn rank(action: &Action) -> usize {
    let first = ["commitInfo", "protocol", "metaData"];
    first
        .iter()
        .position(|kind| *kind == action.kind())
        .unwrap_or(3)
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn parsing_an_encoded_commit_returns_the_same_actions(actions in vec(action(), 0..8)) {
        let data = encode(&actions);
        let mut expected = actions;
        expected.sort_by_key(rank);
        let decoded = parse(&data).unwrap();
        prop_assert_eq!(&decoded, &expected);
        prop_assert_eq!(encode(&decoded), data, "the canonical form is a fixed point");
    }

    #[test]
    fn any_bytes_are_parsed_or_rejected(data in vec(any::<u8>(), 0..200)) {
        let _ = parse(&data);
    }
}

#[test]
fn number_keeps_every_digit() {
    let line =
        "{\"commitInfo\":{\"operationMetrics\":{\"n\":0.10000000000000000000001,\"m\":1E+400}}}\n";
    assert_eq!(
        encode(&parse(line.as_bytes()).unwrap()),
        line.replace("1E+400", "1e+400").as_bytes()
    );
}

#[test]
fn error_names_the_line_and_column() {
    let data = b"{\"txn\":{\"appId\":\"a\",\"version\":1}}\n\n{\"txn\":{\"appId\":7}}\n";
    let error = parse(data).unwrap_err();
    assert!(matches!(error, Error::Line { line: 3, .. }), "{error}");
}

#[test]
fn other_keys_of_a_line_that_are_null_are_ignored() {
    let actions =
        parse(b"{\"remove\":null,\"txn\":{\"appId\":\"a\",\"version\":1},\"new\":null}").unwrap();
    assert_eq!(actions[0].kind(), "txn");
}

#[test]
fn two_actions_on_one_line_are_rejected() {
    let line = b"{\"txn\":{\"appId\":\"a\",\"version\":1},\"domainMetadata\":{\"domain\":\"d\",\"configuration\":\"\"}}";
    assert!(parse(line).unwrap_err().to_string().contains("two actions"));
}
