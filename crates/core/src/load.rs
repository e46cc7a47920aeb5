//! Prepare the files of many commits for the store: assign file ids, compute the data skipping
//! index, and find the version that removes each file.
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::ops::Range;
use std::sync::Arc;

use indexmap::IndexMap;

use crate::actions::{AddFile, DeletionVector, RemoveFile};
use crate::columns::partition_text;
use crate::index::{lay_out, FileInput, IndexColumn, StatsReader, StatsRow};
use crate::keys::{older_path_keys, PathKeys};
use crate::seen::{KeyHasher, SeenKeys};

pub type FileKey = [u8; 16];
type ByKey<T> = IndexMap<FileKey, T, BuildHasherDefault<KeyHasher>>;

/// The number of files that one row of the data skipping index describes.
const RANGE_SIZE: usize = 256;

/// A file with the version that adds it and the version that removes it, if any.
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

/// A `remove` action, unchanged.
#[derive(Debug)]
pub struct LoadedRemove {
    pub version: i64,
    pub ordinal: i64,
    pub remove: Arc<RemoveFile>,
}

/// The files that one commit removes and adds.
#[derive(Debug)]
struct Step {
    version: i64,
    removed: Vec<FileKey>,
    added: Range<usize>,
}

/// The files of consecutive commits.
#[derive(Debug)]
pub struct Load {
    reader: StatsReader,
    partition_columns: Vec<String>,
    next_file_id: i64,
    files: Vec<LoadedFile>,
    removes: Vec<LoadedRemove>,
    stats: Vec<StatsRow>,
    partitions: Partitions,
    steps: Vec<Step>,
    names: PathKeys,
    // Maps the keys that earlier releases used to the current keys of the same files.
    older: HashMap<FileKey, FileKey>,
    // Reused for every commit, since many commits are small.
    added: ByKey<Arc<AddFile>>,
    num_records: Vec<Option<i64>>,
}

impl Load {
    pub fn new(first_file_id: i64) -> Self {
        Self {
            reader: StatsReader::default(),
            partition_columns: Vec::new(),
            next_file_id: first_file_id,
            files: Vec::new(),
            removes: Vec::new(),
            stats: Vec::new(),
            partitions: Partitions::default(),
            steps: Vec::new(),
            names: PathKeys::default(),
            older: HashMap::new(),
            added: ByKey::default(),
            num_records: Vec::new(),
        }
    }

    /// Set the indexed columns and the partition columns for the following commits.
    pub fn set_columns(&mut self, columns: Vec<IndexColumn>, partition_columns: Vec<String>) {
        self.reader = StatsReader::new(columns);
        self.partition_columns = partition_columns;
        self.partitions.last = None;
    }

    /// Append the files of the next commit; the last action for a file wins.
    pub fn append(
        &mut self,
        version: i64,
        adds: impl IntoIterator<Item = Arc<AddFile>>,
        removes: impl IntoIterator<Item = Arc<RemoveFile>>,
    ) {
        let mut left = ByKey::default();
        for remove in removes {
            let key = self.file_key(&remove.path, remove.deletion_vector.as_ref());
            left.insert(key, remove);
        }
        let removed = left.keys().copied().collect();
        self.keep_removes(version, 0, left.into_values());
        let mut added = std::mem::take(&mut self.added);
        for add in adds {
            let key = self.file_key(&add.path, add.deletion_vector.as_ref());
            added.insert(key, add);
        }
        let first = self.files.len();
        self.files.reserve(added.len());
        if added.len() <= RANGE_SIZE {
            self.add_one_run(version, &mut added);
        } else {
            self.add_in_order(version, &mut added);
        }
        self.added = added;
        self.steps.push(Step {
            version,
            removed,
            added: first..self.files.len(),
        });
    }

    fn file_key(&mut self, path: &str, deletion_vector: Option<&DeletionVector>) -> FileKey {
        let id = deletion_vector.map(DeletionVector::unique_id);
        let key = self.names.key(path, id.as_deref());
        for older in older_path_keys(path, id.as_deref()) {
            self.older.insert(older, key);
        }
        key
    }

    /// Store `remove` actions without removing files, with ordinals that start at `ordinal`.
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

    /// Add files that fit into one range of the index. They keep their order.
    fn add_one_run(&mut self, version: i64, adds: &mut ByKey<Arc<AddFile>>) {
        let mut num_records = std::mem::take(&mut self.num_records);
        let stats = adds.values().map(|add| add.stats.as_deref());
        let rows = self
            .reader
            .one_run(stats, self.next_file_id, &mut num_records);
        self.stats.extend(rows);
        for ((key, add), num_records) in adds.drain(..).zip(&num_records) {
            let partition = self.partitions.position(&add, &self.partition_columns);
            self.push(version, key, add, partition, *num_records);
        }
        self.num_records = num_records;
    }

