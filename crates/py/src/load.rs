//! `LogFiles`: the rows of many commits' files, ready for the store.
use std::borrow::Cow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

use deltasql_core::actions::Action;
use deltasql_core::columns::json_text;
use deltasql_core::error::Error;
use deltasql_core::index::IndexColumn;
use deltasql_core::keys::KeyType;
use deltasql_core::load::{FileKey, Load};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use pyo3::IntoPyObjectExt;

use crate::commit::Commit;
use crate::copy::CopyRows;
use crate::errors::core_error;
use crate::files::FileList;

/// The files of commits that follow one another, numbered and indexed.
#[pyclass(module = "deltasql._core")]
pub struct LogFiles {
    load: Arc<Load>,
}

#[pymethods]
impl LogFiles {
    #[new]
    fn new(first_file_id: i64) -> Self {
        Self {
            load: Arc::new(Load::new(first_file_id)),
        }
    }

    /// Say what is indexed, and how the table is partitioned, from the next commit on.
    fn set_columns(
        &mut self,
        columns: Vec<(i64, Vec<String>, String)>,
        partition_columns: Vec<String>,
    ) -> PyResult<()> {
        let columns = columns
            .into_iter()
            .map(|(id, path, delta_type)| IndexColumn {
                id,
                path,
                key_type: KeyType::of(&delta_type),
            });
        let columns = columns.collect();
        self.growing()?.set_columns(columns, partition_columns);
        Ok(())
    }

    /// Take the files of a commit, and those in a list beside it.
    #[pyo3(signature = (version, commit=None, adds=None))]
    fn append(
        &mut self,
        py: Python<'_>,
        version: i64,
        commit: Option<&Bound<'_, Commit>>,
        adds: Option<&Bound<'_, FileList>>,
    ) -> PyResult<()> {
        let load = self.growing()?;
        let actions = commit.map_or(&[][..], |commit| commit.get().actions());
        let list = adds.map(|adds| adds.get().list());
        let work = || -> Result<(), Error> {
            let mut files = Vec::new();
            if let Some(list) = list {
                files.extend(list.adds()?.into_iter().map(Arc::new));
            }
            files.extend(actions.iter().filter_map(|action| match action {
                Action::Add(add) => Some(Arc::clone(add)),
                _ => None,
            }));
            let removes = actions.iter().filter_map(|action| match action {
                Action::Remove(remove) => Some(Arc::clone(remove)),
                _ => None,
            });
            load.append(version, files, removes);
            Ok(())
        };
        py.detach(work)
            .map_err(|error| core_error(py, &error, None))
    }

    /// Keep files that left before the first commit, numbered from `ordinal` on.
    fn append_tombstones(
        &mut self,
        py: Python<'_>,
        version: i64,
        tombstones: &Bound<'_, FileList>,
        ordinal: i64,
    ) -> PyResult<()> {
        let load = self.growing()?;
        let list = tombstones.get().list();
        let work = || -> Result<(), Error> {
            let removes = list.removes(load.partition_columns())?;
            load.keep_removes(version, ordinal, removes.into_iter().map(Arc::new));
            Ok(())
        };
        py.detach(work)
            .map_err(|error| core_error(py, &error, None))
    }

    /// The short names of all files that the commits add or remove.
    fn keys<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let keys = self.load.keys();
        PyList::new(py, keys.iter().map(|key| PyBytes::new(py, key)))
    }

    /// Find out which files end, given the (key, id) of those that live already.
    ///
    /// Returns the ids of live ones that end, and the versions that end them.
    fn resolve(&mut self, live: Vec<(PyBackedBytes, i64)>) -> PyResult<(Vec<i64>, Vec<i64>)> {
        let live = live.into_iter().map(|(key, file_id)| {
            let key = FileKey::try_from(&key[..]);
            let key = key.map_err(|_| PyValueError::new_err("no key of a file"))?;
            Ok((key, file_id))
        });
        let live: Vec<_> = live.collect::<PyResult<_>>()?;
        Ok(self.growing()?.resolve(live).into_iter().unzip())
    }

    #[getter]
    fn next_file_id(&self) -> i64 {
        self.load.next_file_id()
    }

    /// The distinct partitions, as JSON.
    #[getter]
    fn partitions(&self) -> Vec<&str> {
        self.load.partitions().iter().map(String::as_str).collect()
    }

    /// Rows of `insert_loaded_file`; `partition_ids` go with `partitions`.
    fn file_rows(&self, table_id: i64, partition_ids: Vec<i64>) -> PyResult<LogRows> {
        if partition_ids.len() < self.load.partitions().len() {
            return Err(PyValueError::new_err("every partition needs an id"));
        }
        Ok(self.rows(Kind::Files(partition_ids), table_id))
    }

    /// Rows of `insert_file_stats`.
    fn stats_rows(&self, table_id: i64) -> LogRows {
        self.rows(Kind::Stats, table_id)
    }

    /// Rows of `insert_remove_file`.
    fn remove_rows(&self, table_id: i64) -> LogRows {
        self.rows(Kind::Removes, table_id)
    }

    fn __len__(&self) -> usize {
        self.load.files().len()
    }

    fn __repr__(&self) -> String {
        let load = &self.load;
        format!(
            "LogFiles(files={}, removes={}, stats={}, partitions={})",
            load.files().len(),
            load.removes().len(),
            load.stats().len(),
            load.partitions().len()
        )
    }
}

