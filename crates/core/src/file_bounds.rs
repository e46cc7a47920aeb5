//! The bounds of a column for each file in a range of the data skipping index, packed into bytes.
//!
//! The bounds are keys, cut to the bytes that differ between the files. Files found with cut bounds
//! include all files that the keys themselves would find.
//!
//! The bytes are: the width of a bound, the length of the common prefix of all bounds, this prefix,
//! the lower bounds of all files, and the upper bounds of all files.
use crate::keys::Key;

/// The longest stored part of a bound, in bytes. With the bounds of 256 files, a row stays below the
/// 2,000 bytes above which PostgreSQL compresses it and moves it to another table.
const MAX_WIDTH: usize = 3;

/// What the statistics of a file say about the values of a column.
#[derive(Clone, Debug)]
pub enum Extent {
    Unknown,
    /// There are only nulls, or no rows.
    Empty,
    Range(Key, Key),
}

/// Pack the bounds of the files of a range; `None` if they would not exclude any file.
pub fn pack<'a>(files: impl IntoIterator<Item = &'a Extent> + Clone) -> Option<Vec<u8>> {
    let keys = || {
        let ranges = files.clone().into_iter().filter_map(|extent| match extent {
            Extent::Range(low, high) => Some([low.as_slice(), high.as_slice()]),
            Extent::Unknown | Extent::Empty => None,
        });
        ranges.flatten()
    };
    let (lowest, highest) = (keys().min()?, keys().max()?);
    let equal = lowest.iter().zip(highest).take_while(|(a, b)| a == b);
    let prefix = &lowest[..equal.count().min(usize::from(u8::MAX))];
    let longest = keys().map(<[u8]>::len).max()?;
    let width = (longest - prefix.len()).min(MAX_WIDTH);
    if width == 0 || files.clone().into_iter().nth(1).is_none() {
        return None;
    }
    let mut packed = vec![width as u8, prefix.len() as u8];
    packed.extend_from_slice(prefix);
    let mut add = |key: Option<&Key>, missing: u8| match key {
        Some(key) => {
            let rest = key[prefix.len()..].iter().copied();
            packed.extend(rest.chain(std::iter::repeat(0)).take(width));
        }
        None => packed.extend(std::iter::repeat_n(missing, width)),
    };
    for extent in files.clone() {
        match extent {
            Extent::Range(low, _) => add(Some(low), 0),
            Extent::Unknown => add(None, 0),
            Extent::Empty => add(None, 0xff),
        }
    }
    for extent in files {
        match extent {
            Extent::Range(_, high) => add(Some(high), 0),
            Extent::Unknown => add(None, 0xff),
            Extent::Empty => add(None, 0),
        }
    }
    Some(packed)
}

/// Add the files of `first..=last` that may have a value from `low` to `high`, as ranges of ids.
///
/// Without packed bounds, and with bounds of another number of files, these are all files.
pub fn find(
    packed: Option<&[u8]>,
    (first, last): (i64, i64),
    low: &[u8],
    high: &[u8],
    found: &mut Vec<(i64, i64)>,
) {
    let Some((lows, highs, low, high)) = packed.and_then(|packed| {
        let (&[width, prefix], rest) = packed.split_first_chunk()?;
        let (prefix, bounds) = rest.split_at_checked(usize::from(prefix))?;
        let width = usize::from(width);
        let (lows, highs) = bounds.split_at(bounds.len() / 2);
        let files = usize::try_from(last - first + 1).ok()?;
        let is_whole = width > 0 && lows.len() == files * width && lows.len() == highs.len();
        let cut = |key| cut(key, prefix, width);
        is_whole.then(|| (lows.chunks(width), highs.chunks(width), cut(low), cut(high)))
    }) else {
        add(found, first, last);
        return;
    };
    for (file, (min, max)) in (first..).zip(lows.zip(highs)) {
        if min <= &*high && max >= &*low {
            add(found, file, file);
        }
    }
}

fn add(found: &mut Vec<(i64, i64)>, first: i64, last: i64) {
    match found.last_mut() {
        Some(before) if before.1 + 1 == first => before.1 = last,
        _ => found.push((first, last)),
    }
}

/// Return the part of a key that is compared. Keys in order have parts in order, or equal parts.
fn cut(key: &[u8], prefix: &[u8], width: usize) -> Vec<u8> {
    let mut part = match key.strip_prefix(prefix) {
        Some(rest) => rest.to_vec(),
        None if key < prefix => Vec::new(),
        None => vec![0xff; width],
    };
    part.resize(width, 0);
    part
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key() -> impl Strategy<Value = Key> {
        // Few different bytes, so that keys share prefixes and are often equal.
        let byte = prop_oneof![Just(0), Just(1), Just(0x80), Just(0xff), any::<u8>()];
        prop::collection::vec(byte, 0..14).prop_map(|mut key| {
            key.insert(0, 1);
            key
        })
    }

    fn extent() -> impl Strategy<Value = Extent> {
        prop_oneof![
            1 => Just(Extent::Unknown),
            1 => Just(Extent::Empty),
            8 => (key(), key()).prop_map(|(a, b)| Extent::Range(a.clone().min(b.clone()), a.max(b))),
        ]
    }

    fn bound() -> impl Strategy<Value = Key> {
        prop_oneof![Just(Vec::new()), Just(vec![0xff]), key()]
    }

    proptest! {
        #[test]
        fn every_file_that_overlaps_the_interval_is_found(
            files in prop::collection::vec(extent(), 1..40),
            one in bound(),
            other in bound(),
        ) {
            let (low, high) = (one.clone().min(other.clone()), one.max(other));
            let mut found = Vec::new();
            let last = 100 + files.len() as i64 - 1;
            find(pack(&files).as_deref(), (100, last), &low, &high, &mut found);
            for (id, file) in (100..).zip(&files) {
                let overlaps = match file {
                    Extent::Unknown => true,
                    Extent::Empty => false,
                    Extent::Range(min, max) => *min <= high && *max >= low,
                };
                let is_found = found.iter().any(|(first, last)| (*first..=*last).contains(&id));
                prop_assert!(is_found || !overlaps, "file {id} of {files:?} is not in {found:?}");
            }
            prop_assert!(found.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
        }

        #[test]
        fn bounds_that_cannot_be_read_exclude_no_file(packed: Vec<u8>, files in 1..5_i64) {
            let mut found = Vec::new();
            let width = packed.first().map_or(0, |width| i64::from(*width));
            let prefix = packed.get(1).map_or(0, |length| i64::from(*length));
            find(Some(&packed), (1, files), &[1], &[2], &mut found);
            if packed.len() as i64 != 2 + prefix + 2 * width * files || width == 0 {
                prop_assert_eq!(found, [(1, files)]);
            }
        }
    }

    #[test]
    fn files_outside_the_interval_are_not_found() {
        let file = |low: u8, high: u8| Extent::Range(vec![1, 7, low], vec![1, 7, high, 3]);
        let files = [
            file(1, 2),
            file(2, 5),
            Extent::Unknown,
            Extent::Empty,
            file(6, 9),
            file(4, 4),
        ];
        let packed = pack(&files);
        let between = |low: &[u8], high: &[u8]| {
            let mut found = Vec::new();
            find(packed.as_deref(), (10, 15), low, high, &mut found);
            found
        };
        assert_eq!(between(&[1, 7, 3], &[1, 7, 4]), [(11, 12), (15, 15)]);
        assert_eq!(between(&[1, 7, 10], &[1, 8]), [(12, 12)]);
        assert_eq!(between(&[1, 2], &[1, 7, 1]), [(10, 10), (12, 12)]);
    }
}
