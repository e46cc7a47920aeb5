//! `LogFiles`: the rows that the store inserts for the files of many commits.
use std::sync::Arc;

use deltasql_core::actions::Action;
use deltasql_core::error::Error;
use deltasql_core::files::FileList as CoreFileList;
use deltasql_core::index::IndexColumn;
use deltasql_core::keys::KeyType;
use deltasql_core::load::{FileKey, Load};
use deltasql_core::seen::SeenKeys;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyList};

use crate::commit::Commit;
use crate::errors::core_error;
use crate::files::FileList;
use crate::log_rows::{Kind, LogRows};

/// The files of consecutive commits, with their ids and data skipping index.
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

    /// Set the indexed columns and the partition columns for the following commits.
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

    /// Append files that are live at `version`.
    fn append(&mut self, py: Python<'_>, version: i64, adds: &Bound<'_, FileList>) -> PyResult<()> {
        let load = self.growing()?;
        let list = adds.get().list();
        py.detach(|| append(load, version, &[], Some(list)))
            .map_err(|error| core_error(py, &error, None))
    }

    /// Append the files of commits. Each commit may come with a list of further added files.
    ///
    /// Returns for each commit the next file id after it.
    fn append_commits(
        &mut self,
        py: Python<'_>,
        commits: Vec<(i64, Py<Commit>, Option<Py<FileList>>)>,
    ) -> PyResult<Vec<i64>> {
        let load = self.growing()?;
        let work = || -> Result<Vec<i64>, Error> {
            let mut next_file_ids = Vec::with_capacity(commits.len());
            for (version, commit, adds) in &commits {
                let list = adds.as_ref().map(|adds| adds.get().list());
                append(load, *version, commit.get().actions(), list)?;
                next_file_ids.push(load.next_file_id());
            }
            Ok(next_file_ids)
        };
        py.detach(work)
            .map_err(|error| core_error(py, &error, None))
    }

    /// Store tombstones from before the first commit, with ordinals that start at `ordinal`.
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

    /// Return the keys of the files that the commits add or remove; with `seen`, only those of
    /// files that may have been added before.
    #[pyo3(signature = (seen=None))]
    fn keys<'py>(&self, py: Python<'py>, seen: Option<&SeenFiles>) -> PyResult<Bound<'py, PyList>> {
        let (load, seen) = (&self.load, seen.map(|seen| &seen.keys));
        let keys = py.detach(|| load.keys(seen));
        PyList::new(py, keys.iter().map(|key| PyBytes::new(py, key)))
    }

    /// Find the files that the commits remove, given keys and ids of the files that are live
    /// before.
    ///
    /// Returns the ids of those files that are removed, and the versions that remove them.
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

    /// Return the rows of `insert_loaded_file`; `partition_ids` has an id for each of `partitions`.
    fn file_rows(&self, table_id: i64, partition_ids: Vec<i64>) -> PyResult<LogRows> {
        if partition_ids.len() < self.load.partitions().len() {
            return Err(PyValueError::new_err("every partition needs an id"));
        }
        Ok(self.rows(Kind::Files(partition_ids), table_id))
    }

    /// Return the rows of `insert_file_stats`.
    fn stats_rows(&self, table_id: i64) -> LogRows {
        self.rows(Kind::Stats, table_id)
    }

    /// Return the rows of `insert_remove_file`.
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
        LogRows::new(Arc::clone(&self.load), kind, table_id)
    }
}

fn append(
    load: &mut Load,
    version: i64,
    actions: &[Action],
    list: Option<&CoreFileList>,
) -> Result<(), Error> {
    let listed = match list {
        Some(list) => list.adds()?,
        None => Vec::new(),
    };
    let adds = actions.iter().filter_map(|action| match action {
        Action::Add(add) => Some(Arc::clone(add)),
        _ => None,
    });
    let removes = actions.iter().filter_map(|action| match action {
        Action::Remove(remove) => Some(Arc::clone(remove)),
        _ => None,
    });
    load.append(
        version,
        listed.into_iter().map(Arc::new).chain(adds),
        removes,
    );
    Ok(())
}

/// The files that were ever loaded into a table. Above a limit, every file is reported as seen.
#[pyclass(module = "deltasql._core")]
#[derive(Default)]
pub struct SeenFiles {
    keys: SeenKeys,
}

#[pymethods]
impl SeenFiles {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn add(&mut self, py: Python<'_>, files: &LogFiles) {
        let (keys, load) = (&mut self.keys, &files.load);
        py.detach(|| keys.add(load.files().iter().map(|file| file.key)));
    }
}
