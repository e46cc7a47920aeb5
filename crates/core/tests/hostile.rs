//! Malformed and malicious input is parsed or rejected; it never crashes the process.
#![allow(clippy::unwrap_used)]
mod cases;

use deltasql_core::actions::Action;
use deltasql_core::codec::{encode, nests_too_deep, parse};
use deltasql_core::decimal::parse_scaled;
use deltasql_core::index::{lay_out, FileInput, IndexColumn};
use deltasql_core::keys::KeyType;
use deltasql_core::predicate::Predicate;
use deltasql_core::replay::TableState;
use deltasql_core::stats::{num_records, StatsColumns};
use deltasql_core::time::{parse_date, parse_timestamp};
use proptest::collection::vec;
use proptest::prelude::*;

use cases::cases;

const VALID: [&str; 8] = [
    r#"{"add":{"path":"a%20b/c.parquet","partitionValues":{"p":null},"size":10,"modificationTime":1,"dataChange":true,"stats":"{\"numRecords\":3,\"minValues\":{\"a\":{\"b\":1}},\"nullCount\":{}}","tags":{"k":"v"},"deletionVector":{"storageType":"u","pathOrInlineDv":"ab^-aqEH.-t@S}K{vb[*k^","offset":4,"sizeInBytes":40,"cardinality":6}}}"#,
    r#"{"remove":{"path":"c.parquet","deletionTimestamp":15,"dataChange":false,"extendedFileMetadata":true,"size":1}}"#,
    r#"{"metaData":{"id":"x","format":{"provider":"parquet","options":{}},"schemaString":"{\"type\":\"struct\",\"fields\":[]}","partitionColumns":["p"],"configuration":{"delta.x":"1"}}}"#,
    r#"{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],"writerFeatures":[]}}"#,
    r#"{"commitInfo":{"timestamp":1,"operation":"WRITE","operationMetrics":{"n":"1","x":[1.5,null,true]}}}"#,
    r#"{"txn":{"appId":"app","version":3,"lastUpdated":4}}"#,
    r#"{"domainMetadata":{"domain":"d","configuration":"{}","removed":false}}"#,
    r#"{"cdc":{"path":"_change_data/c","partitionValues":{},"size":1,"dataChange":false}}"#,
];

const DELTA_TYPES: [&str; 13] = [
    "byte",
    "long",
    "float",
    "double",
    "date",
    "timestamp",
    "timestamp_ntz",
    "timestamp_nanos",
    "timestamp_nanos_ntz",
    "string",
    "boolean",
    "decimal(38,38)",
    "decimal(5,0)",
];

/// Unusual strings in the place of a value.
fn odd() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[-+]?[0-9.eE+-]{0,60}",
        "[-+]?[0-9]{1,9}-[0-9-]{0,9}[T ]?[0-9:.Zz+-]{0,20}",
        Just("9".repeat(5000)),
        Just(format!("1e{}", "9".repeat(40))),
        Just("\0".to_owned()),
        Just("\u{10ffff}".repeat(70)),
        Just("\u{202e}{{7*7}}'; DROP TABLE dl_tables; --".to_owned()),
    ]
}

/// A valid line in which some bytes are replaced, removed or repeated.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let edit = (
        0..3_u8,
        any::<prop::sample::Index>(),
        prop_oneof![any::<u8>(), prop::sample::select(b"{}[]\":,0\\n".to_vec())],
    );
    (prop::sample::select(VALID.to_vec()), vec(edit, 1..6)).prop_map(|(line, edits)| {
        let mut data = line.as_bytes().to_vec();
        for (how, at, byte) in edits {
            let at = at.index(data.len());
            match how {
                0 => data[at] = byte,
                1 => drop(data.remove(at)),
                _ => data.insert(at, byte),
            }
            if data.is_empty() {
                break;
            }
        }
        data
    })
}