impl LogFiles {
    fn growing(&mut self) -> PyResult<&mut Load> {
        let shared = || PyRuntimeError::new_err("its rows are in use: nothing can be added");
        Arc::get_mut(&mut self.load).ok_or_else(shared)
    }

    fn rows(&self, kind: Kind, table_id: i64) -> LogRows {
        LogRows {
            load: Arc::clone(&self.load),
            kind,
            table_id,
        }
    }
}

enum Kind {
    /// With the ids of the partitions.
    Files(Vec<i64>),
    Stats,
    Removes,
}

/// Rows for one insert, made when they are asked for.
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
            next: AtomicUsize::new(0),
        }
    }

    /// The rows as PostgreSQL's COPY takes them in its binary format, piece by piece.
    fn copy_pieces(slf: Bound<'_, Self>) -> CopyPieces {
        CopyPieces {
            rows: slf.unbind(),
            next: AtomicUsize::new(0),
        }
    }
}

impl LogRows {
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
            Value::Text(Cow::from(&add.path)),
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
        ]
    }

    fn remove(&self, at: usize) -> Vec<Value<'_>> {
        let row = &self.load.removes()[at];
        let remove = &*row.remove;
        vec![
            Value::Long(self.table_id),
            Value::Long(row.version),
            Value::Long(row.ordinal),
            Value::Text(Cow::from(&remove.path)),
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
        let values: Vec<_> = values
            .iter()
            .map(|value| value.to_python(py))
            .collect::<PyResult<_>>()?;
        PyTuple::new(py, values).map(Some)
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
                CopyRows::go_on()
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
    Text(Cow<'a, str>),
    Bytes(&'a [u8]),
}

impl<'a> Value<'a> {
    fn long(value: Option<i64>) -> Self {
        value.map_or(Self::Null, Self::Long)
    }

    fn text(value: &'a Option<String>) -> Self {
        value
            .as_deref()
            .map_or(Self::Null, |text| Self::Text(Cow::from(text)))
    }

    fn json(value: &Option<impl serde::Serialize>) -> Self {
        let text = value.as_ref().map(json_text);
        text.map_or(Self::Null, |text| Self::Text(Cow::from(text)))
    }

    fn extra(value: &serde_json::Map<String, serde_json::Value>) -> Self {
        if value.is_empty() {
            return Self::Null;
        }
        Self::Text(Cow::from(json_text(value)))
    }

    fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Self::Null => Ok(py.None().into_bound(py)),
            Self::Long(value) => value.into_bound_py_any(py),
            Self::Flag(value) => value.into_bound_py_any(py),
            Self::Text(value) => Ok(PyString::new(py, value).into_any()),
            Self::Bytes(value) => Ok(PyBytes::new(py, value).into_any()),
        }
    }
}

fn copy_row(copy: &mut CopyRows, values: &[Value<'_>]) {
    // No table has so many columns that their number would not fit.
    copy.row(values.len() as i16);
    for value in values {
        match value {
            Value::Null => copy.bytes_of(None),
            Value::Long(value) => copy.bigint(Some(*value)),
            Value::Flag(value) => copy.boolean(*value),
            Value::Text(value) => copy.bytes_of(Some(value.as_bytes())),
            Value::Bytes(value) => copy.bytes_of(Some(value)),
        }
    }
}
