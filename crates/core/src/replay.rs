//! Replay commits into the state of a table (Delta's action reconciliation).
use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexMap;

use crate::actions::{
    Action, AddFile, CommitInfo, DeletionVector, DomainMetadata, Metadata, Protocol, RemoveFile,
    SetTransaction,
};
use crate::error::Error;
use crate::keys::path_key;

type FileKey = [u8; 16];

/// The state of a table at a version.
#[derive(Clone, Debug, Default)]
pub struct TableState {
    pub version: Option<i64>,
    pub protocol: Option<Protocol>,
    pub metadata: Option<Metadata>,
    pub commit_info: Option<CommitInfo>,
    pub txns: IndexMap<String, SetTransaction>,
    pub domains: IndexMap<String, DomainMetadata>,
    files: Newest<AddFile>,
    tombstones: Newest<RemoveFile>,
}

/// The latest action for each logical file, with the order in which the actions were applied.
#[derive(Clone, Debug)]
struct Newest<T> {
    by_key: HashMap<FileKey, (u64, Arc<T>)>,
    next: u64,
}

impl<T> Default for Newest<T> {
    fn default() -> Self {
        Self {
            by_key: HashMap::new(),
            next: 0,
        }
    }
}

impl<T> Newest<T> {
    fn insert(&mut self, key: FileKey, action: &Arc<T>) {
        self.by_key.insert(key, (self.next, Arc::clone(action)));
        self.next += 1;
    }

    fn in_order(&self) -> Vec<Arc<T>> {
        let mut entries: Vec<_> = self.by_key.values().collect();
        entries.sort_unstable_by_key(|(order, _)| *order);
        entries.into_iter().map(|(_, a)| Arc::clone(a)).collect()
    }
}

impl TableState {
    /// Apply the commit of `version`, which must be the version after the current one.
    pub fn apply(&mut self, version: i64, actions: &[Action]) -> Result<(), Error> {
        if let Some(current) = self.version {
            if version != current + 1 {
                return Err(Error::Version {
                    expected: current + 1,
                    found: version,
                });
            }
        }
        self.version = Some(version);
        self.commit_info = None;
        // The order of actions in a commit has no meaning. Removes are applied first, so that a
        // file that the same commit removes and adds is live.
        for action in actions {
            if let Action::Remove(remove) = action {
                let key = file_key(&remove.path, remove.deletion_vector.as_ref());
                self.files.by_key.remove(&key);
                self.tombstones.insert(key, remove);
            }
        }
        for action in actions {
            self.apply_one(action);
        }
        Ok(())
    }

    fn apply_one(&mut self, action: &Action) {
        match action {
            Action::Add(add) => {
                let key = file_key(&add.path, add.deletion_vector.as_ref());
                self.tombstones.by_key.remove(&key);
                self.files.insert(key, add);
            }
            Action::Metadata(metadata) => self.metadata = Some((**metadata).clone()),
            Action::Protocol(protocol) => self.protocol = Some((**protocol).clone()),
            Action::CommitInfo(info) => self.commit_info = Some((**info).clone()),
            Action::Txn(txn) => {
                self.txns.insert(txn.app_id.clone(), (**txn).clone());
            }
            Action::DomainMetadata(domain) if domain.removed => {
                self.domains.shift_remove(&domain.domain);
            }
            Action::DomainMetadata(domain) => {
                let name = domain.domain.clone();
                self.domains.insert(name, (**domain).clone());
            }
            Action::Remove(_)
            | Action::Cdc(_)
            | Action::Sidecar(_)
            | Action::CheckpointMetadata(_)
            | Action::Unknown { .. } => {}
        }
    }

    pub fn num_files(&self) -> usize {
        self.files.by_key.len()
    }

    /// Return the live files, oldest first.
    pub fn files(&self) -> Vec<Arc<AddFile>> {
        self.files.in_order()
    }

    /// Return the removed logical files, oldest first.
    pub fn tombstones(&self) -> Vec<Arc<RemoveFile>> {
        self.tombstones.in_order()
    }
}

fn file_key(path: &str, deletion_vector: Option<&DeletionVector>) -> FileKey {
    let id = deletion_vector.map(DeletionVector::unique_id);
    path_key(path, id.as_deref())
}