fn reads_and_replays(data: &[u8]) {
    let Ok(actions) = parse(data) else { return };
    let again = encode(&actions);
    assert_eq!(
        encode(&parse(&again).unwrap()),
        again,
        "what was read is written and read again"
    );
    TableState::default().apply(0, &actions).unwrap();
    for action in &actions {
        if let Action::Add(add) = action {
            num_records(add.stats.as_deref());
        }
    }
}

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn any_bytes_are_parsed_or_rejected(data in vec(any::<u8>(), 0..300)) {
        reads_and_replays(&data);
    }

    #[test]
    fn actions_with_damaged_bytes_are_parsed_or_rejected(data in mutated()) {
        reads_and_replays(&data);
    }

}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn any_text_as_a_value_has_ordered_bounds_or_no_key(text in odd()) {
        parse_date(&text);
        parse_timestamp(&text);
        parse_scaled(&text, 38);
        for name in DELTA_TYPES {
            let of = KeyType::of(name).unwrap();
            of.encode(&text);
            if let Some(bounds) = of.literal(&text) {
                prop_assert!(bounds.low <= bounds.high);
            }
            of.partition(&text);
            for quoted in [true, false] {
                of.stat_low(&text, quoted);
                of.stat_high(&text, quoted);
            }
        }
        KeyType::of(&text);
    }

    #[test]
    fn any_text_as_statistics_is_parsed_or_ignored(text in odd(), value in odd()) {
        let mut columns = StatsColumns::default();
        let slot = columns.add(&["a", "b"]);
        let quoted = serde_json::to_string(&value).unwrap();
        let statistics = format!("{{\"numRecords\":{quoted},\"minValues\":{{\"a\":{{\"b\":{quoted}}}}},\
                            \"maxValues\":{{\"a\":{text}}},\"nullCount\":{quoted}}}");
        for stats in [text.as_str(), statistics.as_str()] {
            let found = columns.read(Some(stats));
            found.low(slot, KeyType::Timestamp);
            found.high(slot, KeyType::Decimal { scale: 38 });
            found.all_null(slot);
            let key_type = Some(KeyType::String);
            let columns = [IndexColumn { path: vec!["a".into(), "b".into()], key_type, id: 0 }];
            let inputs = [0, 0, 0].map(|partition| FileInput { partition, stats: Some(stats) });
            lay_out(&inputs, std::slice::from_ref(&text), &columns, i64::MAX - 10, 4);
        }
    }

    #[test]
    fn any_text_as_a_predicate_is_parsed_or_rejected(op in "[a-z<>=_]{0,12}", value in odd()) {
        let quoted = serde_json::to_string(&value).unwrap();
        let _ = Predicate::parse(&value);
        for name in DELTA_TYPES {
            let tree = format!("{{\"op\":\"{op}\",\"column\":[{quoted}],\"type\":\"{name}\",\"value\":{quoted}}}");
            if let Ok(predicate) = Predicate::parse(&tree) {
                predicate.may_match(Some(&value), &predicate.partition_facts(Some(&value)));
            }
        }
    }
}

/// JSON that is nested with arrays, with objects and with both.
fn deep(levels: usize) -> [String; 3] {
    let object = format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    let mixed = format!("{}1{}", "[{\"a\":".repeat(levels), "}]".repeat(levels));
    let array = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    [array, object, mixed]
}

#[test]
fn json_with_a_million_levels_is_rejected() {
    for body in deep(1_000_000) {
        let lines = [
            body.clone(),
            format!("{{\"commitInfo\":{{\"x\":{body}}}}}"),
            format!("{{\"commitInfo\":{{\"operationMetrics\":{body}}}}}"),
            format!("{{\"add\":{{\"path\":\"a\",\"partitionValues\":{body}}}}}"),
            format!("{{\"hologram\":{body}}}"),
        ];
        for line in lines {
            assert!(parse(line.as_bytes()).is_err());
        }
        assert!(Predicate::parse(&format!("{{\"op\":\"=\",\"value\":{body}}}")).is_err());
        let stats = format!("{{\"numRecords\":1,\"minValues\":{body}}}");
        assert_eq!(
            num_records(Some(&stats)),
            Some(1),
            "bounds that are not needed are not parsed"
        );
        let mut columns = StatsColumns::default();
        let slot = columns.add(&["a"]);
        assert_eq!(columns.read(Some(&stats)).low(slot, KeyType::Integer), None);
    }
    let tree = format!(
        "{}{}",
        "{\"op\":\"and\",\"args\":[".repeat(1_000_000),
        "]}".repeat(1_000_000)
    );
    assert!(Predicate::parse(&tree).is_err());
}

