//! Delta's actions as Rust types, and their JSON form.
//!
//! Unknown fields are stored in `extra`, and unknown kinds of actions in `Unknown`. If the line of
//! an action has other keys next to the action, which readers must ignore, they are stored in
//! `extra` under the key `BESIDE`.
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use crate::json::Json;
use crate::{field_type, field_value, for_each_action};

/// Partition values, tags or properties: an ordered map from strings to strings or null.
pub type StringMap = IndexMap<String, Option<String>>;
pub type StringList = Vec<String>;

/// The key in `extra` under which the other keys on the action's line are stored.
pub const BESIDE: &str = "deltasql.beside";

macro_rules! define_actions {
    ($(
        $(#[$doc:meta])*
        $name:ident { $( [$($mode:tt)+] $field:ident : $type:ty = $json:literal, )+ }
    )+) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $( pub $field: field_type!([$($mode)+] $type), )+
            pub extra: Map<String, Value>,
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Fields;

                impl<'de> Visitor<'de> for Fields {
                    type Value = $name;

                    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                        formatter.write_str("a JSON object")
                    }

                    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                        $( let mut $field: Option<$type> = None; )+
                        let mut extra = Map::new();
                        while let Some(JsonKey(key)) = map.next_key()? {
                            match &*key {
                                $( $json => $field = Field::read(&mut map)?, )+
                                _ => {
                                    let Json(value) = map.next_value()?;
                                    extra.insert(key.into_owned(), value);
                                }
                            }
                        }
                        Ok($name {
                            $( $field: field_value!(
                                [$($mode)+] $field, de::Error::missing_field($json)), )+
                            extra,
                        })
                    }
                }

                deserializer.deserialize_map(Fields)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let mut map = serializer.serialize_map(None)?;
                $( write_field!(map, [$($mode)+] $json, &self.$field); )+
                for (key, value) in &self.extra {
                    if key != BESIDE {
                        map.serialize_entry(key, value)?;
                    }
                }
                map.end()
            }
        }
    )+ };
}

macro_rules! write_field {
    ($map:ident, [optional] $json:literal, $value:expr) => {
        if let Some(value) = $value {
            $map.serialize_entry($json, value)?;
        }
    };
    ($map:ident, [$($mode:tt)+] $json:literal, $value:expr) => {
        $map.serialize_entry($json, $value)?;
    };
}

for_each_action!(define_actions);

/// A value that can be read from a field. Null means the same as a missing field.
trait Field<'de>: Sized {
    fn read<A: MapAccess<'de>>(map: &mut A) -> Result<Option<Self>, A::Error>;
}

impl<'de> Field<'de> for Value {
    fn read<A: MapAccess<'de>>(map: &mut A) -> Result<Option<Self>, A::Error> {
        Ok(map.next_value::<Option<Json>>()?.map(|Json(value)| value))
    }
}

macro_rules! typed_fields {
    ($( $type:ty ),+) => { $(
        impl<'de> Field<'de> for $type {
            fn read<A: MapAccess<'de>>(map: &mut A) -> Result<Option<Self>, A::Error> {
                map.next_value()
            }
        }
    )+ };
}

typed_fields!(
    String,
    i64,
    bool,
    StringMap,
    StringList,
    DeletionVector,
    Format
);

/// One line of a commit.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    Add(Arc<AddFile>),
    Remove(Arc<RemoveFile>),
    Cdc(Box<AddCdcFile>),
    Metadata(Box<Metadata>),
    Protocol(Box<Protocol>),
    Txn(Box<SetTransaction>),
    DomainMetadata(Box<DomainMetadata>),
    CommitInfo(Box<CommitInfo>),
    Sidecar(Box<Sidecar>),
    CheckpointMetadata(Box<CheckpointMetadata>),
    /// An unknown kind of action. Readers may ignore it, but it is preserved for other programs.
    Unknown {
        kind: String,
        body: Value,
    },
}

impl DeletionVector {
    /// Return the unique id of the deletion vector. With the path, it identifies a logical file.
    pub fn unique_id(&self) -> String {
        let base = format!("{}{}", self.storage_type, self.path_or_inline_dv);
        match self.offset {
            Some(offset) => format!("{base}@{offset}"),
            None => base,
        }
    }
}

impl Format {
    /// Return the Parquet format, the only one that Delta defines.
    pub fn parquet() -> Self {
        Self {
            provider: "parquet".to_owned(),
            options: StringMap::new(),
            extra: Map::new(),
        }
    }
}

impl Action {
    /// Return the key of the action in a commit file.
    pub fn kind(&self) -> &str {
        match self {
            Self::Add(_) => "add",
            Self::Remove(_) => "remove",
            Self::Cdc(_) => "cdc",
            Self::Metadata(_) => "metaData",
            Self::Protocol(_) => "protocol",
            Self::Txn(_) => "txn",
            Self::DomainMetadata(_) => "domainMetadata",
            Self::CommitInfo(_) => "commitInfo",
            Self::Sidecar(_) => "sidecar",
            Self::CheckpointMetadata(_) => "checkpointMetadata",
            Self::Unknown { kind, .. } => kind,
        }
    }

    /// Return the unknown fields of the action.
    fn extra(&self) -> Option<&Map<String, Value>> {
        match self {
            Self::Add(action) => Some(&action.extra),
            Self::Remove(action) => Some(&action.extra),
            Self::Cdc(action) => Some(&action.extra),
            Self::Metadata(action) => Some(&action.extra),
            Self::Protocol(action) => Some(&action.extra),
            Self::Txn(action) => Some(&action.extra),
            Self::DomainMetadata(action) => Some(&action.extra),
            Self::CommitInfo(action) => Some(&action.extra),
            Self::Sidecar(action) => Some(&action.extra),
            Self::CheckpointMetadata(action) => Some(&action.extra),
            Self::Unknown { .. } => None,
        }
    }

