//! Row sets: any set of positions survives encoding, and damaged data is an error.
#![allow(clippy::unwrap_used)]
use std::sync::Arc;

use arrow_array::{BinaryArray, Int64Array, RecordBatch};
use deltasql_core::row_set::{RowSet, RowSets};
use proptest::collection::vec;
use proptest::prelude::*;

fn sets(pairs: &[(i64, i64)]) -> Vec<(i64, RowSet)> {
    let (files, rows): (Vec<_>, Vec<_>) = pairs.iter().copied().unzip();
    let batch = RecordBatch::try_from_iter([
        ("file", Arc::new(Int64Array::from(files)) as _),
        ("row", Arc::new(Int64Array::from(rows)) as _),
    ])
    .unwrap();
    let mut found = RowSets::default();
    found.add(&batch).unwrap();
    found.into_sets().collect()
}

proptest! {
    #[test]
    fn rows_are_grouped_by_file_and_survive_encoding(
        pairs in vec((0..3_i64, prop_oneof![0..200_000_i64, 1_i64 << 32..(1_i64 << 32) + 9]), 0..300)
    ) {
        for (file, rows) in sets(&pairs) {
            let mut wanted: Vec<u64> =
                pairs.iter().filter(|p| p.0 == file).map(|p| p.1 as u64).collect();
            wanted.sort_unstable();
            wanted.dedup();
            let decoded = RowSet::decode(&rows.encode().unwrap()).unwrap();
            prop_assert_eq!(decoded.positions().collect::<Vec<_>>(), wanted);
            prop_assert_eq!(&decoded, &rows);
        }
    }

    #[test]
    fn damaged_data_is_an_error_or_another_set(cut in 0..100_usize, at in 0..100_usize, byte: u8) {
        let mut data = sets(&(0..40).map(|n| (0, n * 3)).collect::<Vec<_>>())[0].1.encode().unwrap();
        let place = at % data.len();
        data[place] = byte;
        data.truncate(data.len().saturating_sub(cut));
        let _ = RowSet::decode(&data);
    }
}

#[test]
fn consecutive_rows_are_stored_as_runs() {
    let rows = sets(&(0..60_000).map(|n| (0, n)).collect::<Vec<_>>());
    assert!(rows[0].1.encode().unwrap().len() < 50);
}

#[test]
fn bits_are_positions_after_a_start() {
    let batch = RecordBatch::try_from_iter([
        ("file", Arc::new(Int64Array::from(vec![5, 5])) as _),
        ("start", Arc::new(Int64Array::from(vec![0, 32_768])) as _),
        (
            "bits",
            Arc::new(BinaryArray::from(vec![&[0b101_u8, 0][..], &[0, 0x80]])) as _,
        ),
    ])
    .unwrap();
    let mut found = RowSets::default();
    found.add(&batch).unwrap();
    let (file, rows) = found.into_sets().next().unwrap();
    assert_eq!((file, rows.positions().collect()), (5, vec![0, 2, 32_783]));
}

#[test]
fn negative_position_is_an_error() {
    let batch = RecordBatch::try_from_iter([
        ("file", Arc::new(Int64Array::from(vec![0])) as _),
        ("row", Arc::new(Int64Array::from(vec![-1])) as _),
    ])
    .unwrap();
    assert!(RowSets::default().add(&batch).is_err());
}
