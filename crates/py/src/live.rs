//! `LiveFiles`: the live files after consecutive commits, in little memory.
use deltasql_core::actions::{Action, AddFile, DeletionVector};
use deltasql_core::columns::json_text;
use deltasql_core::error::Error;
use deltasql_core::keys::PathKeys;
use deltasql_core::load::FileKey;
use deltasql_core::seen::LiveKeys;
use pyo3::prelude::*;

use crate::commit::Commit;
use crate::errors::core_error;
use crate::files::FileList;

/// The live files after commits that were applied in order.
#[pyclass(module = "deltasql._core")]
#[derive(Default)]
pub struct LiveFiles {
    live: LiveKeys,
    names: PathKeys,
}

#[pymethods]
impl LiveFiles {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Add files that are live at `version`.
    fn add(&mut self, py: Python<'_>, version: i64, files: &Bound<'_, FileList>) -> PyResult<()> {
        let list = files.get().list();
        let work = || -> Result<(), Error> {
            for add in list.adds()? {
                let key = self.key_of(&add);
                self.live.add(&key, version, add.size);
            }
            Ok(())
        };
        py.detach(work)
            .map_err(|error| core_error(py, &error, None))
    }

    /// Apply the commit of `version`.
    fn apply(&mut self, py: Python<'_>, version: i64, commit: &Bound<'_, Commit>) {
        let actions = commit.get().actions();
        py.detach(|| {
            for action in actions {
                if let Action::Remove(remove) = action {
                    let key = self.key(&remove.path, remove.deletion_vector.as_ref());
                    self.live.remove(&key);
                }
            }
            for action in actions {
                if let Action::Add(add) = action {
                    let key = self.key_of(add);
                    self.live.add(&key, version, add.size);
                }
            }
        });
    }

    /// Return path and deletion vector (as JSON) of the files of a commit that are still live.
    fn of_commit(
        &mut self,
        py: Python<'_>,
        version: i64,
        commit: &Bound<'_, Commit>,
    ) -> Vec<(String, Option<String>)> {
        let actions = commit.get().actions();
        py.detach(|| {
            let mut found = Vec::new();
            for action in actions {
                if let Action::Add(add) = action {
                    let key = self.key_of(add);
                    if self.live.is_of(&key, version) {
                        let vector = add.deletion_vector.as_ref().map(json_text);
                        found.push((add.path.clone(), vector));
                    }
                }
            }
            found
        })
    }

    /// Return for each of the files that were added at `version` whether it is still live.
    fn mask(
        &mut self,
        py: Python<'_>,
        version: i64,
        files: &Bound<'_, FileList>,
    ) -> PyResult<Vec<bool>> {
        let list = files.get().list();
        let work = || -> Result<Vec<bool>, Error> {
            let adds = list.adds()?;
            let live = adds.iter().map(|add| {
                let key = self.key_of(add);
                self.live.is_of(&key, version)
            });
            Ok(live.collect())
        };
        py.detach(work)
            .map_err(|error| core_error(py, &error, None))
    }

    /// The total size of the live files in bytes.
    #[getter]
    fn size(&self) -> i128 {
        self.live.size()
    }

    fn __len__(&self) -> usize {
        self.live.len()
    }
}

impl LiveFiles {
    fn key_of(&mut self, add: &AddFile) -> FileKey {
        self.key(&add.path, add.deletion_vector.as_ref())
    }

    fn key(&mut self, path: &str, deletion_vector: Option<&DeletionVector>) -> FileKey {
        let id = deletion_vector.map(DeletionVector::unique_id);
        self.names.key(path, id.as_deref())
    }
}
