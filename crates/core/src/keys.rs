//! Order-preserving byte keys: comparing keys with `memcmp` gives the order of the values.
//!
//! Every key starts with 0x01, so `b""` sorts below and `b"\xff"` above all keys.
use std::borrow::Cow;

use sha2::{Digest, Sha256};

use crate::decimal::{parse_scaled, Scaled};
use crate::time::{parse_date, parse_timestamp, Timestamp, Zone};

pub type Key = Vec<u8>;

/// Below every key.
pub const LOWEST: &[u8] = b"";
/// Above every key.
pub const HIGHEST: &[u8] = b"\xff";

const PREFIX: u8 = 0x01;
const MAX_KEY_BYTES: usize = 64;
/// Statistics truncate timestamps to milliseconds.
const CUT_MICROS: i64 = 999;
/// The maximum offset from UTC of a timestamp that was written without a time zone.
const ZONE_MICROS: i64 = 14 * 3600 * 1_000_000;
/// From this size on, a decimal may have changed when it was converted to a double.
const EXACT_IN_DOUBLE: u128 = 1_000_000_000_000_000;

/// Nine digits distinguish any two 32-bit floats, so no writer prints a float with more.
const FLOAT_DIGITS: usize = 9;

/// A Delta type whose values have order-preserving keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyType {
    Integer,
    Float,
    Double,
    Decimal { scale: u8 },
    Date,
    Timestamp,
    TimestampNtz,
    TimestampNanos,
    TimestampNanosNtz,
    String,
    Boolean,
}

/// An interval of keys that contains a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub low: Key,
    pub high: Key,
}

impl KeyType {
    /// Return the key type of a Delta type name; `None` for binary, nested and unknown types.
    pub fn of(delta_type: &str) -> Option<Self> {
        match delta_type {
            "byte" | "short" | "integer" | "long" => Some(Self::Integer),
            "float" => Some(Self::Float),
            "double" => Some(Self::Double),
            "date" => Some(Self::Date),
            "timestamp" => Some(Self::Timestamp),
            "timestamp_ntz" => Some(Self::TimestampNtz),
            "timestamp_nanos" => Some(Self::TimestampNanos),
            "timestamp_nanos_ntz" => Some(Self::TimestampNanosNtz),
            "string" => Some(Self::String),
            "boolean" => Some(Self::Boolean),
            "decimal" => Some(Self::Decimal { scale: 0 }),
            other => Self::of_parameterised(other),
        }
    }

    fn of_parameterised(delta_type: &str) -> Option<Self> {
        let (name, rest) = delta_type.split_once('(')?;
        let parameters = rest.strip_suffix(')')?;
        match name.trim() {
            "char" | "varchar" => Some(Self::String),
            "decimal" => {
                let (_, scale) = parameters.split_once(',').unwrap_or((parameters, "0"));
                let scale = scale.trim().parse().ok().filter(|scale| *scale <= 38)?;
                Some(Self::Decimal { scale })
            }
            _ => None,
        }
    }

    /// Return true if the statistics of the type may ignore NaN, which is larger than every
    /// maximum.
    pub fn has_nan(self) -> bool {
        matches!(self, Self::Float | Self::Double)
    }

    /// Return the key of a value; `None` if the string is not an exact value of the type.
    pub fn encode(self, text: &str) -> Option<Key> {
        match self {
            Self::Float => text.parse::<f32>().ok().map(|v| double_key(f64::from(v))),
            Self::Integer | Self::Decimal { .. } => {
                let scaled = parse_scaled(text, self.scale())?;
                (scaled.floor == scaled.ceil).then(|| self.number_key(scaled.floor))?
            }
            _ => self.exact(text),
        }
    }

