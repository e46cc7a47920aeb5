//! Write a JSON object with string values, without building a tree in memory first.
use crate::columns::json_text;

/// Writes a JSON object whose values are strings or nulls, in the order of the calls.
#[derive(Default)]
pub struct ObjectWriter {
    text: String,
}

impl ObjectWriter {
    pub fn entry(&mut self, key: &str, value: Option<&str>) {
        self.text.push(if self.text.is_empty() { '{' } else { ',' });
        self.quoted(key);
        self.text.push(':');
        match value {
            Some(value) => self.quoted(value),
            None => self.text.push_str("null"),
        }
    }

    fn quoted(&mut self, text: &str) {
        let plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
        if text.bytes().all(plain) {
            self.text.push('"');
            self.text.push_str(text);
            self.text.push('"');
        } else {
            self.text.push_str(&json_text(&text));
        }
    }

    pub fn finish(mut self) -> String {
        self.text
            .push_str(if self.text.is_empty() { "{}" } else { "}" });
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_escaped() {
        let mut out = ObjectWriter::default();
        out.entry("a", Some("x \"y\" \u{1}"));
        out.entry("b\\", None);
        assert_eq!(out.finish(), r#"{"a":"x \"y\" \u0001","b\\":null}"#);
        assert_eq!(ObjectWriter::default().finish(), "{}");
    }
}