    fn add_in_order(&mut self, version: i64, adds: &mut ByKey<Arc<AddFile>>) {
        let partitions: Vec<usize> = adds
            .values()
            .map(|add| self.partitions.position(add, &self.partition_columns))
            .collect();
        // A commit uses only a few partitions, so sort only these.
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
            self.reader.columns(),
            self.next_file_id,
            RANGE_SIZE,
        );
        for at in layout.order {
            if let Some((key, add)) = adds.get_index(at) {
                let (key, add) = (*key, Arc::clone(add));
                self.push(version, key, add, partitions[at], layout.num_records[at]);
            }
        }
        self.stats.extend(layout.rows);
        // Release the memory of a large commit.
        *adds = ByKey::default();
    }

    fn push(
        &mut self,
        version: i64,
        key: FileKey,
        add: Arc<AddFile>,
        partition: usize,
        num_records: Option<i64>,
    ) {
        self.files.push(LoadedFile {
            file_id: self.next_file_id,
            add,
            key,
            partition,
            num_records,
            added_version: version,
            removed_version: None,
        });
        self.next_file_id += 1;
    }

    /// Return the sorted keys of the files that the commits add or remove; with `seen`, only those
    /// of files that may have been added before.
    pub fn keys(&self, seen: Option<&SeenKeys>) -> Vec<FileKey> {
        let removed = self.steps.iter().flat_map(|step| &step.removed);
        let added = self.files.iter().map(|file| &file.key);
        let wanted = |key: &&FileKey| seen.is_none_or(|seen| seen.may_have(key));
        let mut keys: Vec<FileKey> = removed.chain(added).filter(wanted).copied().collect();
        // `seen` contains only keys of the current form.
        if seen.is_none() {
            keys.extend(self.older.keys());
        }
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Find the files that the commits remove, given the files that are live before the first
    /// commit.
    ///
    /// Returns the ids of removed files that were added before these commits, with the versions
    /// that remove them. If a log removes a file that is not live, this has no effect.
    pub fn resolve(&mut self, live: impl IntoIterator<Item = (FileKey, i64)>) -> Vec<(i64, i64)> {
        let mut living: HashMap<FileKey, Life, BuildHasherDefault<KeyHasher>> = live
            .into_iter()
            .map(|(key, file_id)| {
                let key = self.older.get(&key).copied().unwrap_or(key);
                (key, Life::Stored(file_id))
            })
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

    /// Return the distinct partitions as JSON, in the order of first use.
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
    // The previous file is often in the same partition.
    last: Option<(Arc<AddFile>, usize)>,
}

impl Partitions {
    fn position(&mut self, add: &Arc<AddFile>, columns: &[String]) -> usize {
        let values = &add.partition_values;
        if let Some((last, position)) = &self.last {
            if values.iter().eq(&last.partition_values) {
                return *position;
            }
        }
        let position = self.position_of(partition_text(values, columns));
        self.last = Some((Arc::clone(add), position));
        position
    }

    fn position_of(&mut self, text: String) -> usize {
        if let Some(position) = self.positions.get(&text) {
            return *position;
        }
        let position = self.texts.len();
        self.texts.push(text.clone());
        self.positions.insert(text, position);
        position
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actions::Action;
    use crate::codec::parse;
    use crate::keys::path_key;

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
    fn a_file_is_removed_by_the_commit_that_removes_or_adds_it_again() {
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
    fn a_remove_of_a_file_that_is_not_live_is_kept_and_has_no_effect() {
        let mut load = Load::new(1);
        append(
            &mut load,
            1,
            r#"{"remove":{"path":"gone","dataChange":false}}"#,
        );
        assert!(load.resolve([]).is_empty());
        assert_eq!(load.removes().len(), 1);
    }

    #[test]
    fn only_files_that_may_have_been_added_before_are_looked_up() {
        let mut before = Load::new(1);
        append(&mut before, 0, &add("a"));
        let mut seen = SeenKeys::default();
        seen.add(before.files().iter().map(|file| file.key));
        let mut load = Load::new(2);
        append(&mut load, 1, &add("b"));
        append(&mut load, 2, r#"{"remove":{"path":"a","dataChange":true}}"#);
        append(&mut load, 3, r#"{"remove":{"path":"b","dataChange":true}}"#);
        assert_eq!(load.keys(Some(&seen)), [path_key("a", None)]);
        assert_eq!(load.keys(None).len(), 2);
    }
}
