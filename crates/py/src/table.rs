//! `Table`: the state of a table after replaying its commits.
use std::sync::{Mutex, MutexGuard, PoisonError};

use deltasql_core::codec;
use deltasql_core::files::FileList as CoreFileList;
use deltasql_core::replay::TableState;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use crate::actions::PyField;
use crate::commit::Commit;
use crate::errors::core_error;
use crate::files::FileList;

/// The state of a table at a version, computed by replaying its commits.
#[pyclass(frozen, module = "deltasql._core")]
pub struct Table {
    state: Mutex<TableState>,
}

impl Table {
    // A poisoned lock can still be used, because a panic leaves only actions that were applied
    // completely.
    fn state(&self) -> MutexGuard<'_, TableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Table {
    #[new]
    fn new() -> Self {
        Self {
            state: Mutex::new(TableState::default()),
        }
    }

    /// Replay commits; the first one has the version `first_version`.
    #[classmethod]
    #[pyo3(signature = (commits, first_version=0))]
    fn from_commits(
        _class: &Bound<'_, PyType>,
        commits: &Bound<'_, PyAny>,
        first_version: i64,
    ) -> PyResult<Self> {
        let table = Self::new();
        for (version, data) in (first_version..).zip(commits.try_iter()?) {
            table.apply(commits.py(), &data?, version, None)?;
        }
        Ok(table)
    }

    /// Apply the commit of `version`: the bytes of a commit file or a parsed `Commit`.
    #[pyo3(signature = (data, version, path=None))]
    fn apply(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        version: i64,
        path: Option<&str>,
    ) -> PyResult<()> {
        let applied = if let Ok(commit) = data.cast::<Commit>() {
            let actions = commit.get().actions();
            py.detach(|| self.state().apply(version, actions))
        } else {
            let bytes = data.extract::<&[u8]>()?;
            py.detach(|| self.state().apply(version, &codec::parse(bytes)?))
        };
        applied.map_err(|error| core_error(py, &error, path))
    }

    #[getter]
    fn version(&self) -> Option<i64> {
        self.state().version
    }

    #[getter]
    fn protocol<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let protocol = self.state().protocol.clone();
        protocol.to_python(py)
    }

    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let metadata = self.state().metadata.clone();
        metadata.to_python(py)
    }

    #[getter]
    fn commit_info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let info = self.state().commit_info.clone();
        info.to_python(py)
    }

    #[getter]
    fn num_files(&self) -> usize {
        self.state().num_files()
    }

    /// The live files as Arrow columns, oldest first.
    #[getter]
    fn files(&self, py: Python<'_>) -> PyResult<FileList> {
        let list = py.detach(|| {
            let state = self.state();
            let columns = state.metadata.as_ref().map(|m| m.partition_columns.clone());
            CoreFileList::from_adds(&state.files(), &columns.unwrap_or_default())
        });
        list.map(FileList::new)
            .map_err(|error| core_error(py, &error, None))
    }

    /// The removed files, oldest first.
    #[getter]
    fn tombstones<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let tombstones = self.state().tombstones();
        tombstones
            .iter()
            .map(|remove| remove.to_python(py))
            .collect()
    }

    #[getter]
    fn txn_versions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let txns = self.state().txns.clone();
        let versions = PyDict::new(py);
        for (app_id, txn) in &txns {
            versions.set_item(app_id, txn.version)?;
        }
        Ok(versions)
    }

    #[getter]
    fn txns<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let txns = self.state().txns.clone();
        txns.values().map(|txn| txn.to_python(py)).collect()
    }

    #[getter]
    fn domain_metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let domains = self.state().domains.clone();
        let dict = PyDict::new(py);
        for (name, domain) in &domains {
            dict.set_item(name, domain.to_python(py)?)?;
        }
        Ok(dict)
    }

    fn __repr__(&self) -> String {
        let state = self.state();
        let version = state.version.map_or("None".to_owned(), |v| v.to_string());
        format!("Table(version={version}, files={})", state.num_files())
    }
}