    /// Return an interval that contains the literal `text` of a predicate.
    ///
    /// For a literal that the type cannot represent (1.5 for a long), it is the interval between
    /// the nearest values of the type.
    pub fn literal(self, text: &str) -> Option<Bounds> {
        match self {
            Self::Float => {
                // 1.1 may mean a float or a double, which have different values.
                let narrow = self.encode(text)?;
                let wide = double_key(text.parse().ok()?);
                Some(Bounds {
                    low: narrow.clone().min(wide.clone()),
                    high: narrow.max(wide),
                })
            }
            Self::Integer | Self::Decimal { .. } => {
                let scaled = parse_scaled(text, self.scale())?;
                Some(Bounds {
                    low: self
                        .number_key(scaled.floor)
                        .unwrap_or_else(|| self.clamped(scaled.floor, LOWEST, &self.largest())),
                    high: self
                        .number_key(scaled.ceil)
                        .unwrap_or_else(|| self.clamped(scaled.ceil, &self.smallest(), HIGHEST)),
                })
            }
            _ => self.exact(text).map(|key| Bounds {
                low: key.clone(),
                high: key,
            }),
        }
    }

    /// Return an interval that contains a partition value.
    pub fn partition(self, text: &str) -> Option<Bounds> {
        match self {
            Self::Timestamp | Self::TimestampNanos => {
                let parsed = parse_timestamp(text)?;
                let slack = zone_slack(parsed);
                Some(Bounds {
                    low: self.timestamp_key(parsed, -slack),
                    high: self.timestamp_key(parsed, slack),
                })
            }
            _ => self.encode(text).map(|key| Bounds {
                low: key.clone(),
                high: key,
            }),
        }
    }

    /// Return a key at or below every value of a column whose minimum is `text` in the statistics.
    pub fn stat_low(self, text: &str, quoted: bool) -> Option<Key> {
        match self {
            Self::Float | Self::Double if is_nan(text) => None,
            Self::Double => self.stat_double(text).map(|(low, _)| low),
            Self::Decimal { .. } => self.number_key(self.stat_decimal(text, quoted)?.floor),
            _ if self.is_timestamp() => {
                let parsed = self.timestamp(text)?;
                Some(self.timestamp_key(parsed, -self.slack(parsed)))
            }
            _ => self.encode(text),
        }
    }

    /// Return a key at or above every value of a column whose maximum is `text` in the statistics.
    pub fn stat_high(self, text: &str, quoted: bool) -> Option<Key> {
        match self {
            Self::Double => self.stat_double(text).map(|(_, high)| high),
            Self::Decimal { .. } => self.number_key(self.stat_decimal(text, quoted)?.ceil),
            Self::Timestamp | Self::TimestampNtz => {
                let parsed = self.timestamp(text)?;
                Some(self.timestamp_key(parsed, self.slack(parsed) + CUT_MICROS))
            }
            Self::TimestampNanos | Self::TimestampNanosNtz => {
                let parsed = self.timestamp(text)?;
                // The value may be anywhere in the truncated millisecond.
                Some(self.timestamp_key(parsed, self.slack(parsed) + CUT_MICROS + 1))
            }
            _ => self.encode(text),
        }
    }

    fn stat_decimal(self, text: &str, quoted: bool) -> Option<Scaled> {
        // delta-rs writes integral decimals as 64-bit integers. Larger values become one of these
        // two numbers.
        if !quoted && matches!(text, "9223372036854775807" | "-9223372036854775808") {
            return None;
        }
        let scaled = parse_scaled(text, self.scale())?;
        let size = scaled.floor.unsigned_abs().max(scaled.ceil.unsigned_abs());
        if quoted || size < EXACT_IN_DOUBLE {
            return Some(scaled);
        }
        let error = i128::try_from((size >> 50) + 1).ok()?;
        Some(Scaled {
            floor: scaled.floor.checked_sub(error)?,
            ceil: scaled.ceil.checked_add(error)?,
        })
    }

    /// Return the bounds of a double in the statistics. A number with few digits may have been
    /// written when the column was still a float. Then 0.1 means 0.10000000149.
    fn stat_double(self, text: &str) -> Option<(Key, Key)> {
        let wide: f64 = text.parse().ok()?;
        let key = double_key(wide);
        if wide.is_nan() || significant_digits(text) > FLOAT_DIGITS {
            return Some((key.clone(), key));
        }
        let narrow = double_key(f64::from(text.parse::<f32>().ok()?));
        Some((key.clone().min(narrow.clone()), key.max(narrow)))
    }

