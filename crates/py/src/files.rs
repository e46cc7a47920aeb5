//! `File` and `FileList`: data files as objects and as Arrow columns.
use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::RecordBatchReader;
use deltasql_core::actions::{Action, AddFile};
use deltasql_core::files::FileList as CoreFileList;
use deltasql_core::stats::{num_records, StatValue, StatsColumns};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyList, PyString, PyType};
use serde_json::Value;

use crate::actions::{action_to_dict, PyField};
use crate::errors::core_error;
use crate::json::{object_to_python, to_python};
use crate::predicate::Predicate;
use crate::rows::record_batch;
use crate::stream::{arrow_error, read_stream, stream_capsule};

/// A data file of a table, with its statistics.
#[pyclass(frozen, module = "deltasql._core")]
pub struct File {
    add: Arc<AddFile>,
}

impl File {
    pub fn new(add: Arc<AddFile>) -> Self {
        Self { add }
    }

    pub fn add(&self) -> Arc<AddFile> {
        Arc::clone(&self.add)
    }

    fn stat<'py>(
        &self,
        column: &Bound<'py, PyAny>,
        pick: fn(&StatsColumns, Option<&str>, usize) -> Option<Value>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let path = match column.cast::<PyString>() {
            Ok(name) => vec![name.to_str()?.to_owned()],
            Err(_) => column.extract::<Vec<String>>()?,
        };
        let mut columns = StatsColumns::default();
        let slot = columns.add(&path);
        pick(&columns, self.add.stats.as_deref(), slot)
            .map(|value| to_python(column.py(), &value))
            .transpose()
    }
}

#[pymethods]
impl File {
    #[getter]
    fn path(&self) -> &str {
        &self.add.path
    }

    #[getter]
    fn partition_values<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.add.partition_values.to_python(py)
    }

    #[getter]
    fn size(&self) -> i64 {
        self.add.size
    }

    #[getter]
    fn modification_time(&self) -> i64 {
        self.add.modification_time
    }

    #[getter]
    fn data_change(&self) -> bool {
        self.add.data_change
    }

    #[getter]
    fn stats(&self) -> Option<&str> {
        self.add.stats.as_deref()
    }

    #[getter]
    fn num_records(&self) -> Option<i64> {
        num_records(self.add.stats.as_deref())
    }

    #[getter]
    fn tags<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.add.tags.to_python(py)
    }

    #[getter]
    fn deletion_vector<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.add.deletion_vector.to_python(py)
    }

    #[getter]
    fn base_row_id(&self) -> Option<i64> {
        self.add.base_row_id
    }

    #[getter]
    fn default_row_commit_version(&self) -> Option<i64> {
        self.add.default_row_commit_version
    }

    #[getter]
    fn clustering_provider(&self) -> Option<&str> {
        self.add.clustering_provider.as_deref()
    }

    #[getter]
    fn extra<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(object_to_python(py, &self.add.extra)?.into_any())
    }

    /// Return the minimum of a column in the statistics; a nested column is a sequence of names.
    fn min<'py>(&self, column: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.stat(column, |columns, stats, slot| {
            columns.read(stats).min(slot).and_then(stat_json)
        })
    }

    /// Return the maximum of a column in the statistics.
    fn max<'py>(&self, column: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.stat(column, |columns, stats, slot| {
            columns.read(stats).max(slot).and_then(stat_json)
        })
    }

    /// Return the number of nulls of a column in the statistics.
    fn null_count<'py>(&self, column: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.stat(column, |columns, stats, slot| {
            columns.read(stats).null_count(slot).map(Value::from)
        })
    }

    /// Return the file as an `AddFile`.
    fn to_action<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.add.to_python(py)
    }

    /// Return the action in its JSON form: `{"add": {...}}`.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        action_to_dict(py, &Action::Add(self.add()))
    }

    /// Return the action as one line of a commit file.
    fn to_json(&self) -> PyResult<String> {
        serde_json::to_string(&Action::Add(self.add()))
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other
            .cast::<Self>()
            .is_ok_and(|other| other.get().add == self.add)
    }

    fn __hash__(&self, py: Python<'_>) -> PyResult<isize> {
        PyString::new(py, &self.add.path).hash()
    }

    fn __repr__(&self) -> String {
        format!("File(path={:?}, size={})", self.add.path, self.add.size)
    }
}

/// A list of files as Arrow columns; a `File` object is created on access.
#[pyclass(frozen, sequence, module = "deltasql._core")]
pub struct FileList {
    list: CoreFileList,
}