/// The string after the private key contains the private key again. Parsing it recursively would
/// overflow the stack.
#[test]
fn text_after_a_private_key_of_the_parser_is_not_parsed() {
    let mut body = "1".to_owned();
    for _ in 0..60 {
        let text = body.replace('\\', "\\u005c").replace('"', "\\u0022");
        let levels = 100;
        body = format!(
            "{}{{\"$serde_json::private::RawValue\":\"{text}\"}}{}",
            "[".repeat(levels),
            "]".repeat(levels)
        );
    }
    let line = format!("{{\"commitInfo\":{{\"x\":{body}}}}}");
    let actions = parse(line.as_bytes()).unwrap();
    let Action::CommitInfo(info) = &actions[0] else {
        panic!("{actions:?}");
    };
    let mut value = &info.extra["x"];
    while let Some(items) = value.as_array() {
        value = &items[0];
    }
    assert!(value["$serde_json::private::RawValue"].is_string());
}

#[test]
fn private_keys_of_the_parser_are_ordinary_keys() {
    for key in ["Number", "RawValue"] {
        for value in ["\"12\"", "\"zz\"", "12", "{}", "null", "\"{\\\"a\\\":1}\""] {
            let object = format!("{{\"$serde_json::private::{key}\":{value}}}");
            let two = format!("{{\"a\":1.50,\"$serde_json::private::{key}\":{value},\"b\":-2}}");
            for body in [object, two] {
                let lines = [
                    format!("{{\"commitInfo\":{{\"operationMetrics\":{body}}}}}\n"),
                    format!("{{\"commitInfo\":{{\"x\":[{body}]}}}}\n"),
                    format!("{{\"hologram\":{body}}}\n"),
                ];
                for line in lines {
                    let read = parse(line.as_bytes()).unwrap();
                    assert_eq!(String::from_utf8(encode(&read)).unwrap(), line);
                }
            }
        }
    }
}

#[test]
fn statistics_that_would_crash_other_readers_are_rejected() {
    for (levels, is_fine) in [(400, true), (600, false), (1_000_000, false)] {
        let text = format!("{}1{}", "{\\\"a\\\":".repeat(levels), "}".repeat(levels));
        let line = format!("{{\"add\":{{\"path\":\"a\",\"partitionValues\":{{}},\"size\":1,\"modificationTime\":1,\"stats\":\"{text}\"}}}}");
        assert_eq!(parse(line.as_bytes()).is_ok(), is_fine, "{levels}");
    }
    let wide = "{\\\"a\\\":{}},".repeat(2000);
    let line = format!("{{\"add\":{{\"path\":\"a\",\"partitionValues\":{{}},\"size\":1,\"modificationTime\":1,\"stats\":\"[{wide}1]\"}}}}");
    assert!(parse(line.as_bytes()).is_ok());
}

#[test]
fn brackets_in_strings_of_statistics_do_not_count_as_nesting() {
    for text in ["[", "{", "\\\"[{", "\\\\[", "\\\\\\\"{"] {
        let bound = text.repeat(1000);
        let statistics = |after: &str| format!("{{\"maxValues\":{{\"a\":\"{bound}\"{after}}}}}");
        let fine = statistics("");
        serde_json::from_str::<serde_json::Value>(&fine).unwrap();
        assert!(!nests_too_deep(&fine), "{text}");
        assert!(nests_too_deep(&statistics(&"[".repeat(600))), "{text}");
        assert!(!nests_too_deep(&statistics(&"[]".repeat(600))), "{text}");
    }
}

#[test]
fn sums_of_counts_that_overflow_are_unknown() {
    let most = i64::MAX;
    let stats = format!("{{\"numRecords\":{most},\"nullCount\":{{\"a\":{most}}}}}");
    let columns = [IndexColumn {
        path: vec!["a".into()],
        key_type: Some(KeyType::String),
        id: 0,
    }];
    let inputs = [0, 0, 0].map(|partition| FileInput {
        partition,
        stats: Some(&stats),
    });
    let layout = lay_out(&inputs, &["{}".to_owned()], &columns, 1, 4);
    for row in layout.rows {
        assert!(row.num_records.is_none_or(|count| count == most));
        assert!(row.null_count.is_none_or(|count| count == most));
    }
}

#[test]
fn numbers_that_do_not_fit_into_a_field_are_rejected() {
    for number in [
        "1e400",
        "9223372036854775808",
        "-1e99",
        "1.5",
        &"9".repeat(100_000),
    ] {
        let line = format!("{{\"txn\":{{\"appId\":\"a\",\"version\":{number}}}}}");
        assert!(parse(line.as_bytes()).is_err(), "{number:.20}");
        let line = format!("{{\"commitInfo\":{{\"x\":[{number}]}}}}");
        assert_eq!(parse(line.as_bytes()).is_ok(), number.len() < 100);
    }
}
