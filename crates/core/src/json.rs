//! Parse JSON values without interpreting the private keys of `serde_json`.
//!
//! `serde_json` represents a number, and raw JSON, as an object with one private key. A log may
//! contain such a key. If the log were parsed as a plain `Value`, that object would become a
//! number, or its string would be parsed again, recursively, until the stack overflows.
use std::cell::Cell;
use std::fmt;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

const NUMBER: &str = "$serde_json::private::Number";
/// The maximum number of digits of an integer. It is below Python's limit of 4300 digits, because
/// converting longer integers takes quadratic time.
const MAX_DIGITS: usize = 4000;

/// Any JSON value, parsed from text.
pub struct Json(pub Value);

impl Json {
    /// Return the object, or `None` if the value is not an object.
    pub fn into_object(self) -> Option<Map<String, Value>> {
        match self.0 {
            Value::Object(object) => Some(object),
            _ => None,
        }
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Reader { marked: None }.deserialize(deserializer).map(Self)
    }
}

/// Parses one value. If the key before it is the private key of a number, `marked` records whether
/// `serde_json` itself created the number. It did if it passes an owned string, because a string in
/// the input is borrowed.
struct Reader<'a> {
    marked: Option<&'a Cell<bool>>,
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("any JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::from(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E: de::Error>(self, text: String) -> Result<Value, E> {
        let Some(marked) = self.marked else {
            return Ok(Value::String(text));
        };
        marked.set(true);
        if text.len() > MAX_DIGITS {
            return Err(E::custom(format_args!(
                "a number of {} characters",
                text.len()
            )));
        }
        let number = text.parse::<Number>().map_err(E::custom)?;
        Ok(Value::Number(number))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Json(item)) = seq.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = map.next_key_seed(ObjectKey)? {
            let is_number = Cell::new(false);
            let marked = key.is_none().then_some(&is_number);
            let value = map.next_value_seed(Reader { marked })?;
            if is_number.get() {
                return Ok(value);
            }
            object.insert(key.unwrap_or_else(|| NUMBER.to_owned()), value);
        }
        Ok(Value::Object(object))
    }
}

/// Parses the key of an object. `None` stands for the key of a number, which is frequent and
/// therefore not copied.
struct ObjectKey;

impl<'de> DeserializeSeed<'de> for ObjectKey {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for ObjectKey {
    type Value = Option<String>;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok((key != NUMBER).then(|| key.to_owned()))
    }
}