    fn extra_mut(&mut self) -> Option<&mut Map<String, Value>> {
        match self {
            Self::Add(action) => Some(&mut Arc::make_mut(action).extra),
            Self::Remove(action) => Some(&mut Arc::make_mut(action).extra),
            Self::Cdc(action) => Some(&mut action.extra),
            Self::Metadata(action) => Some(&mut action.extra),
            Self::Protocol(action) => Some(&mut action.extra),
            Self::Txn(action) => Some(&mut action.extra),
            Self::DomainMetadata(action) => Some(&mut action.extra),
            Self::CommitInfo(action) => Some(&mut action.extra),
            Self::Sidecar(action) => Some(&mut action.extra),
            Self::CheckpointMetadata(action) => Some(&mut action.extra),
            Self::Unknown { .. } => None,
        }
    }

    /// Return the other keys on the action's line. Names of actions are left out, because a line
    /// has only one action.
    fn beside(&self) -> impl Iterator<Item = (&String, &Value)> {
        let kept = self.extra().and_then(|extra| extra.get(BESIDE));
        let kept = kept.and_then(Value::as_object).into_iter().flatten();
        kept.filter(|(key, _)| !KINDS.contains(&key.as_str()))
    }

    fn read<'de, A: MapAccess<'de>>(kind: &str, map: &mut A) -> Result<Option<Self>, A::Error> {
        Ok(match kind {
            "add" => map
                .next_value::<Option<_>>()?
                .map(|a| Self::Add(Arc::new(a))),
            "remove" => map
                .next_value::<Option<_>>()?
                .map(|a| Self::Remove(Arc::new(a))),
            "cdc" => map.next_value::<Option<_>>()?.map(Self::Cdc),
            "metaData" => map.next_value::<Option<_>>()?.map(Self::Metadata),
            "protocol" => map.next_value::<Option<_>>()?.map(Self::Protocol),
            "txn" => map.next_value::<Option<_>>()?.map(Self::Txn),
            "domainMetadata" => map.next_value::<Option<_>>()?.map(Self::DomainMetadata),
            "commitInfo" => map.next_value::<Option<_>>()?.map(Self::CommitInfo),
            "sidecar" => map.next_value::<Option<_>>()?.map(Self::Sidecar),
            "checkpointMetadata" => map.next_value::<Option<_>>()?.map(Self::CheckpointMetadata),
            _ => Some(Self::Unknown {
                kind: kind.to_owned(),
                body: map.next_value::<Json>()?.0,
            }),
        })
    }
}

const KINDS: [&str; 10] = [
    "add",
    "remove",
    "cdc",
    "metaData",
    "protocol",
    "txn",
    "domainMetadata",
    "commitInfo",
    "sidecar",
    "checkpointMetadata",
];

impl<'de> Deserialize<'de> for Action {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ActionVisitor)
    }
}

struct ActionVisitor;

impl<'de> Visitor<'de> for ActionVisitor {
    type Value = Action;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an action: a JSON object with one key")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Action, A::Error> {
        let mut found: Option<Action> = None;
        let mut others: Vec<(String, Value)> = Vec::new();
        while let Some(JsonKey(kind)) = map.next_key()? {
            // Some writers write all other kinds of actions as null on the same line.
            match (Action::read(&kind, &mut map)?, &found) {
                (None, _) => {}
                (Some(Action::Unknown { kind, body }), _) => others.push((kind, body)),
                (Some(action), None) => found = Some(action),
                (Some(_), Some(first)) => {
                    return Err(de::Error::custom(format_args!(
                        "one line holds two actions, `{}` and `{kind}`",
                        first.kind()
                    )))
                }
            }
        }
        let Some(mut action) = found else {
            let other = others.into_iter().next();
            return other
                .map(|(kind, body)| Action::Unknown { kind, body })
                .ok_or_else(|| de::Error::custom("the line holds no action"));
        };
        others.retain(|(_, value)| !value.is_null());
        if let (false, Some(extra)) = (others.is_empty(), action.extra_mut()) {
            let beside = others.into_iter().collect();
            extra.insert(BESIDE.to_owned(), Value::Object(beside));
        }
        Ok(action)
    }
}

impl Serialize for Action {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        let kind = self.kind();
        match self {
            Self::Add(action) => map.serialize_entry(kind, &**action)?,
            Self::Remove(action) => map.serialize_entry(kind, &**action)?,
            Self::Cdc(action) => map.serialize_entry(kind, action)?,
            Self::Metadata(action) => map.serialize_entry(kind, action)?,
            Self::Protocol(action) => map.serialize_entry(kind, action)?,
            Self::Txn(action) => map.serialize_entry(kind, action)?,
            Self::DomainMetadata(action) => map.serialize_entry(kind, action)?,
            Self::CommitInfo(action) => map.serialize_entry(kind, action)?,
            Self::Sidecar(action) => map.serialize_entry(kind, action)?,
            Self::CheckpointMetadata(action) => map.serialize_entry(kind, action)?,
            Self::Unknown { body, .. } => map.serialize_entry(kind, body)?,
        }
        for (key, value) in self.beside() {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

/// A JSON key, borrowed from the input if it has no escapes.
#[derive(serde::Deserialize)]
struct JsonKey<'a>(#[serde(borrow)] Cow<'a, str>);
