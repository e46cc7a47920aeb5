//! Sets of row positions in the format of deletion vectors: 64-bit Roaring bitmaps.
use std::collections::BTreeMap;
use std::io::ErrorKind;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, PrimitiveArray, RecordBatch};
use roaring::RoaringTreemap;

use crate::error::Error;

/// The first four bytes of a vector say that a portable bitmap follows.
const MAGIC: u32 = 1_681_511_377;

/// A set of positions of rows in a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RowSet(RoaringTreemap);

impl RowSet {
    /// Decode a vector. Bytes after the bitmap are ignored, as in other readers.
    pub fn decode(data: &[u8]) -> Result<Self, Error> {
        let broken = |text: &str| Error::RowSet(text.to_owned());
        let (magic, bitmap) = data
            .split_first_chunk()
            .ok_or_else(|| broken("it ends too early"))?;
        let magic = u32::from_le_bytes(*magic);
        if magic != MAGIC {
            return Err(broken(&format!("its format {magic} is not known")));
        }
        RoaringTreemap::deserialize_from(bitmap)
            .map(Self)
            .map_err(|error| match error.kind() {
                ErrorKind::UnexpectedEof => broken("it ends too early"),
                _ => broken(&format!("its bitmap is not valid ({error})")),
            })
    }

    /// Encode the set as a vector.
    pub fn encode(&self) -> std::io::Result<Vec<u8>> {
        let small = RoaringTreemap::from_bitmaps(self.0.bitmaps().map(|(high, rows)| {
            let mut rows = rows.clone();
            rows.optimize(); // stores consecutive rows as runs
            (high, rows)
        }));
        let mut data = MAGIC.to_le_bytes().to_vec();
        small.serialize_into(&mut data)?;
        Ok(data)
    }

    pub fn len(&self) -> u64 {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Return the positions in ascending order.
    pub fn positions(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter()
    }

    /// Add all positions of another set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        Self(&self.0 | &other.0)
    }
}

/// The positions of rows in several files, by the number of the file.
#[derive(Debug, Default)]
pub struct RowSets(BTreeMap<i64, RoaringTreemap>);

impl RowSets {
    /// Add rows; the first column of the batch has the files, the second one the positions.
    ///
    /// If there is a third column, it has bytes: each bit that is set is a row, and the second
    /// column has the position of the first bit.
    pub fn add(&mut self, batch: &RecordBatch) -> Result<(), Error> {
        let (files, rows) = (integers(batch, 0)?, integers(batch, 1)?);
        match batch.columns().get(2) {
            None => self.add_positions(files.values(), rows.values()),
            Some(bits) => self.add_bits(files.values(), rows.values(), bits),
        }
    }

    fn add_positions(&mut self, files: &[i64], rows: &[i64]) -> Result<(), Error> {
        let mut start = 0;
        for same in files.chunk_by(|one, next| one == next) {
            let found = self.0.entry(same[0]).or_default();
            for row in &rows[start..start + same.len()] {
                found.insert(position(*row)?);
            }
            start += same.len();
        }
        Ok(())
    }

    fn add_bits(&mut self, files: &[i64], starts: &[i64], bits: &dyn Array) -> Result<(), Error> {
        let bits = bits
            .as_binary_opt::<i32>()
            .ok_or_else(|| Error::RowSet("the bits of rows must be binary".to_owned()))?;
        for ((file, start), bytes) in files.iter().zip(starts).zip(bits.iter().flatten()) {
            let start = position(*start)?;
            let found = self.0.entry(*file).or_default();
            for (byte, place) in bytes.iter().zip((start..).step_by(8)) {
                found.extend(
                    (0..8)
                        .filter(|bit| byte >> bit & 1 == 1)
                        .map(|bit| place + bit),
                );
            }
        }
        Ok(())
    }

    pub fn into_sets(self) -> impl Iterator<Item = (i64, RowSet)> {
        self.0.into_iter().map(|(file, rows)| (file, RowSet(rows)))
    }
}

fn integers(batch: &RecordBatch, index: usize) -> Result<&PrimitiveArray<Int64Type>, Error> {
    batch
        .columns()
        .get(index)
        .and_then(|column| column.as_primitive_opt())
        .filter(|column| column.null_count() == 0)
        .ok_or_else(|| Error::RowSet("row positions must be 64-bit integers".to_owned()))
}

fn position(row: i64) -> Result<u64, Error> {
    u64::try_from(row).map_err(|_| Error::RowSet(format!("a row has the position {row}")))
}