    fn exact(self, text: &str) -> Option<Key> {
        match self {
            Self::Double => text.parse().ok().map(double_key),
            Self::Date => parse_date(text).map(long_key),
            Self::Timestamp
            | Self::TimestampNtz
            | Self::TimestampNanos
            | Self::TimestampNanosNtz => self
                .timestamp(text)
                .map(|parsed| self.timestamp_key(parsed, 0)),
            Self::String => Some(prefixed(text.as_bytes())),
            Self::Boolean => match text {
                "true" => Some(prefixed(&[1])),
                "false" => Some(prefixed(&[0])),
                _ => None,
            },
            Self::Integer | Self::Float | Self::Decimal { .. } => self.encode(text),
        }
    }

    fn timestamp(self, text: &str) -> Option<Timestamp> {
        let parsed = parse_timestamp(text)?;
        // The meaning of an offset is not defined for a timestamp without a time zone.
        let is_wall = matches!(self, Self::TimestampNtz | Self::TimestampNanosNtz);
        (!is_wall || parsed.zone != Zone::Offset).then_some(parsed)
    }

    fn is_timestamp(self) -> bool {
        use KeyType::{Timestamp, TimestampNanos, TimestampNanosNtz, TimestampNtz};
        matches!(
            self,
            Timestamp | TimestampNtz | TimestampNanos | TimestampNanosNtz
        )
    }

    /// Return the key of a timestamp plus `micros`, in the unit of the type.
    fn timestamp_key(self, parsed: Timestamp, micros: i64) -> Key {
        match self {
            Self::TimestampNanos | Self::TimestampNanosNtz => {
                decimal_key(parsed.total_nanos() + i128::from(micros) * 1000)
            }
            _ => long_key(parsed.micros.saturating_add(micros)),
        }
    }

    fn slack(self, parsed: Timestamp) -> i64 {
        match self {
            Self::Timestamp | Self::TimestampNanos => zone_slack(parsed),
            _ => 0,
        }
    }

    fn scale(self) -> i32 {
        match self {
            Self::Decimal { scale } => i32::from(scale),
            _ => 0,
        }
    }

    fn number_key(self, value: i128) -> Option<Key> {
        match self {
            Self::Integer => i64::try_from(value).ok().map(long_key),
            _ => Some(decimal_key(value)),
        }
    }

    fn clamped(self, value: i128, below: &[u8], above: &[u8]) -> Key {
        if value < 0 { below } else { above }.to_vec()
    }

    fn smallest(self) -> Key {
        long_key(i64::MIN)
    }

    fn largest(self) -> Key {
        long_key(i64::MAX)
    }
}

/// Truncate a key to the stored length, so that the result is at or below it.
pub fn cut_low(mut key: Key) -> Key {
    key.truncate(1 + MAX_KEY_BYTES);
    key
}

/// Truncate a key to the stored length, so that the result is at or above it.
pub fn cut_high(mut key: Key) -> Key {
    if key.len() > 1 + MAX_KEY_BYTES {
        key.truncate(1 + MAX_KEY_BYTES);
        key.push(0xff);
    }
    key
}

/// Return the canonical form of a path: `/p`, `file:/p` and `file:///p` are the same file.
///
/// Relative paths and paths with other schemes are not changed.
pub fn canonical_path(path: &str) -> Cow<'_, str> {
    let Some(local) = local_path(path) else {
        return Cow::Borrowed(path);
    };
    let mut parts: Vec<&str> = Vec::new();
    for part in local.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    Cow::Owned(format!("file:///{}", parts.join("/")))
}

