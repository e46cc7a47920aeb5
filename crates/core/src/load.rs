//! The files of many commits on their way into the store: numbered, laid out for the skipping
//! index, and ended by one another.
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use indexmap::IndexMap;

use crate::actions::{AddFile, DeletionVector, RemoveFile, StringMap};
use crate::columns::partition_text;
use crate::index::{lay_out, FileInput, IndexColumn, StatsRow};
use crate::keys::path_key;

pub type FileKey = [u8; 16];

/// Files that one row of the skipping index describes.
const RANGE_SIZE: usize = 256;

/// One life of a file.
#[derive(Debug)]
pub struct LoadedFile {
    pub file_id: i64,
    pub add: Arc<AddFile>,
    pub key: FileKey,
    /// Position in the list of distinct partitions.
    pub partition: usize,
    pub num_records: Option<i64>,
    pub added_version: i64,
    pub removed_version: Option<i64>,
}

/// A remove action, kept as it was written.
#[derive(Debug)]
pub struct LoadedRemove {
    pub version: i64,
    pub ordinal: i64,
    pub remove: Arc<RemoveFile>,
}

/// What one commit ended and began.
#[derive(Debug)]
struct Step {
    version: i64,
    removed: Vec<FileKey>,
    added: Range<usize>,
}

/// A run of commits.
#[derive(Debug)]
pub struct Load {
    columns: Vec<IndexColumn>,
    partition_columns: Vec<String>,
    next_file_id: i64,
    files: Vec<LoadedFile>,
    removes: Vec<LoadedRemove>,
    stats: Vec<StatsRow>,
    partitions: Partitions,
    steps: Vec<Step>,
}

impl Load {
    pub fn new(first_file_id: i64) -> Self {
        Self {
            columns: Vec::new(),
            partition_columns: Vec::new(),
            next_file_id: first_file_id,
            files: Vec::new(),
            removes: Vec::new(),
            stats: Vec::new(),
            partitions: Partitions::default(),
            steps: Vec::new(),
        }
    }

    /// Say what is indexed, and how the table is partitioned, from the next commit on.
    pub fn set_columns(&mut self, columns: Vec<IndexColumn>, partition_columns: Vec<String>) {
        self.columns = columns;
        self.partition_columns = partition_columns;
    }

    /// Take the files of the next commit; what it says twice of a file, it says last.
    pub fn append(
        &mut self,
        version: i64,
        adds: impl IntoIterator<Item = Arc<AddFile>>,
        removes: impl IntoIterator<Item = Arc<RemoveFile>>,
    ) {
        let mut left = IndexMap::new();
        for remove in removes {
            let key = file_key(&remove.path, remove.deletion_vector.as_ref());
            left.insert(key, remove);
        }
        let removed = left.keys().copied().collect();
        self.keep_removes(version, 0, left.into_values());
        let mut told = IndexMap::new();
        for add in adds {
            let key = file_key(&add.path, add.deletion_vector.as_ref());
            told.insert(key, add);
        }
        let first = self.files.len();
        self.add_files(version, told);
        self.steps.push(Step {
            version,
            removed,
            added: first..self.files.len(),
        });
    }

    /// Keep remove actions that end nothing, numbered from `ordinal` on.
    pub fn keep_removes(
        &mut self,
        version: i64,
        ordinal: i64,
        removes: impl IntoIterator<Item = Arc<RemoveFile>>,
    ) {
        let numbered = (ordinal..).zip(removes);
        self.removes
            .extend(numbered.map(|(ordinal, remove)| LoadedRemove {
                version,
                ordinal,
                remove,
            }));
    }

    fn add_files(&mut self, version: i64, adds: IndexMap<FileKey, Arc<AddFile>>) {
        let partitions: Vec<usize> = adds
            .values()
            .map(|add| {
                self.partitions
                    .position(&add.partition_values, &self.partition_columns)
            })
            .collect();
        // Few of the partitions of all commits are those of one: only they are put in order.
        let mut here = partitions.clone();
        here.sort_unstable();
        here.dedup();
        let texts: Vec<String> = here
            .iter()
            .map(|&partition| self.partitions.texts[partition].clone())
            .collect();
        let inputs: Vec<FileInput<'_>> = adds
            .values()
            .zip(&partitions)
            .map(|(add, partition)| FileInput {
                partition: here.partition_point(|each| each < partition),
                stats: add.stats.as_deref(),
            })
            .collect();
        let layout = lay_out(
            &inputs,
            &texts,
            &self.columns,
            self.next_file_id,
            RANGE_SIZE,
        );
        self.files.reserve(adds.len());
        for at in layout.order {
            let Some((key, add)) = adds.get_index(at) else {
                continue;
            };
            self.files.push(LoadedFile {
                file_id: self.next_file_id,
                add: Arc::clone(add),
                key: *key,
                partition: partitions[at],
                num_records: layout.num_records[at],
                added_version: version,
                removed_version: None,
            });
            self.next_file_id += 1;
        }
        self.stats.extend(layout.rows);
    }

