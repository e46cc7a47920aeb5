//! `LogRows`: the rows of an insert statement, created one by one while they are sent.
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use deltasql_core::columns::json_text;
use deltasql_core::load::Load;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString, PyTuple};
use pyo3::IntoPyObjectExt;

use crate::copy::CopyRows;

pub enum Kind {
    /// Rows of files, with the partition ids.
    Files(Vec<i64>),
    Stats,
    Removes,
}

/// The rows of an insert statement, created when they are read.
#[pyclass(frozen, module = "deltasql._core")]
pub struct LogRows {
    load: Arc<Load>,
    kind: Kind,
    table_id: i64,
}

#[pymethods]
impl LogRows {
    fn __len__(&self) -> usize {
        match self.kind {
            Kind::Files(_) => self.load.files().len(),
            Kind::Stats => self.load.stats().len(),
            Kind::Removes => self.load.removes().len(),
        }
    }

    fn __iter__(slf: Bound<'_, Self>) -> LogRowIterator {
        LogRowIterator {
            rows: slf.unbind(),
            plain: None,
            next: AtomicUsize::new(0),
        }
    }

    /// Return the positions of the columns that have a value in at least one row.
    fn filled_columns(&self, py: Python<'_>) -> Vec<usize> {
        py.detach(|| {
            let mut filled: Vec<bool> = Vec::new();
            for at in 0..self.__len__() {
                let values = self.values(at);
                filled.resize(values.len(), false);
                for (is_filled, value) in filled.iter_mut().zip(&values) {
                    *is_filled |= !matches!(value, Value::Null);
                }
            }
            let filled = filled.iter().enumerate().filter(|(_, filled)| **filled);
            filled.map(|(column, _)| column).collect()
        })
    }

    /// Return some columns of the rows, in types that SQLite's driver accepts without adapters.
    fn plain_rows(slf: Bound<'_, Self>, columns: Vec<usize>) -> LogRowIterator {
        LogRowIterator {
            rows: slf.unbind(),
            plain: Some(columns),
            next: AtomicUsize::new(0),
        }
    }

    /// Return the rows in the binary format of PostgreSQL's COPY, in pieces.
    fn copy_pieces(slf: Bound<'_, Self>) -> CopyPieces {
        CopyPieces {
            rows: slf.unbind(),
            next: AtomicUsize::new(0),
        }
    }
}

impl LogRows {
    pub fn new(load: Arc<Load>, kind: Kind, table_id: i64) -> Self {
        Self {
            load,
            kind,
            table_id,
        }
    }

    fn values(&self, at: usize) -> Vec<Value<'_>> {
        match &self.kind {
            Kind::Files(ids) => self.file(at, ids),
            Kind::Stats => self.stats(at),
            Kind::Removes => self.remove(at),
        }
    }

    fn file(&self, at: usize, partition_ids: &[i64]) -> Vec<Value<'_>> {
        let file = &self.load.files()[at];
        let add = &*file.add;
        vec![
            Value::Long(self.table_id),
            Value::Long(file.file_id),
            Value::Text(&add.path),
            Value::Bytes(&file.key),
            Value::Long(partition_ids[file.partition]),
            Value::Long(add.size),
            Value::Long(add.modification_time),
            Value::Flag(add.data_change),
            Value::text(&add.stats),
            Value::long(file.num_records),
            Value::json(&add.tags),
            Value::json(&add.deletion_vector),
            Value::long(add.base_row_id),
            Value::long(add.default_row_commit_version),
            Value::text(&add.clustering_provider),
            Value::extra(&add.extra),
            Value::Long(file.added_version),
            Value::long(file.removed_version),
        ]
    }

    fn stats(&self, at: usize) -> Vec<Value<'_>> {
        let row = &self.load.stats()[at];
        vec![
            Value::Long(self.table_id),
            Value::Long(row.column_id),
            Value::Long(row.first_file_id),
            Value::Long(row.last_file_id),
            row.min_key.as_deref().map_or(Value::Null, Value::Bytes),
            row.max_key.as_deref().map_or(Value::Null, Value::Bytes),
            Value::long(row.null_count),
            Value::long(row.num_records),
            row.file_bounds.as_deref().map_or(Value::Null, Value::Bytes),
        ]
    }

    fn remove(&self, at: usize) -> Vec<Value<'_>> {
        let row = &self.load.removes()[at];
        let remove = &*row.remove;
        vec![
            Value::Long(self.table_id),
            Value::Long(row.version),
            Value::Long(row.ordinal),
            Value::Text(&remove.path),
            Value::long(remove.deletion_timestamp),
            Value::Flag(remove.data_change),
            remove
                .extended_file_metadata
                .map_or(Value::Null, Value::Flag),
            Value::json(&remove.partition_values),
            Value::long(remove.size),
            Value::text(&remove.stats),
            Value::json(&remove.tags),
            Value::json(&remove.deletion_vector),
            Value::long(remove.base_row_id),
            Value::long(remove.default_row_commit_version),
            Value::extra(&remove.extra),
        ]
    }
}