/// Return the absolute local path of a path or `file:` URL; `None` for all other paths.
fn local_path(path: &str) -> Option<&str> {
    if path.starts_with('/') {
        return Some(path);
    }
    let (scheme, rest) = path.split_once(':')?;
    if !scheme.eq_ignore_ascii_case("file") {
        return None;
    }
    match rest.strip_prefix("//") {
        None => Some(rest),
        Some(rest) => match rest.get(..9) {
            Some(host) if host.eq_ignore_ascii_case("localhost") => rest.get(9..),
            _ => Some(rest),
        },
    }
    .filter(|rest| rest.starts_with('/'))
}

/// Return the keys that earlier releases used for a file with an absolute local path. They did not
/// make the path canonical before hashing it.
pub fn older_path_keys(path: &str, dv_unique_id: Option<&str>) -> Vec<[u8; 16]> {
    if local_path(path).is_none() {
        return Vec::new();
    }
    let canonical = canonical_path(path);
    let plain = &canonical["file://".len()..];
    let spelled = [path.to_owned(), plain.to_owned(), format!("file:{plain}")];
    let mut names = PathKeys::default();
    let keys = spelled.map(|each| names.spelled_key(&each, dv_unique_id));
    keys.into()
}

/// Return the key of a logical file: 4 bytes of the SHA-256 of its folder, then 12 bytes of the
/// SHA-256 of its path and deletion vector id. So the files of a folder, and most files of one
/// commit, are adjacent in an index.
pub fn path_key(path: &str, dv_unique_id: Option<&str>) -> [u8; 16] {
    PathKeys::default().key(path, dv_unique_id)
}

/// Computes the keys of many files; it caches the hash of the last folder.
#[derive(Debug, Default)]
pub struct PathKeys {
    folder: Option<(String, [u8; 4])>,
}

impl PathKeys {
    /// Return the same key as `path_key`.
    pub fn key(&mut self, path: &str, dv_unique_id: Option<&str>) -> [u8; 16] {
        self.spelled_key(&canonical_path(path), dv_unique_id)
    }

    fn spelled_key(&mut self, path: &str, dv_unique_id: Option<&str>) -> [u8; 16] {
        let mut hash = Sha256::new();
        hash.update(path.as_bytes());
        if let Some(id) = dv_unique_id {
            hash.update([0]);
            hash.update(id.as_bytes());
        }
        let mut key = [0; 16];
        key[..4].copy_from_slice(&self.folder_digest(path));
        key[4..].copy_from_slice(&hash.finalize()[..12]);
        key
    }

    fn folder_digest(&mut self, path: &str) -> [u8; 4] {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        match &self.folder {
            Some((known, digest)) if known == folder => *digest,
            _ => {
                let mut digest = [0; 4];
                digest.copy_from_slice(&Sha256::digest(folder)[..4]);
                self.folder = Some((folder.to_owned(), digest));
                digest
            }
        }
    }
}

fn prefixed(bytes: &[u8]) -> Key {
    let mut key = Vec::with_capacity(1 + bytes.len());
    key.push(PREFIX);
    key.extend_from_slice(bytes);
    key
}

fn long_key(value: i64) -> Key {
    prefixed(&(value ^ i64::MIN).to_be_bytes())
}

fn decimal_key(value: i128) -> Key {
    prefixed(&(value ^ i128::MIN).to_be_bytes())
}

fn double_key(value: f64) -> Key {
    let bits = if value.is_nan() {
        f64::NAN.to_bits() & !(1 << 63)
    } else if value == 0.0 {
        0
    } else {
        value.to_bits()
    };
    let ordered = if bits >> 63 == 1 {
        !bits
    } else {
        bits | 1 << 63
    };
    prefixed(&ordered.to_be_bytes())
}

fn is_nan(text: &str) -> bool {
    text.parse::<f64>().is_ok_and(f64::is_nan)
}

fn significant_digits(text: &str) -> usize {
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    let digits = mantissa.bytes().filter(u8::is_ascii_digit);
    digits.skip_while(|digit| *digit == b'0').count()
}

fn zone_slack(parsed: Timestamp) -> i64 {
    if parsed.zone == Zone::Missing {
        ZONE_MICROS
    } else {
        0
    }
}
