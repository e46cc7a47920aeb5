//! Parse decimal numbers from strings as integers at a fixed scale, rounded down and up.

/// A number rounded down and up to a scale. Both are equal if the number is exact at that scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaled {
    pub floor: i128,
    pub ceil: i128,
}

/// Parse `[-]digits[.digits][e±n]` as a multiple of 10^-scale.
///
/// Returns `None` if the string is not a number or the number is too large.
pub fn parse_scaled(text: &str, scale: i32) -> Option<Scaled> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let (mantissa, exponent) = match digits.find(['e', 'E']) {
        Some(at) => (&digits[..at], digits[at + 1..].parse::<i32>().ok()?),
        None => (digits, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut value: i128 = 0;
    let mut shift = exponent.checked_add(scale)?;
    let mut inexact = false;
    for (index, byte) in whole.bytes().chain(fraction.bytes()).enumerate() {
        if !byte.is_ascii_digit() {
            return None;
        }
        let digit = i128::from(byte - b'0');
        let is_fraction = index >= whole.len();
        match value.checked_mul(10).and_then(|v| v.checked_add(digit)) {
            // There is no room for the digit, so only record whether it makes the result inexact.
            None => {
                inexact |= digit != 0;
                shift = shift.checked_add(i32::from(!is_fraction))?;
            }
            Some(next) => {
                value = next;
                shift = shift.checked_sub(i32::from(is_fraction))?;
            }
        }
    }
    let (mut floor, rest) = shift_by(value, shift)?;
    if shift > 0 && inexact {
        return None;
    }
    inexact |= rest;
    let mut ceil = if inexact {
        floor.checked_add(1)?
    } else {
        floor
    };
    if negative {
        (floor, ceil) = (-ceil, -floor);
    }
    Some(Scaled { floor, ceil })
}

/// Return `value * 10^shift` rounded toward zero, and whether it was rounded.
fn shift_by(value: i128, shift: i32) -> Option<(i128, bool)> {
    if value == 0 {
        return Some((0, false));
    }
    if shift >= 0 {
        let factor = 10_i128.checked_pow(shift.unsigned_abs())?;
        return Some((value.checked_mul(factor)?, false));
    }
    match 10_i128.checked_pow(shift.unsigned_abs()) {
        Some(divisor) => Some((value / divisor, value % divisor != 0)),
        None => Some((0, true)),
    }
}