impl FileList {
    pub fn new(list: CoreFileList) -> Self {
        Self { list }
    }

    pub fn list(&self) -> &CoreFileList {
        &self.list
    }

    fn file(&self, py: Python<'_>, index: usize) -> PyResult<File> {
        let add = self.list.get(index);
        let add = add.map_err(|error| core_error(py, &error, None))?;
        Ok(File::new(Arc::new(add)))
    }
}

#[pymethods]
impl FileList {
    /// Return the files of an Arrow stream with the columns path, partition, size, stats, ….
    #[classmethod]
    fn from_arrow(
        _class: &Bound<'_, PyType>,
        py: Python<'_>,
        stream: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let reader = read_stream(stream)?;
        let schema = reader.schema();
        let read = py.detach(|| reader.collect::<Result<Vec<_>, _>>());
        let batches = read.map_err(arrow_error)?;
        py.detach(|| CoreFileList::try_new(&schema, &batches))
            .map(Self::new)
            .map_err(|error| core_error(py, &error, None))
    }

    /// Return the files in rows of a database; `columns` has the name and type of every column.
    #[classmethod]
    fn from_rows(
        _class: &Bound<'_, PyType>,
        py: Python<'_>,
        rows: &Bound<'_, PyList>,
        columns: Vec<(String, String)>,
    ) -> PyResult<Self> {
        let batch = record_batch(rows, &columns)?;
        CoreFileList::try_new(&batch.schema(), std::slice::from_ref(&batch))
            .map(Self::new)
            .map_err(|error| core_error(py, &error, None))
    }

    /// Replace the column `partition_id` with `partition`, which has the values as JSON.
    fn with_partitions(&self, py: Python<'_>, partitions: HashMap<i64, String>) -> PyResult<Self> {
        py.detach(|| self.list.with_partitions(&partitions))
            .map(Self::new)
            .map_err(|error| core_error(py, &error, None))
    }

    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        stream_capsule(
            py,
            Arc::clone(self.list.schema()),
            self.list.batches().to_vec(),
        )
    }

    /// Return all paths, in order.
    fn paths<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let paths: Vec<_> = self.list.paths().collect();
        PyList::new(py, paths)
    }

    /// Return the files that may have a row for which the predicate is TRUE.
    fn prune(&self, py: Python<'_>, predicate: &Bound<'_, Predicate>) -> PyResult<Self> {
        let compiled = predicate.get().compiled();
        py.detach(|| self.list.prune(compiled))
            .map(Self::new)
            .map_err(|error| core_error(py, &error, None))
    }

    /// Return for every file whether it may have a row for which the predicate is TRUE.
    fn mask(&self, py: Python<'_>, predicate: &Bound<'_, Predicate>) -> Vec<bool> {
        let compiled = predicate.get().compiled();
        py.detach(|| {
            let masks = self.list.mask(compiled);
            let values = masks.iter().flat_map(|mask| mask.values().iter());
            values.collect()
        })
    }

    fn __len__(&self) -> usize {
        self.list.len()
    }

    fn __getitem__(&self, py: Python<'_>, index: isize) -> PyResult<File> {
        let len = self.list.len();
        let position = if index < 0 {
            len.checked_sub(index.unsigned_abs())
        } else {
            Some(index.unsigned_abs())
        };
        match position.filter(|position| *position < len) {
            Some(position) => self.file(py, position),
            None => Err(PyIndexError::new_err(format!(
                "file {index} of a list of {len}"
            ))),
        }
    }

    fn __iter__(slf: Bound<'_, Self>) -> FileIterator {
        FileIterator {
            list: slf.unbind(),
            next: std::sync::atomic::AtomicUsize::new(0),
        }
    }

    fn __repr__(&self) -> String {
        format!("FileList({} files)", self.list.len())
    }
}

/// Iterates over a `FileList`.
#[pyclass(frozen, module = "deltasql._core")]
pub struct FileIterator {
    list: Py<FileList>,
    next: std::sync::atomic::AtomicUsize,
}

#[pymethods]
impl FileIterator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<File>> {
        let list = self.list.get();
        let index = self.next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        (index < list.list.len())
            .then(|| list.file(py, index))
            .transpose()
    }
}

fn stat_json(value: StatValue<'_>) -> Option<Value> {
    if value.quoted {
        return Some(Value::from(value.text));
    }
    serde_json::from_str(&value.text).ok()
}
