//! Sets of file keys in memory, which save lookups in the database.
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use crate::load::FileKey;

/// The maximum number of keys in memory. Above it, every file is treated as possibly added before.
const LIMIT: usize = 3_500_000;

/// Hashes of the keys of all files that were ever added; false positives are rare.
#[derive(Debug, Default)]
pub struct SeenKeys {
    hashes: HashSet<u64, BuildHasherDefault<KeyHasher>>,
    is_full: bool,
}

impl SeenKeys {
    pub fn add(&mut self, keys: impl IntoIterator<Item = FileKey>) {
        if self.is_full {
            return;
        }
        self.hashes.extend(keys.into_iter().map(|key| short(&key)));
        if self.hashes.len() > LIMIT {
            *self = Self {
                is_full: true,
                ..Self::default()
            };
        }
    }

    /// Return false only for a file that was never added.
    pub fn may_have(&self, key: &FileKey) -> bool {
        self.is_full || self.hashes.contains(&short(key))
    }
}

/// The live files after some commits: for each file a hash, the version that added it, and its
/// size.
///
/// Millions of them fit in memory. Other fields of the files are read again when needed.
#[derive(Debug, Default)]
pub struct LiveKeys {
    files: HashMap<u64, (i64, i64), BuildHasherDefault<KeyHasher>>,
}

impl LiveKeys {
    /// Record a file that `version` adds; it may be live already.
    pub fn add(&mut self, key: &FileKey, version: i64, size: i64) {
        self.files.insert(short(key), (version, size));
    }

    pub fn remove(&mut self, key: &FileKey) {
        self.files.remove(&short(key));
    }

    /// Return true if a file is live and `version` is the last version that added it.
    pub fn is_of(&self, key: &FileKey, version: i64) -> bool {
        let found = self.files.get(&short(key));
        found.is_some_and(|(added, _)| *added == version)
    }

    pub fn len(&self) -> usize {
        self.files.len()
    }

    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Return the total size in bytes, in 128 bits because the sum may not fit in 64.
    pub fn size(&self) -> i128 {
        self.files.values().map(|(_, size)| i128::from(*size)).sum()
    }
}

/// Return the last eight bytes of a key. They depend on the whole path, not only on the folder.
fn short(key: &FileKey) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&key[8..]);
    u64::from_le_bytes(bytes)
}

/// Uses file keys as hash values, because they are hashes already.
#[derive(Debug, Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.rchunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.0 ^= u64::from_le_bytes(word);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 ^= value;
    }

    /// Ignore the length, because all keys have the same length.
    fn write_usize(&mut self, _: usize) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::path_key;

    #[test]
    fn only_added_files_are_reported_as_seen() {
        let mut seen = SeenKeys::default();
        seen.add([path_key("p=1/a", None)]);
        assert!(seen.may_have(&path_key("p=1/a", None)));
        assert!(!seen.may_have(&path_key("p=1/b", None)));
        assert!(!seen.may_have(&path_key("p=1/a", Some("vector"))));
    }

    #[test]
    fn above_the_limit_every_file_is_reported_as_seen() {
        let mut seen = SeenKeys::default();
        let key = |number: u64| {
            let mut key = FileKey::default();
            key[8..].copy_from_slice(&number.to_le_bytes());
            key
        };
        seen.add((0..=LIMIT as u64).map(key));
        assert!(seen.may_have(&path_key("never added", None)));
    }

    #[test]
    fn a_file_is_live_from_its_last_add_until_it_is_removed() {
        let (a, b) = (path_key("a", None), path_key("b", None));
        let mut live = LiveKeys::default();
        live.add(&a, 0, i64::MAX);
        live.add(&b, 0, i64::MAX);
        live.add(&b, 2, 5);
        assert!(live.is_of(&a, 0) && live.is_of(&b, 2) && !live.is_of(&b, 0));
        live.add(&path_key("c", None), 2, i64::MAX);
        assert_eq!((live.len(), live.size()), (3, i128::from(i64::MAX) * 2 + 5));
        live.remove(&a);
        assert!(!live.is_of(&a, 0));
    }
}
