//! Evaluate a compiled predicate for one file, with its statistics and partition values.
use std::cell::OnceCell;

use serde_json::Value;

use crate::json::Json;
use crate::keys::{Bounds, Key, KeyType};
use crate::predicate::{Expr, Predicate, Test};
use crate::stats::FileStats;

/// The values of a file's partition columns that a predicate uses.
#[derive(Clone, Debug)]
pub struct PartitionFacts(Vec<PartitionValue>);

#[derive(Clone, Debug)]
enum PartitionValue {
    Unknown,
    Null,
    Text(String),
}

/// What is known about one column in one file.
struct Facts<'a> {
    no_nulls: bool,
    all_null: bool,
    /// Whether the maximum may ignore NaN, which is larger than every other value.
    max_ignores_nan: bool,
    low: &'a dyn Fn() -> Option<Key>,
    high: &'a dyn Fn() -> Option<Key>,
}

/// The known minimum and maximum of a column in a file.
struct Extent {
    low: Option<Key>,
    high: Option<Key>,
}

impl Facts<'_> {
    fn extent(&self) -> Extent {
        Extent {
            low: (self.low)(),
            high: (self.high)(),
        }
    }
}

impl Extent {
    fn overlaps(&self, low: &Key, high: &Key) -> bool {
        self.low.as_ref().is_none_or(|min| min <= high)
            && self.high.as_ref().is_none_or(|max| max >= low)
    }
}

impl Predicate {
    /// Parse the partition values of a file; files of the same partition share the result.
    pub fn partition_facts(&self, partition_json: Option<&str>) -> PartitionFacts {
        let object = match partition_json.map(serde_json::from_str) {
            Some(Ok(Json(Value::Object(object)))) => object,
            _ => Default::default(),
        };
        let value = |name: &String| match object.get(name) {
            // Delta writes a null partition value as null or as an empty string.
            Some(Value::Null) => PartitionValue::Null,
            Some(Value::String(text)) if text.is_empty() => PartitionValue::Null,
            Some(Value::String(text)) => PartitionValue::Text(text.clone()),
            _ => PartitionValue::Unknown,
        };
        PartitionFacts(self.partitions.iter().map(value).collect())
    }

    /// Return true if the predicate uses partition columns.
    pub fn reads_partitions(&self) -> bool {
        !self.partitions.is_empty()
    }

    /// Return false only if no row of the file can make the predicate TRUE.
    pub fn may_match(&self, stats: Option<&str>, partition: &PartitionFacts) -> bool {
        let file = File {
            predicate: self,
            stats_text: stats,
            stats: OnceCell::new(),
            partition,
        };
        file.may_match(&self.root)
    }
}

struct File<'a> {
    predicate: &'a Predicate,
    stats_text: Option<&'a str>,
    stats: OnceCell<FileStats<'a>>,
    partition: &'a PartitionFacts,
}

impl<'a> File<'a> {
    fn may_match(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Constant(value) => *value,
            Expr::And(args) => args.iter().all(|arg| self.may_match(arg)),
            Expr::Or(args) => args.iter().any(|arg| self.may_match(arg)),
            Expr::Column {
                slot,
                key_type,
                test,
            } => self.column_may_match(*slot, *key_type, test),
            Expr::Partition {
                slot,
                key_type,
                test,
            } => self.partition_may_match(*slot, *key_type, test),
        }
    }

    fn stats(&self) -> &FileStats<'a> {
        self.stats
            .get_or_init(|| self.predicate.columns.read(self.stats_text))
    }

    fn column_may_match(&self, slot: usize, key_type: Option<KeyType>, test: &Test) -> bool {
        let stats = self.stats();
        test.may_match(&Facts {
            no_nulls: stats.null_count(slot) == Some(0),
            all_null: stats.all_null(slot),
            max_ignores_nan: key_type.is_some_and(KeyType::has_nan),
            low: &|| stats.low(slot, key_type?),
            high: &|| stats.high(slot, key_type?),
        })
    }

    fn partition_may_match(&self, slot: usize, key_type: Option<KeyType>, test: &Test) -> bool {
        let bounds = match &self.partition.0[slot] {
            PartitionValue::Unknown => return true,
            PartitionValue::Null => None,
            PartitionValue::Text(text) => Some(key_type.and_then(|t| t.partition(text))),
        };
        let end = |pick: fn(Bounds) -> Key| bounds.clone().flatten().map(pick);
        test.may_match(&Facts {
            no_nulls: bounds.is_some(),
            all_null: bounds.is_none(),
            max_ignores_nan: false,
            low: &|| end(|bounds| bounds.low),
            high: &|| end(|bounds| bounds.high),
        })
    }
}

impl Test {
    fn may_match(&self, facts: &Facts<'_>) -> bool {
        if let Self::IsNull = self {
            return !facts.no_nulls;
        }
        if facts.all_null {
            return false;
        }
        let reaches = |low: &Key| (facts.high)().is_none_or(|high| high >= *low);
        match self {
            Self::IsNull | Self::IsNotNull | Self::Undecided => true,
            Self::Equal(literal) => facts.extent().overlaps(&literal.low, &literal.high),
            Self::Between(low, high) => facts.extent().overlaps(&low.low, &high.high),
            Self::In(literals) => {
                let extent = facts.extent();
                literals.iter().any(|l| extent.overlaps(&l.low, &l.high))
            }
            Self::Less(literal) => (facts.low)().is_none_or(|min| min < literal.high),
            Self::LessOrEqual(literal) => (facts.low)().is_none_or(|min| min <= literal.high),
            Self::Greater(_) | Self::GreaterOrEqual(_) | Self::NotEqual(_)
                if facts.max_ignores_nan =>
            {
                true
            }
            Self::Greater(literal) => (facts.high)().is_none_or(|max| max > literal.low),
            Self::GreaterOrEqual(literal) => reaches(&literal.low),
            Self::NotEqual(literal) => {
                let only = literal.low == literal.high
                    && (facts.low)().as_ref() == Some(&literal.low)
                    && (facts.high)().as_ref() == Some(&literal.low);
                !only
            }
            Self::StartsWith(prefix) => {
                let starts_by = |min: Key| min[..min.len().min(prefix.len())] <= **prefix;
                (facts.low)().is_none_or(starts_by) && reaches(prefix)
            }
        }
    }
}
