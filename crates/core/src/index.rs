//! Order the files of one commit and compute the rows of the data skipping index.
//!
//! Files with similar values are placed next to each other, so that one index row can describe
//! many files with narrow bounds.
use std::collections::HashSet;

use crate::file_bounds::{pack, Extent};
use crate::keys::{cut_high, cut_low, Key, KeyType, HIGHEST, LOWEST};
use crate::stats::{FileStats, StatsColumns};

/// Files are sorted by a column if one file covers on average at most this part of the column's
/// range.
const CLUSTERED_WIDTH: f64 = 0.5;

/// From this number of files on, a second thread is faster.
pub const PARALLEL_FROM: usize = 4096;

/// A column of the data skipping index.
#[derive(Clone, Debug)]
pub struct IndexColumn {
    pub id: i64,
    pub path: Vec<String>,
    pub key_type: Option<KeyType>,
}

/// The properties of a file that the layout uses.
#[derive(Clone, Copy, Debug)]
pub struct FileInput<'a> {
    /// Position in the list of distinct partitions.
    pub partition: usize,
    pub stats: Option<&'a str>,
}

/// One row of the data skipping index: the bounds of a column over a range of file ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsRow {
    pub column_id: i64,
    pub first_file_id: i64,
    pub last_file_id: i64,
    pub min_key: Option<Key>,
    pub max_key: Option<Key>,
    pub null_count: Option<i64>,
    pub num_records: Option<i64>,
    /// The bounds of each file (see `file_bounds`).
    pub file_bounds: Option<Vec<u8>>,
}

/// The order of the files, and their index rows.
#[derive(Debug)]
pub struct Layout {
    /// Input positions, in the order of file ids.
    pub order: Vec<usize>,
    /// The number of rows of each file, in input order.
    pub num_records: Vec<Option<i64>>,
    pub rows: Vec<StatsRow>,
}

/// Parses the statistics of files for the columns of the index.
#[derive(Clone, Debug, Default)]
pub struct StatsReader {
    columns: Vec<IndexColumn>,
    wanted: StatsColumns,
    slots: Vec<usize>,
}

#[derive(Clone, Default)]
struct ColumnExtents {
    extents: Vec<Extent>,
    null_counts: Vec<Option<i64>>,
}

/// The statistics of some files, in input order.
struct Facts {
    num_records: Vec<Option<i64>>,
    by_column: Vec<ColumnExtents>,
}

/// Order the files and compute one index row per column for each range of `range_size` files.
///
/// Files are ordered by the clustered column if there is one, and by partition otherwise.
pub fn lay_out(
    files: &[FileInput<'_>],
    partitions: &[String],
    columns: &[IndexColumn],
    first_file_id: i64,
    range_size: usize,
) -> Layout {
    let Facts {
        num_records,
        by_column,
    } = read_facts(files, columns);
    let order = file_order(files, partitions, &by_column);
    let mut rows = Vec::new();
    for (column, facts) in columns.iter().zip(&by_column) {
        let mut first = first_file_id;
        for run in order.chunks(range_size.max(1)) {
            let row = summarise(column.id, first, run, facts, &num_records);
            first = row.last_file_id + 1;
            rows.push(row);
        }
    }
    Layout {
        order,
        num_records,
        rows,
    }
}

impl StatsReader {
    pub fn new(columns: Vec<IndexColumn>) -> Self {
        let mut wanted = StatsColumns::default();
        let slots = columns.iter().map(|c| wanted.add(&c.path)).collect();
        Self {
            columns,
            wanted,
            slots,
        }
    }

    pub fn columns(&self) -> &[IndexColumn] {
        &self.columns
    }

    /// Return the index rows of files that fit into one range, without reordering them.
    ///
    /// The number of rows of each file is written to `num_records`.
    pub fn one_run<'a>(
        &self,
        files: impl IntoIterator<Item = Option<&'a str>>,
        first_file_id: i64,
        num_records: &mut Vec<Option<i64>>,
    ) -> Vec<StatsRow> {
        num_records.clear();
        let mut runs = vec![ColumnExtents::default(); self.columns.len()];
        let mut stats = FileStats::default();
        for file in files {
            self.wanted.read_into(file, &mut stats);
            num_records.push(stats.num_records);
            for ((column, slot), run) in self.columns.iter().zip(&self.slots).zip(&mut runs) {
                run.extents.push(extent(&stats, *slot, column.key_type));
                run.null_counts.push(stats.null_count(*slot));
            }
        }
        if num_records.is_empty() {
            return Vec::new();
        }
        let run: Vec<usize> = (0..num_records.len()).collect();
        let rows = self.columns.iter().zip(&runs);
        rows.map(|(column, facts)| summarise(column.id, first_file_id, &run, facts, num_records))
            .collect()
    }
}

/// Add two counts from a log; return `None` if the sum overflows.
fn add((a, b): (i64, i64)) -> Option<i64> {
    a.checked_add(b)
}

fn total(counts: impl IntoIterator<Item = Option<i64>>) -> Option<i64> {
    let mut counts = counts.into_iter();
    counts.try_fold(0, |sum, count| add((sum, count?)))
}