/// Iterates over rows as tuples.
#[pyclass(frozen, module = "deltasql._core")]
pub struct LogRowIterator {
    rows: Py<LogRows>,
    // The requested columns; None for all columns.
    plain: Option<Vec<usize>>,
    next: AtomicUsize,
}

#[pymethods]
impl LogRowIterator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let rows = self.rows.get();
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        if at >= rows.__len__() {
            return Ok(None);
        }
        let values = rows.values(at);
        let values: PyResult<Vec<_>> = match &self.plain {
            None => values.iter().map(|value| value.to_python(py)).collect(),
            Some(columns) => columns
                .iter()
                .map(|column| match values.get(*column) {
                    Some(value) => value.to_plain(py),
                    None => Err(PyIndexError::new_err("there is no such column")),
                })
                .collect(),
        };
        PyTuple::new(py, values?).map(Some)
    }
}

/// Iterates over rows as pieces of a COPY stream.
#[pyclass(frozen, module = "deltasql._core")]
pub struct CopyPieces {
    rows: Py<LogRows>,
    next: AtomicUsize,
}

#[pymethods]
impl CopyPieces {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        let rows = self.rows.get();
        let count = rows.__len__();
        let first = self.next.load(Ordering::Relaxed);
        if first > count {
            return None;
        }
        let (copy, next) = py.detach(|| {
            let mut copy = if first == 0 {
                CopyRows::start()
            } else {
                CopyRows::without_header()
            };
            let mut at = first;
            while at < count && !copy.is_full() {
                copy_row(&mut copy, &rows.values(at));
                at += 1;
            }
            if at == count {
                copy.end();
                at += 1;
            }
            (copy, at)
        });
        self.next.store(next, Ordering::Relaxed);
        Some(PyBytes::new(py, copy.bytes()))
    }
}

enum Value<'a> {
    Null,
    Long(i64),
    Flag(bool),
    Text(&'a str),
    Bytes(&'a [u8]),
    Json(&'a dyn JsonText),
}

/// A value that is stored as JSON; the string is created only when it is needed.
trait JsonText {
    fn json_text(&self) -> String;
}

impl<T: serde::Serialize> JsonText for T {
    fn json_text(&self) -> String {
        json_text(self)
    }
}

impl<'a> Value<'a> {
    fn long(value: Option<i64>) -> Self {
        value.map_or(Self::Null, Self::Long)
    }

    fn text(value: &'a Option<String>) -> Self {
        value.as_deref().map_or(Self::Null, Self::Text)
    }

    fn json(value: &'a Option<impl serde::Serialize>) -> Self {
        let text = value.as_ref();
        text.map_or(Self::Null, |value| Self::Json(value))
    }

    fn extra(value: &'a serde_json::Map<String, serde_json::Value>) -> Self {
        if value.is_empty() {
            return Self::Null;
        }
        Self::Json(value)
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Null => Ok(py.None().into_bound(py)),
            Self::Long(value) => value.into_bound_py_any(py),
            Self::Flag(value) => value.into_bound_py_any(py),
            Self::Text(value) => Ok(PyString::new(py, value).into_any()),
            Self::Bytes(value) => Ok(PyBytes::new(py, value).into_any()),
            Self::Json(value) => Ok(PyString::new(py, &value.json_text()).into_any()),
        }
    }

    /// Return int for bool and bytearray for bytes, because SQLite's driver would search an adapter
    /// for each bool or bytes value.
    fn to_plain<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Flag(value) => i64::from(*value).into_bound_py_any(py),
            Self::Bytes(value) => Ok(PyByteArray::new(py, value).into_any()),
            other => other.to_python(py),
        }
    }
}

fn copy_row(copy: &mut CopyRows, values: &[Value<'_>]) {
    // The number of columns always fits.
    copy.row(values.len() as i16);
    for value in values {
        match value {
            Value::Null => copy.bytes_of(None),
            Value::Long(value) => copy.bigint(Some(*value)),
            Value::Flag(value) => copy.boolean(*value),
            Value::Text(value) => copy.bytes_of(Some(value.as_bytes())),
            Value::Bytes(value) => copy.bytes_of(Some(value)),
            Value::Json(value) => copy.bytes_of(Some(value.json_text().as_bytes())),
        }
    }
}
