//! Keys sort in the order of the values.
#![allow(clippy::unwrap_used)]
mod cases;

use deltasql_core::decimal::parse_scaled;
use deltasql_core::keys::{cut_high, cut_low, path_key, Key, KeyType, HIGHEST, LOWEST};
use deltasql_core::time::{parse_date, parse_timestamp};
use proptest::prelude::*;

use cases::cases;

fn key(delta_type: &str, text: &str) -> Key {
    KeyType::of(delta_type)
        .unwrap()
        .encode(text)
        .unwrap_or_else(|| panic!("{text} as {delta_type}"))
}

fn decimal_text(unscaled: i128, scale: usize) -> String {
    let digits = format!("{:0width$}", unscaled.unsigned_abs(), width = scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    let sign = if unscaled < 0 { "-" } else { "" };
    match fraction {
        "" => format!("{sign}{whole}"),
        _ => format!("{sign}{whole}.{fraction}"),
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn integer_keys_are_ordered(a in any::<i64>(), b in any::<i64>()) {
        prop_assert_eq!(key("long", &a.to_string()).cmp(&key("long", &b.to_string())), a.cmp(&b));
    }

    #[test]
    fn double_keys_are_ordered_with_nan_last(a in any::<f64>(), b in any::<f64>()) {
        let order = match (a.is_nan(), b.is_nan()) {
            (false, false) => a.partial_cmp(&b).unwrap(),
            (left, right) => left.cmp(&right),
        };
        prop_assert_eq!(key("double", &a.to_string()).cmp(&key("double", &b.to_string())), order);
    }

    #[test]
    fn float_as_double_has_the_same_key(a in any::<f32>().prop_filter("NaN", |v| !v.is_nan())) {
        let widened = f64::from(a).to_string();
        prop_assert_eq!(key("float", &a.to_string()), key("float", &widened));
    }

    #[test]
    fn decimal_keys_are_ordered(a in any::<i128>(), b in any::<i128>(), scale in 0_usize..38) {
        let bound = 10_i128.pow(38);
        let (a, b) = (a % bound, b % bound);
        let name = format!("decimal(38,{scale})");
        let of = |v| key(&name, &decimal_text(v, scale));
        prop_assert_eq!(of(a).cmp(&of(b)), a.cmp(&b));
    }

    #[test]
    fn string_keys_are_ordered_by_utf8_bytes(a in any::<String>(), b in any::<String>()) {
        prop_assert_eq!(key("string", &a).cmp(&key("varchar(9)", &b)), a.as_bytes().cmp(b.as_bytes()));
    }

    #[test]
    fn truncated_keys_are_still_bounds(text in ".{0,90}") {
        let whole = key("string", &text);
        prop_assert!(cut_low(whole.clone()) <= whole);
        prop_assert!(cut_high(whole.clone()) >= whole);
        prop_assert!(cut_high(whole.clone()).len() <= 66);
        prop_assert!(LOWEST < whole.as_slice() && whole.as_slice() < HIGHEST);
    }

    /// A decimal that was converted to a double is still within the widened bounds.
    #[test]
    fn decimal_statistics_as_doubles_are_bounds(v in any::<i128>(), digits in 1_u32..38, scale in 0_usize..38) {
        let unscaled = v % 10_i128.pow(digits);
        let name = format!("decimal(38,{scale})");
        let exact = key(&name, &decimal_text(unscaled, scale));
        let double = unscaled as f64 / 10_f64.powi(scale as i32);
        let kind = KeyType::of(&name).unwrap();
        let text = serde_json::to_string(&double).unwrap();
        prop_assert!(kind.stat_low(&text, false).is_none_or(|low| low <= exact), "{text}");
        prop_assert!(kind.stat_high(&text, false).is_none_or(|high| high >= exact), "{text}");
    }

    #[test]
    fn literal_bounds_contain_the_literal(v in any::<i128>(), scale in 0_usize..12) {
        let text = decimal_text(v % 10_i128.pow(30), scale);
        let bounds = KeyType::Integer.literal(&text).unwrap();
        prop_assert!(bounds.low <= bounds.high);
        let scaled = parse_scaled(&text, 0).unwrap();
        if let (Ok(floor), Ok(ceil)) = (i64::try_from(scaled.floor), i64::try_from(scaled.ceil)) {
            prop_assert_eq!(bounds.low, key("long", &floor.to_string()));
            prop_assert_eq!(bounds.high, key("long", &ceil.to_string()));
        }
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in any::<String>(), delta_type in "[a-z_(),0-9]{0,14}") {
        if let Some(kind) = KeyType::of(&delta_type) {
            let _ = (kind.encode(&text), kind.literal(&text), kind.partition(&text));
        }
        for kind in [KeyType::Integer, KeyType::Date, KeyType::Timestamp, KeyType::Decimal { scale: 38 }] {
            let _ = (kind.stat_low(&text, false), kind.stat_high(&text, true));
        }
    }

    #[test]
    fn no_number_makes_the_decimal_parser_panic(text in "-?[0-9]{0,60}\\.?[0-9]{0,60}(e-?[0-9]{1,12})?", scale in 0_i32..39) {
        if let Some(scaled) = parse_scaled(&text, scale) {
            prop_assert!(scaled.floor <= scaled.ceil && scaled.ceil - scaled.floor <= 1);
        }
    }
}

#[test]
fn dates_are_parsed_as_days_since_the_epoch() {
    assert_eq!(parse_date("1970-01-01"), Some(0));
    assert_eq!(parse_date("2000-02-29"), Some(11_016));
    assert_eq!(parse_date("0001-01-01"), Some(-719_162));
    assert_eq!(parse_date("9999-12-31"), Some(2_932_896));
    for wrong in [
        "2001-02-29",
        "2001-13-01",
        "2001-00-10",
        "x",
        "",
        "2001-1",
        "2001-01-01-01",
    ] {
        assert_eq!(parse_date(wrong), None, "{wrong}");
    }
}

#[test]
fn timestamps_are_parsed_in_every_format_of_delta() {
    let micros = |text: &str| parse_timestamp(text).map(|parsed| parsed.micros);
    assert_eq!(micros("1970-01-01T00:00:01.5Z"), Some(1_500_000));
    assert_eq!(micros("1970-01-01 00:00:00.000001"), Some(1));
    assert_eq!(micros("1970-01-01T02:00:00.000+02:00"), Some(0));
    assert_eq!(micros("1969-12-31T16:00:00-0800"), Some(0));
    assert_eq!(micros("1969-12-31T23:59:59.999999Z"), Some(-1));
    assert_eq!(micros("1970-01-02"), Some(86_400_000_000));
    for wrong in [
        "1970-01-01T25:00:00",
        "1970-01-01Tx",
        "1970-01-01T00:00:00.x",
        "T",
        "1970-01-01T00:00+1",
    ] {
        assert_eq!(micros(wrong), None, "{wrong}");
    }
}

#[test]
fn nanosecond_timestamps_have_distinct_keys_within_their_bounds() {
    let moments = [
        "1677-09-21T00:12:43.145224193",
        "1969-12-31T23:59:59.999999999",
        "1970-01-01T00:00:00.000000000",
        "2023-11-14T22:13:20.123456789",
        "2023-11-14T22:13:20.123456790",
        "2262-04-11T23:47:16.854775807",
        "9999-12-31T00:00:00",
    ];
    for (delta_type, zone) in [("timestamp_nanos", "Z"), ("timestamp_nanos_ntz", "")] {
        let key_type = KeyType::of(delta_type).expect(delta_type);
        let keys = moments.map(|text| key_type.encode(&format!("{text}{zone}")).expect(text));
        assert!(
            keys.windows(2).all(|pair| pair[0] < pair[1]),
            "{delta_type}"
        );
        // Writers truncate both the minimum and the maximum to milliseconds.
        let cut = format!("2023-11-14T22:13:20.123{zone}");
        let low = key_type.stat_low(&cut, true).expect("low");
        let high = key_type.stat_high(&cut, true).expect("high");
        let last = format!("2023-11-14T22:13:20.123999999{zone}");
        assert!(low <= keys[3] && keys[4] <= high, "{delta_type}");
        assert!(
            key_type.encode(&last).expect("last") <= high,
            "{delta_type}"
        );
    }
    let wall = KeyType::of("timestamp_nanos_ntz").expect("type");
    assert!(wall.encode("1970-01-01T00:00:00+01:00").is_none());
}

#[test]
fn types_without_an_order_have_no_key() {
    for delta_type in [
        "binary",
        "array",
        "struct",
        "map",
        "variant",
        "void",
        "decimal(5,99)",
        "",
    ] {
        assert!(KeyType::of(delta_type).is_none(), "{delta_type}");
    }
}

#[test]
fn every_form_of_a_local_path_has_the_same_key() {
    for path in ["file:/p/a", "file:///p/a", "file://localhost/p/a", "/p/./a"] {
        assert_eq!(path_key(path, None), path_key("/p/a", None), "{path}");
    }
    assert_ne!(path_key("p/a", None), path_key("/p/a", None));
    assert_ne!(path_key("file://host/p/a", None), path_key("/p/a", None));
}

#[test]
fn deletion_vector_is_part_of_the_path_key() {
    assert_ne!(path_key("a", None), path_key("a", Some("")));
    assert_ne!(path_key("a", Some("u1")), path_key("a", Some("u2")));
}
