//! `RowSet`: sets of row positions, which deletion vectors contain.
use std::collections::BTreeMap;

use deltasql_core::row_set::{RowSet as CoreRowSet, RowSets};
use deltasql_core::stats;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};

use crate::errors::core_error;
use crate::stream::{arrow_error, read_stream};

/// A set of positions of rows in a file.
#[pyclass(frozen, module = "deltasql._core")]
pub struct RowSet {
    rows: CoreRowSet,
}

#[pymethods]
impl RowSet {
    /// Decode a deletion vector.
    #[classmethod]
    fn decode(_class: &Bound<'_, PyType>, py: Python<'_>, data: &[u8]) -> PyResult<Self> {
        CoreRowSet::decode(data)
            .map(|rows| Self { rows })
            .map_err(|error| core_error(py, &error, None))
    }

    /// Return a set for each file in an Arrow stream; `RowSets::add` describes its columns.
    #[classmethod]
    fn by_file(
        _class: &Bound<'_, PyType>,
        py: Python<'_>,
        stream: &Bound<'_, PyAny>,
    ) -> PyResult<BTreeMap<i64, Self>> {
        let reader = read_stream(stream)?;
        py.detach(|| {
            let mut found = RowSets::default();
            for batch in reader {
                let added = batch.map(|batch| found.add(&batch));
                added
                    .map_err(arrow_error)?
                    .map_err(|error| Python::attach(|py| core_error(py, &error, None)))?;
            }
            let sets = found.into_sets();
            Ok(sets.map(|(file, rows)| (file, Self { rows })).collect())
        })
    }

    /// Encode the set as a deletion vector.
    fn encode<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.rows.encode()?))
    }

    /// Return the positions in ascending order, as 64-bit integers in the machine's byte order.
    fn positions<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes: Vec<u8> = self.rows.positions().flat_map(u64::to_ne_bytes).collect();
        PyBytes::new(py, &bytes)
    }

    fn union(&self, other: &Self) -> Self {
        Self {
            rows: self.rows.union(&other.rows),
        }
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.rows.len())?)
    }
}

/// Return the statistics of a file with `tightBounds` set to false; None if they are not an object.
#[pyfunction]
pub fn with_wide_bounds(stats: &str) -> Option<String> {
    stats::with_wide_bounds(stats)
}
