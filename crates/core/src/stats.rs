//! Parse the JSON statistics of a file, only for the requested columns.
use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::json::Json;
use crate::keys::{Key, KeyType};

/// The requested columns, as a tree over their physical paths.
#[derive(Clone, Debug, Default)]
pub struct StatsColumns {
    root: Node,
    len: usize,
}

#[derive(Clone, Debug, Default)]
struct Node {
    name: String,
    slot: Option<usize>,
    children: Vec<Node>,
}

/// The statistics of one file for the requested columns, borrowed from the JSON string.
#[derive(Debug, Default)]
pub struct FileStats<'a> {
    pub num_records: Option<i64>,
    min: Vec<Option<&'a RawValue>>,
    max: Vec<Option<&'a RawValue>>,
    null_count: Vec<Option<&'a RawValue>>,
}

/// One leaf value of the statistics: the value as a string, and whether it was a JSON string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatValue<'a> {
    pub text: Cow<'a, str>,
    pub quoted: bool,
}

impl StatsColumns {
    /// Request one more column and return its slot; the same path gets the same slot.
    pub fn add<S: AsRef<str>>(&mut self, path: &[S]) -> usize {
        let mut node = &mut self.root;
        for name in path {
            let name = name.as_ref();
            let found = node.children.iter().position(|child| child.name == name);
            let index = found.unwrap_or_else(|| {
                node.children.push(Node {
                    name: name.to_owned(),
                    ..Node::default()
                });
                node.children.len() - 1
            });
            node = &mut node.children[index];
        }
        let next = self.len;
        let slot = *node.slot.get_or_insert(next);
        self.len = self.len.max(slot + 1);
        slot
    }

    /// Parse the statistics of the requested columns. A string that is not a JSON object is
    /// ignored.
    pub fn read<'a>(&self, stats: Option<&'a str>) -> FileStats<'a> {
        let mut found = FileStats::default();
        self.read_into(stats, &mut found);
        found
    }

    /// Parse like `read` into an existing value, which saves allocations.
    pub fn read_into<'a>(&self, stats: Option<&'a str>, found: &mut FileStats<'a>) {
        found.clear(self.len);
        let Some(text) = stats.filter(|text| !text.is_empty()) else {
            return;
        };
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let read = TopLevel {
            columns: self,
            out: found,
        }
        .deserialize(&mut deserializer);
        if read.and_then(|()| deserializer.end()).is_err() {
            found.clear(self.len);
        }
    }
}

impl<'a> FileStats<'a> {
    fn clear(&mut self, columns: usize) {
        self.num_records = None;
        for part in [&mut self.min, &mut self.max, &mut self.null_count] {
            part.clear();
            part.resize(columns, None);
        }
    }

    pub fn null_count(&self, slot: usize) -> Option<i64> {
        self.null_count[slot].and_then(|raw| raw.get().parse().ok())
    }

    pub fn min(&self, slot: usize) -> Option<StatValue<'a>> {
        self.min[slot].and_then(StatValue::of)
    }

    pub fn max(&self, slot: usize) -> Option<StatValue<'a>> {
        self.max[slot].and_then(StatValue::of)
    }

    /// Return a key at or below every value of the column in the file.
    pub fn low(&self, slot: usize, key_type: KeyType) -> Option<Key> {
        let value = self.min(slot)?;
        key_type.stat_low(&value.text, value.quoted)
    }

    /// Return a key at or above every value of the column in the file except NaN.
    pub fn high(&self, slot: usize, key_type: KeyType) -> Option<Key> {
        let value = self.max(slot)?;
        key_type.stat_high(&value.text, value.quoted)
    }

    /// Return true if the column is null in every row, or if there are no rows.
    pub fn all_null(&self, slot: usize) -> bool {
        match self.num_records {
            Some(0) => true,
            Some(rows) => self.null_count(slot) == Some(rows),
            None => false,
        }
    }
}

impl<'a> StatValue<'a> {
    fn of(raw: &'a RawValue) -> Option<Self> {
        let text = raw.get();
        match text.as_bytes().first()? {
            b'"' => Some(Self {
                text: unescape(text)?,
                quoted: true,
            }),
            b'n' | b'{' | b'[' => None,
            _ => Some(Self {
                text: Cow::Borrowed(text),
                quoted: false,
            }),
        }
    }
}

/// Return the statistics with `tightBounds` set to false, and all other values unchanged.
pub fn with_wide_bounds(stats: &str) -> Option<String> {
    let mut found = serde_json::from_str::<Json>(stats).ok()?.into_object()?;
    found.insert("tightBounds".to_owned(), false.into());
    serde_json::to_string(&found).ok()
}

/// Return `numRecords` of the statistics.
pub fn num_records(stats: Option<&str>) -> Option<i64> {
    StatsColumns::default().read(stats).num_records
}

fn unescape(quoted: &str) -> Option<Cow<'_, str>> {
    let inner = &quoted[1..quoted.len() - 1];
    if inner.contains('\\') {
        serde_json::from_str::<String>(quoted).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

struct TopLevel<'q, 'out, 'a> {
    columns: &'q StatsColumns,
    out: &'out mut FileStats<'a>,
}

impl<'a> DeserializeSeed<'a> for TopLevel<'_, '_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'a> Visitor<'a> for TopLevel<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a statistics object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let root = &self.columns.root;
        while let Some(key) = map.next_key_seed(TopLevelKey)? {
            let out = match key {
                Part::NumRecords => {
                    let raw: &RawValue = map.next_value()?;
                    self.out.num_records = raw.get().parse().ok();
                    continue;
                }
                Part::Other => {
                    map.next_value::<IgnoredAny>()?;
                    continue;
                }
                Part::Min => &mut self.out.min,
                Part::Max => &mut self.out.max,
                Part::NullCount => &mut self.out.null_count,
            };
            map.next_value_seed(Collect { node: root, out })?;
        }
        Ok(())
    }
}

enum Part {
    NumRecords,
    Min,
    Max,
    NullCount,
    Other,
}

struct TopLevelKey;

impl<'a> DeserializeSeed<'a> for TopLevelKey {
    type Value = Part;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Part, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for TopLevelKey {
    type Value = Part;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Part, E> {
        Ok(match key {
            "numRecords" => Part::NumRecords,
            "minValues" => Part::Min,
            "maxValues" => Part::Max,
            "nullCount" => Part::NullCount,
            _ => Part::Other,
        })
    }
}

/// Collects the requested columns of `minValues`, `maxValues` or `nullCount`.
struct Collect<'q, 'out, 'a> {
    node: &'q Node,
    out: &'out mut [Option<&'a RawValue>],
}

impl<'a> DeserializeSeed<'a> for Collect<'_, '_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Collect<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("statistics by column")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(child) = map.next_key_seed(ChildOf(self.node))? {
            match child {
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
                Some(Node {
                    slot: Some(slot), ..
                }) => self.out[*slot] = Some(map.next_value()?),
                Some(node) => map.next_value_seed(Collect {
                    node,
                    out: &mut *self.out,
                })?,
            }
        }
        Ok(())
    }

    // The statistics of a struct column may be null or not an object. Such values are ignored.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}

struct ChildOf<'q>(&'q Node);

impl<'a, 'q> DeserializeSeed<'a> for ChildOf<'q> {
    type Value = Option<&'q Node>;

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'q> Visitor<'_> for ChildOf<'q> {
    type Value = Option<&'q Node>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a column name")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.children.iter().find(|child| child.name == key))
    }
}