/// Parse the statistics of all files, with two threads if there are many files.
fn read_facts(files: &[FileInput<'_>], columns: &[IndexColumn]) -> Facts {
    if files.len() < PARALLEL_FROM {
        return read_some(files, columns);
    }
    let (front, back) = files.split_at(files.len() / 2);
    let (mut facts, mut rest) = std::thread::scope(|scope| {
        let rest = scope.spawn(|| read_some(back, columns));
        let facts = read_some(front, columns);
        (
            facts,
            rest.join().unwrap_or_else(|_| read_some(back, columns)),
        )
    });
    facts.num_records.append(&mut rest.num_records);
    for (column, more) in facts.by_column.iter_mut().zip(&mut rest.by_column) {
        column.extents.append(&mut more.extents);
        column.null_counts.append(&mut more.null_counts);
    }
    facts
}

fn read_some(files: &[FileInput<'_>], columns: &[IndexColumn]) -> Facts {
    let mut wanted = StatsColumns::default();
    let slots: Vec<usize> = columns.iter().map(|c| wanted.add(&c.path)).collect();
    let mut num_records = Vec::with_capacity(files.len());
    let mut by_column: Vec<ColumnExtents> = columns
        .iter()
        .map(|_| ColumnExtents {
            extents: Vec::with_capacity(files.len()),
            null_counts: Vec::with_capacity(files.len()),
        })
        .collect();
    let mut stats = FileStats::default();
    for file in files {
        wanted.read_into(file.stats, &mut stats);
        num_records.push(stats.num_records);
        for ((column, slot), out) in columns.iter().zip(&slots).zip(&mut by_column) {
            out.extents.push(extent(&stats, *slot, column.key_type));
            out.null_counts.push(stats.null_count(*slot));
        }
    }
    Facts {
        num_records,
        by_column,
    }
}

fn extent(stats: &FileStats<'_>, slot: usize, key_type: Option<KeyType>) -> Extent {
    if stats.all_null(slot) {
        return Extent::Empty;
    }
    let bounds = key_type.and_then(|t| stats.low(slot, t).zip(stats.high(slot, t)));
    match bounds {
        Some((low, high)) => Extent::Range(cut_low(low), cut_high(high)),
        None => Extent::Unknown,
    }
}

fn summarise(
    column_id: i64,
    first_file_id: i64,
    run: &[usize],
    facts: &ColumnExtents,
    num_records: &[Option<i64>],
) -> StatsRow {
    let mut min_key: &[u8] = HIGHEST;
    let mut max_key: &[u8] = LOWEST;
    let mut known = true;
    for &file in run {
        match &facts.extents[file] {
            Extent::Empty => {}
            Extent::Unknown => known = false,
            Extent::Range(low, high) => {
                min_key = min_key.min(low);
                max_key = max_key.max(high);
            }
        }
    }
    StatsRow {
        column_id,
        first_file_id,
        last_file_id: first_file_id + run.len() as i64 - 1,
        min_key: known.then(|| min_key.to_vec()),
        max_key: known.then(|| max_key.to_vec()),
        null_count: total(run.iter().map(|&file| facts.null_counts[file])),
        num_records: total(run.iter().map(|&file| num_records[file])),
        file_bounds: pack(run.iter().map(|&file| &facts.extents[file])),
    }
}

fn file_order(
    files: &[FileInput<'_>],
    partitions: &[String],
    by_column: &[ColumnExtents],
) -> Vec<usize> {
    let mut order: Vec<usize> = (0..files.len()).collect();
    if files.len() <= 1 {
        return order;
    }
    let mut sorted: Vec<usize> = (0..partitions.len()).collect();
    sorted.sort_by_key(|&partition| &partitions[partition]);
    let mut rank = vec![0; partitions.len()];
    for (position, &partition) in sorted.iter().enumerate() {
        rank[partition] = position;
    }
    match clustered(by_column) {
        Some(column) => order.sort_by(|&a, &b| {
            let low = |file: usize| low_of(&column.extents[file]);
            // Sort by values before partitions, because partitions have an index of their own.
            (low(a), rank[files[a].partition]).cmp(&(low(b), rank[files[b].partition]))
        }),
        None if partitions.len() > 1 => order.sort_by_key(|&file| rank[files[file].partition]),
        None => {}
    }
    order
}

fn low_of(extent: &Extent) -> &[u8] {
    match extent {
        Extent::Range(low, _) => low,
        Extent::Empty | Extent::Unknown => HIGHEST,
    }
}

/// Return the column for which a point query reads the fewest files, if any is selective enough.
fn clustered(by_column: &[ColumnExtents]) -> Option<&ColumnExtents> {
    by_column
        .iter()
        .filter_map(|column| spread(&column.extents).map(|spread| (column, spread)))
        .filter(|(_, spread)| *spread <= CLUSTERED_WIDTH)
        .min_by(|(_, a), (_, b)| a.total_cmp(b))
        .map(|(column, _)| column)
}

/// Return the expected share of files whose range contains a random value of the column.
fn spread(extents: &[Extent]) -> Option<f64> {
    let mut ranges = Vec::with_capacity(extents.len());
    for extent in extents {
        match extent {
            Extent::Unknown => return None,
            Extent::Empty => {}
            Extent::Range(low, high) => ranges.push((low.as_slice(), high.as_slice())),
        }
    }
    let lowest = ranges.iter().map(|(low, _)| *low).min()?;
    let highest = ranges.iter().map(|(_, high)| *high).max()?;
    let common = shared_prefix(lowest, highest);
    let total = fraction(highest, common) - fraction(lowest, common);
    if total <= 0.0 {
        return None;
    }
    let covered: f64 = ranges
        .iter()
        .map(|(low, high)| fraction(high, common) - fraction(low, common))
        .sum();
    let distinct = ranges.iter().map(|(low, _)| *low).collect::<HashSet<_>>();
    let width = covered / total / ranges.len() as f64;
    // With few distinct values there are many files per value, even if each file is narrow.
    Some(width.max(1.0 / distinct.len() as f64))
}

fn shared_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x == y).count()
}

/// Return the eight bytes after the common prefix as a number.
fn fraction(key: &[u8], common: usize) -> f64 {
    let mut bytes = [0; 8];
    for (slot, byte) in bytes.iter_mut().zip(key.iter().skip(common)) {
        *slot = *byte;
    }
    u64::from_be_bytes(bytes) as f64
}
