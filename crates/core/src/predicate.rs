//! Predicates for data skipping, compiled from JSON.
//!
//! Python sends the predicate tree with every NOT already pushed down to the leaves. A file is
//! skipped only if it is certain that none of its rows makes the predicate TRUE.
use serde::Deserialize;
use serde_json::Value;

use crate::error::Error;
use crate::keys::{Bounds, Key, KeyType};
use crate::stats::StatsColumns;

/// A compiled predicate.
#[derive(Clone, Debug)]
pub struct Predicate {
    pub(crate) root: Expr,
    pub(crate) columns: StatsColumns,
    pub(crate) partitions: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) enum Expr {
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Constant(bool),
    Column {
        slot: usize,
        key_type: Option<KeyType>,
        test: Test,
    },
    Partition {
        slot: usize,
        key_type: Option<KeyType>,
        test: Test,
    },
}

/// A condition on the values of one column.
#[derive(Clone, Debug)]
pub(crate) enum Test {
    Equal(Bounds),
    NotEqual(Bounds),
    Less(Bounds),
    LessOrEqual(Bounds),
    Greater(Bounds),
    GreaterOrEqual(Bounds),
    In(Vec<Bounds>),
    Between(Bounds, Bounds),
    StartsWith(Key),
    /// A comparison that statistics cannot decide. It is not TRUE for null, like every comparison.
    Undecided,
    IsNull,
    IsNotNull,
}

#[derive(Deserialize)]
struct Node {
    op: String,
    #[serde(default)]
    args: Vec<Node>,
    #[serde(default)]
    column: Vec<String>,
    #[serde(default, rename = "type")]
    delta_type: String,
    #[serde(default)]
    partition: bool,
    #[serde(default)]
    value: Value,
    #[serde(default)]
    values: Vec<Value>,
    #[serde(default)]
    low: Value,
    #[serde(default)]
    high: Value,
}

impl Predicate {
    /// Compile the JSON of a predicate tree.
    pub fn parse(json: &str) -> Result<Self, Error> {
        let node: Node = serde_json::from_str(json).map_err(|e| Error::Predicate(e.to_string()))?;
        let mut predicate = Self {
            root: Expr::Constant(true),
            columns: StatsColumns::default(),
            partitions: Vec::new(),
        };
        predicate.root = predicate.compile(node)?;
        Ok(predicate)
    }

    fn compile(&mut self, node: Node) -> Result<Expr, Error> {
        Ok(match node.op.as_str() {
            "true" | "unknown" => Expr::Constant(true),
            "false" => Expr::Constant(false),
            "and" => Expr::And(self.compile_all(node.args)?),
            "or" => Expr::Or(self.compile_all(node.args)?),
            _ => self.compile_leaf(&node)?,
        })
    }

    /// Compile nodes and put partition tests first. They are cheap and may make it unnecessary to
    /// parse statistics.
    fn compile_all(&mut self, nodes: Vec<Node>) -> Result<Vec<Expr>, Error> {
        let compiled = nodes.into_iter().map(|node| self.compile(node));
        let mut exprs = compiled.collect::<Result<Vec<_>, _>>()?;
        exprs.sort_by_key(Expr::reads_stats);
        Ok(exprs)
    }

    fn compile_leaf(&mut self, node: &Node) -> Result<Expr, Error> {
        let key_type = KeyType::of(&node.delta_type);
        let Some(test) = Test::of(node, key_type)? else {
            return Ok(Expr::Constant(false));
        };
        let [first, ..] = node.column.as_slice() else {
            return Err(Error::Predicate(format!("`{}` names no column", node.op)));
        };
        if !node.partition {
            let slot = self.columns.add(&node.column);
            return Ok(Expr::Column {
                slot,
                key_type,
                test,
            });
        }
        let known = self.partitions.iter().position(|name| name == first);
        let slot = known.unwrap_or_else(|| {
            self.partitions.push(first.clone());
            self.partitions.len() - 1
        });
        Ok(Expr::Partition {
            slot,
            key_type,
            test,
        })
    }
}

impl Expr {
    fn reads_stats(&self) -> bool {
        match self {
            Self::And(args) | Self::Or(args) => args.iter().any(Self::reads_stats),
            Self::Column { .. } => true,
            Self::Partition { .. } | Self::Constant(_) => false,
        }
    }
}

impl Test {
    /// Return the test of a leaf; `None` if it is never TRUE, like a comparison with NULL.
    fn of(node: &Node, key_type: Option<KeyType>) -> Result<Option<Self>, Error> {
        let bounds = |value: &Value| key_type.and_then(|t| literal(t, value));
        let compare = |make: fn(Bounds) -> Self| match &node.value {
            Value::Null => None,
            value => Some(bounds(value).map_or(Self::Undecided, make)),
        };
        Ok(match node.op.as_str() {
            "=" => compare(Self::Equal),
            "<>" => compare(Self::NotEqual),
            "<" => compare(Self::Less),
            "<=" => compare(Self::LessOrEqual),
            ">" => compare(Self::Greater),
            ">=" => compare(Self::GreaterOrEqual),
            "is_null" => Some(Self::IsNull),
            "is_not_null" => Some(Self::IsNotNull),
            "in" => {
                let values: Vec<_> = node.values.iter().filter(|v| !v.is_null()).collect();
                let all: Option<Vec<_>> = values.iter().map(|value| bounds(value)).collect();
                (!values.is_empty()).then(|| all.map_or(Self::Undecided, Self::In))
            }
            "between" if node.low.is_null() || node.high.is_null() => None,
            "between" => Some(match (bounds(&node.low), bounds(&node.high)) {
                (Some(low), Some(high)) => Self::Between(low, high),
                _ => Self::Undecided,
            }),
            "starts_with" => match (&node.value, key_type) {
                (Value::Null, _) => None,
                (Value::String(prefix), Some(KeyType::String)) => {
                    KeyType::String.encode(prefix).map(Self::StartsWith)
                }
                _ => Some(Self::Undecided),
            },
            other => return Err(Error::Predicate(format!("unknown operator `{other}`"))),
        })
    }
}

/// Return the bounds of a literal; `None` also for NaN, because statistics may ignore NaN.
fn literal(key_type: KeyType, value: &Value) -> Option<Bounds> {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let is_nan = key_type.has_nan() && text.parse().is_ok_and(f64::is_nan);
    (!is_nan).then(|| key_type.literal(&text)).flatten()
}