    /// The names of all files that the commits add or remove, in the order of an index.
    pub fn keys(&self) -> Vec<FileKey> {
        let removed = self.steps.iter().flat_map(|step| &step.removed);
        let added = self.files.iter().map(|file| &file.key);
        let mut keys: Vec<FileKey> = removed.chain(added).copied().collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Find out which files end, given those that live before the first commit.
    ///
    /// Returns the ids of files of earlier commits with the versions that end them. A log may
    /// remove a file that is not live: there is nothing to end then.
    pub fn resolve(&mut self, live: impl IntoIterator<Item = (FileKey, i64)>) -> Vec<(i64, i64)> {
        let mut living: HashMap<FileKey, Life> = live
            .into_iter()
            .map(|(key, file_id)| (key, Life::Stored(file_id)))
            .collect();
        let mut ended = Vec::new();
        for step in &self.steps {
            let mut end = |life: Life, files: &mut [LoadedFile]| match life {
                Life::Stored(file_id) => ended.push((file_id, step.version)),
                Life::Here(position) => files[position].removed_version = Some(step.version),
            };
            for key in &step.removed {
                if let Some(life) = living.remove(key) {
                    end(life, &mut self.files);
                }
            }
            for position in step.added.clone() {
                let key = self.files[position].key;
                if let Some(life) = living.insert(key, Life::Here(position)) {
                    end(life, &mut self.files);
                }
            }
        }
        ended
    }

    pub fn next_file_id(&self) -> i64 {
        self.next_file_id
    }

    pub fn partition_columns(&self) -> &[String] {
        &self.partition_columns
    }

    /// The distinct partitions, as JSON, in the order of first use.
    pub fn partitions(&self) -> &[String] {
        &self.partitions.texts
    }

    pub fn files(&self) -> &[LoadedFile] {
        &self.files
    }

    pub fn removes(&self) -> &[LoadedRemove] {
        &self.removes
    }

    pub fn stats(&self) -> &[StatsRow] {
        &self.stats
    }
}

enum Life {
    Stored(i64),
    Here(usize),
}

#[derive(Debug, Default)]
struct Partitions {
    texts: Vec<String>,
    positions: HashMap<String, usize>,
}

impl Partitions {
    fn position(&mut self, values: &StringMap, columns: &[String]) -> usize {
        let text = partition_text(values, columns);
        if let Some(position) = self.positions.get(&text) {
            return *position;
        }
        let position = self.texts.len();
        self.texts.push(text.clone());
        self.positions.insert(text, position);
        position
    }
}

fn file_key(path: &str, deletion_vector: Option<&DeletionVector>) -> FileKey {
    let id = deletion_vector.map(DeletionVector::unique_id);
    path_key(path, id.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actions::Action;
    use crate::codec::parse;

    fn append(load: &mut Load, version: i64, lines: &str) {
        let actions = parse(lines.as_bytes()).expect("actions");
        let adds = actions.iter().filter_map(|action| match action {
            Action::Add(add) => Some(Arc::clone(add)),
            _ => None,
        });
        let removes = actions.iter().filter_map(|action| match action {
            Action::Remove(remove) => Some(Arc::clone(remove)),
            _ => None,
        });
        load.append(version, adds, removes);
    }

    fn add(path: &str) -> String {
        format!(
            r#"{{"add":{{"path":"{path}","partitionValues":{{}},"size":1,"modificationTime":1,"dataChange":true}}}}"#
        )
    }

    #[test]
    fn a_file_ends_in_the_commit_that_removes_or_restates_it() {
        let mut load = Load::new(10);
        append(&mut load, 4, &add("a"));
        append(&mut load, 5, r#"{"remove":{"path":"a","dataChange":true}}"#);
        append(&mut load, 6, &add("a"));
        append(&mut load, 7, &add("a"));
        append(
            &mut load,
            8,
            r#"{"remove":{"path":"stored","dataChange":true}}"#,
        );
        let ended = load.resolve([(path_key("stored", None), 3)]);
        assert_eq!(ended, [(3, 8)]);
        let lives: Vec<_> = load
            .files()
            .iter()
            .map(|file| (file.file_id, file.added_version, file.removed_version))
            .collect();
        assert_eq!(lives, [(10, 4, Some(5)), (11, 6, Some(7)), (12, 7, None)]);
    }

    #[test]
    fn a_remove_of_what_is_not_live_is_kept_and_ends_nothing() {
        let mut load = Load::new(1);
        append(
            &mut load,
            1,
            r#"{"remove":{"path":"gone","dataChange":false}}"#,
        );
        assert!(load.resolve([]).is_empty());
        assert_eq!(load.removes().len(), 1);
    }
}
