//! `Commit`: the actions of a commit file, and functions to parse and encode it.
use std::sync::Arc;

use deltasql_core::actions::{Action, AddFile};
use deltasql_core::codec;
use deltasql_core::files::FileList as CoreFileList;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyList};

use crate::actions::{action_from_python, action_to_dict, action_to_python};
use crate::errors::core_error;
use crate::files::{File, FileList};

/// The actions of one commit file; Python objects are created on access.
#[pyclass(frozen, module = "deltasql._core")]
pub struct Commit {
    #[pyo3(get)]
    version: Option<i64>,
    actions: Vec<Action>,
}

/// Parse a commit file.
#[pyfunction]
#[pyo3(signature = (data, *, version=None, path=None))]
pub fn parse_commit(
    py: Python<'_>,
    data: &[u8],
    version: Option<i64>,
    path: Option<&str>,
) -> PyResult<Commit> {
    let actions = py
        .detach(|| codec::parse(data))
        .map_err(|error| core_error(py, &error, path))?;
    Ok(Commit { version, actions })
}

/// Parse the files of consecutive commits; `paths` has their names, for errors.
#[pyfunction]
pub fn parse_commits(
    py: Python<'_>,
    contents: Vec<PyBackedBytes>,
    first_version: i64,
    paths: Vec<PyBackedStr>,
) -> PyResult<Vec<Commit>> {
    let read = py.detach(|| {
        let parsed = contents.iter().zip(&paths).zip(first_version..);
        parsed
            .map(|((data, path), version)| match codec::parse(data) {
                Ok(actions) => Ok(Commit {
                    version: Some(version),
                    actions,
                }),
                Err(error) => Err((error, path)),
            })
            .collect::<Result<Vec<Commit>, _>>()
    });
    read.map_err(|(error, path)| core_error(py, &error, Some(path)))
}

/// Return false for a file with an empty string, because a `FileList` would read it as NULL.
fn has_columns(add: &AddFile) -> bool {
    let texts = [&add.stats, &add.clustering_provider];
    !texts.into_iter().flatten().any(String::is_empty)
}

/// Encode actions as a canonical commit file.
#[pyfunction]
pub fn encode_commit<'py>(
    py: Python<'py>,
    actions: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let mut read = Vec::with_capacity(actions.len().unwrap_or_default());
    for action in actions.try_iter()? {
        read.push(action_from_python(&action?)?);
    }
    let data = py.detach(|| codec::encode(&read));
    Ok(PyBytes::new(py, &data))
}

/// Return True if statistics are nested deeper than a log may contain.
#[pyfunction]
pub fn nests_too_deep(stats: Option<&str>) -> bool {
    stats.is_some_and(codec::nests_too_deep)
}

impl Commit {
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }

    fn all<'py>(
        &self,
        py: Python<'py>,
        wanted: fn(&Action) -> bool,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let found = self.actions.iter().filter(|action| wanted(action));
        found
            .filter_map(|action| action_to_python(py, action).transpose())
            .collect()
    }

    // The last action wins, as in a replay.
    fn last<'py>(
        &self,
        py: Python<'py>,
        wanted: fn(&Action) -> bool,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match self.actions.iter().rev().find(|action| wanted(action)) {
            Some(action) => action_to_python(py, action),
            None => Ok(None),
        }
    }
}

#[pymethods]
impl Commit {
    #[getter]
    fn adds(&self) -> Vec<File> {
        let add = |action: &Action| match action {
            Action::Add(add) => Some(File::new(Arc::clone(add))),
            _ => None,
        };
        self.actions.iter().filter_map(add).collect()
    }

    /// The number of added files, without creating objects for them.
    #[getter]
    fn num_adds(&self) -> usize {
        let adds = self.actions.iter();
        adds.filter(|action| matches!(action, Action::Add(_)))
            .count()
    }

    #[getter]
    fn removes<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.all(py, |action| matches!(action, Action::Remove(_)))
    }

    #[getter]
    fn cdc<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.all(py, |action| matches!(action, Action::Cdc(_)))
    }

    #[getter]
    fn txns<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.all(py, |action| matches!(action, Action::Txn(_)))
    }

    #[getter]
    fn domain_metadata<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.all(py, |action| matches!(action, Action::DomainMetadata(_)))
    }

    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.last(py, |action| matches!(action, Action::Metadata(_)))
    }

    #[getter]
    fn protocol<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.last(py, |action| matches!(action, Action::Protocol(_)))
    }

    #[getter]
    fn commit_info<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.last(py, |action| matches!(action, Action::CommitInfo(_)))
    }

    /// The actions of unknown kinds, as `{kind: body}`.
    #[getter]
    fn unknown<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let list = PyList::empty(py);
        for action in &self.actions {
            if matches!(action, Action::Unknown { .. }) {
                list.append(action_to_dict(py, action)?)?;
            }
        }
        Ok(list)
    }

    /// Return all actions of known kinds as dataclasses, in the order of the file.
    #[pyo3(name = "actions")]
    fn py_actions<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.all(py, |_| true)
    }

    /// Return the added files as a list, and a commit with all other actions.
    fn split(&self, py: Python<'_>) -> PyResult<(FileList, Self)> {
        let (adds, rest) = py.detach(|| {
            let (mut adds, mut rest) = (Vec::new(), Vec::new());
            for action in &self.actions {
                match action {
                    Action::Add(add) if has_columns(add) => adds.push(Arc::clone(add)),
                    other => rest.push(other.clone()),
                }
            }
            (CoreFileList::from_adds(&adds, &[]), rest)
        });
        let adds = adds.map_err(|error| core_error(py, &error, None))?;
        let rest = Self {
            version: self.version,
            actions: rest,
        };
        Ok((FileList::new(adds), rest))
    }

    /// Return the canonical commit file, including unknown actions and fields.
    fn to_ndjson<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let data = py.detach(|| codec::encode(&self.actions));
        PyBytes::new(py, &data)
    }

    fn __len__(&self) -> usize {
        self.actions.len()
    }

    fn __repr__(&self) -> String {
        let version = self.version.map_or("None".to_owned(), |v| v.to_string());
        format!("Commit(version={version}, actions={})", self.actions.len())
    }
}
