//! Parse dates and timestamps of statistics and partition values.

const MICROS_PER_SECOND: i64 = 1_000_000;
const SECONDS_PER_DAY: i64 = 86_400;

/// A timestamp in microseconds since the epoch, and the kind of time zone in the string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamp {
    pub micros: i64,
    /// Nanoseconds after the microsecond; further digits are truncated.
    pub nanos: i64,
    pub zone: Zone,
}

/// The time zone after the time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Zone {
    /// No time zone: the local time of the writer, or a `timestamp_ntz`.
    Missing,
    /// `Z`.
    Utc,
    /// `+hh:mm`; the offset is already subtracted.
    Offset,
}

/// Parse `YYYY-MM-DD` as days since 1970-01-01.
pub fn parse_date(text: &str) -> Option<i64> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    let mut parts = digits.split('-');
    let year = sign * number(parts.next()?, 1, 7)?;
    let month = number(parts.next()?, 1, 2)?;
    let day = number(parts.next()?, 1, 2)?;
    if parts.next().is_some() || !(1..=12).contains(&month) {
        return None;
    }
    (1..=days_in_month(year, month))
        .contains(&day)
        .then(|| days_from_civil(year, month, day))
}

impl Timestamp {
    /// Return nanoseconds since the epoch, in 128 bits because they may not fit in 64.
    pub fn total_nanos(self) -> i128 {
        i128::from(self.micros) * 1000 + i128::from(self.nanos)
    }
}

/// Parse `YYYY-MM-DD[T ]HH:MM[:SS[.f…]][Z|±hh:mm]`, or only the date.
pub fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let Some(at) = text.find(['T', ' ']) else {
        let micros = parse_date(text)?.checked_mul(SECONDS_PER_DAY * MICROS_PER_SECOND)?;
        return Some(Timestamp {
            micros,
            nanos: 0,
            zone: Zone::Missing,
        });
    };
    let days = parse_date(&text[..at])?;
    let (clock, offset, zone) = split_zone(&text[at + 1..])?;
    let (whole, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut parts = whole.split(':');
    let hour = number(parts.next()?, 1, 2)?;
    let minute = number(parts.next()?, 1, 2)?;
    let second = parts.next().map_or(Some(0), |part| number(part, 1, 2))?;
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = days
        .checked_mul(SECONDS_PER_DAY)?
        .checked_add(hour * 3600 + minute * 60 + second - offset)?;
    let fraction = nanos_of_fraction(fraction)?;
    let micros = seconds
        .checked_mul(MICROS_PER_SECOND)?
        .checked_add(fraction / 1000)?;
    let nanos = fraction % 1000;
    Some(Timestamp {
        micros,
        nanos,
        zone,
    })
}

fn split_zone(text: &str) -> Option<(&str, i64, Zone)> {
    if let Some(clock) = text.strip_suffix(['Z', 'z']) {
        return Some((clock, 0, Zone::Utc));
    }
    let Some(at) = text.rfind(['+', '-']) else {
        return Some((text, 0, Zone::Missing));
    };
    let sign = if text.as_bytes()[at] == b'-' { -1 } else { 1 };
    let zone = text[at + 1..].replace(':', "");
    if !matches!(zone.len(), 2 | 4 | 6) || !zone.is_ascii() {
        return None;
    }
    let mut offset = number(&zone[..2], 2, 2)? * 3600;
    for (index, unit) in [(2, 60), (4, 1)] {
        if zone.len() > index {
            offset += number(&zone[index..index + 2], 2, 2)? * unit;
        }
    }
    Some((&text[..at], sign * offset, Zone::Offset))
}

fn nanos_of_fraction(text: &str) -> Option<i64> {
    if text.is_empty() {
        return Some(0);
    }
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let digits = &text[..text.len().min(9)];
    let scale = 10_i64.pow(9 - digits.len() as u32);
    Some(digits.parse::<i64>().ok()? * scale)
}

fn number(text: &str, min: usize, max: usize) -> Option<i64> {
    let fits = (min..=max).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    fits.then(|| text.parse().ok()).flatten()
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Return days in the proleptic Gregorian calendar. Years start in March here, so that the leap
/// day is the last day of a year.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let shifted = if month <= 2 { year - 1 } else { year };
    let era = shifted.div_euclid(400);
    let year_of_era = shifted.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}
