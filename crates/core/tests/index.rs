//! The order of a commit's files and their rows in the data skipping index.
#![allow(clippy::unwrap_used)]
mod cases;

use deltasql_core::index::{lay_out, FileInput, IndexColumn, Layout};
use deltasql_core::keys::{KeyType, HIGHEST, LOWEST};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use cases::cases;

const KEY: KeyType = KeyType::Integer;

fn columns(names: &[&str]) -> Vec<IndexColumn> {
    let column = |(id, name): (i64, &&str)| IndexColumn {
        id,
        path: vec![(*name).to_owned()],
        key_type: Some(KEY),
    };
    (0..).zip(names).map(column).collect()
}

fn stats(a: (i64, i64), b: (i64, i64)) -> String {
    format!(
        r#"{{"numRecords":10,"minValues":{{"a":{},"b":{}}},"maxValues":{{"a":{},"b":{}}},"nullCount":{{"a":0,"b":1}}}}"#,
        a.0, b.0, a.1, b.1
    )
}

fn lay(texts: &[Option<String>], range_size: usize) -> Layout {
    let files: Vec<_> = texts
        .iter()
        .map(|text| FileInput {
            partition: 0,
            stats: text.as_deref(),
        })
        .collect();
    lay_out(
        &files,
        &["{}".to_owned()],
        &columns(&["a", "b"]),
        1,
        range_size,
    )
}

#[test]
fn files_are_sorted_by_the_column_that_overlaps_least() {
    let file = |i: i64| Some(stats((0, 1000), (i * 10, i * 10 + 9)));
    let layout = lay(&[file(3), file(1), file(2), file(0)], 2);
    assert_eq!(layout.order, [3, 1, 2, 0]);
    let b = &layout.rows[2];
    assert_eq!((b.column_id, b.first_file_id, b.last_file_id), (1, 1, 2));
    assert_eq!(b.min_key, KEY.encode("0"));
    assert_eq!(b.max_key, KEY.encode("19"));
    assert_eq!((b.null_count, b.num_records), (Some(2), Some(20)));
}

#[test]
fn column_with_few_values_does_not_hide_the_clustered_one() {
    let file = |i: i64| Some(stats((i % 2, i % 2), (i * 10, i * 10 + 9)));
    let layout = lay(&[file(3), file(1), file(2), file(0)], 256);
    assert_eq!(layout.order, [3, 1, 2, 0]);
}

#[test]
fn overlapping_files_keep_their_order() {
    let file = |i: i64| Some(stats((-i, 1000 + i), (i, 900 - i)));
    assert_eq!(lay(&[file(3), file(1), file(2)], 256).order, [0, 1, 2]);
}

#[test]
fn files_without_a_clustered_column_are_sorted_by_partition() {
    let file = |partition| FileInput {
        partition,
        stats: None,
    };
    let names = ["{\"p\":\"b\"}".to_owned(), "{\"p\":\"a\"}".to_owned()];
    let layout = lay_out(&[file(0), file(1), file(0)], &names, &[], 1, 256);
    assert_eq!(layout.order, [1, 0, 2]);
    assert!(layout.rows.is_empty());
}

#[test]
fn unknown_bound_makes_the_range_unknown_and_nulls_do_not_change_it() {
    let null = r#"{"numRecords":5,"nullCount":{"a":5}}"#.to_owned();
    let known = r#"{"numRecords":5,"minValues":{"a":1},"maxValues":{"a":2},"nullCount":{"a":0}}"#;
    let row = |texts: &[Option<String>]| lay(texts, 256).rows.swap_remove(0);

    let mixed = row(&[Some(known.to_owned()), Some(null.clone())]);
    assert_eq!(
        (mixed.min_key, mixed.max_key),
        (KEY.encode("1"), KEY.encode("2"))
    );

    let empty = row(&[Some(null)]);
    assert_eq!(empty.min_key.as_deref(), Some(HIGHEST));
    assert_eq!(empty.max_key.as_deref(), Some(LOWEST));

    let unknown = row(&[Some(known.to_owned()), None]);
    assert_eq!(
        (unknown.min_key, unknown.max_key, unknown.num_records),
        (None, None, None)
    );
}

proptest! {
    #![proptest_config(cases(256))]

    /// Every range contains the bounds of all its files, in every order.
    #[test]
    fn ranges_cover_their_files(
        bounds in vec(option::of((any::<i64>(), any::<i64>())), 0..40), range_size in 0_usize..9,
    ) {
        let ordered: Vec<_> = bounds.iter().map(|b| b.map(|(x, y)| (x.min(y), x.max(y)))).collect();
        let texts: Vec<_> = ordered.iter().map(|b| b.map(|b| stats(b, (0, 1)))).collect();
        let layout = lay(&texts, range_size);

        let mut seen = layout.order.clone();
        seen.sort_unstable();
        prop_assert!(seen.into_iter().eq(0..texts.len()));
        let mut next = 1;
        for row in layout.rows.iter().filter(|row| row.column_id == 0) {
            prop_assert_eq!(row.first_file_id, next);
            next = row.last_file_id + 1;
            prop_assert!(next - row.first_file_id <= range_size.max(1) as i64);
            for file_id in row.first_file_id..next {
                match ordered[layout.order[file_id as usize - 1]] {
                    None => prop_assert_eq!((&row.min_key, &row.max_key), (&None, &None)),
                    Some((low, high)) => {
                        let key = |v: i64| KEY.encode(&v.to_string());
                        prop_assert!(row.min_key.is_none() || row.min_key <= key(low));
                        prop_assert!(row.max_key.is_none() || row.max_key >= key(high));
                    }
                }
            }
        }
        prop_assert_eq!(next, texts.len() as i64 + 1);
    }
}
