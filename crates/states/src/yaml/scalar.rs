//! The meaning of plain scalars, by the rules of YAML 1.1 as Salt reads it.

use super::Yaml;

/// Returns the value of a plain scalar.
pub(crate) fn resolve(text: &str) -> Yaml {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Yaml::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Yaml::Bool(true);
        }
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Yaml::Bool(false);
        }
        _ => {}
    }
    // Only these can begin a number; most scalars are words.
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return Yaml::Text(text.to_owned());
    }
    (integer(text).map(Yaml::Int))
        .or_else(|| float(text).map(Yaml::Float))
        .unwrap_or_else(|| Yaml::Text(text.to_owned()))
}

fn signed(text: &str) -> (i64, &str) {
    match text.as_bytes().first() {
        Some(b'-') => (-1, &text[1..]),
        Some(b'+') => (1, &text[1..]),
        _ => (1, text),
    }
}

fn digits(text: &str, allowed: impl Fn(u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte == b'_' || allowed(byte))
}

fn parsed(text: &str, radix: u32) -> Option<i64> {
    i64::from_str_radix(&text.replace('_', ""), radix).ok()
}

/// Parses `12`, `0x1f`, `0b11`, `1_000`, `1:30` (base 60), and `0644`, which Salt reads as 644.
fn integer(text: &str) -> Option<i64> {
    let (sign, rest) = signed(text);
    if let Some(binary) = rest.strip_prefix("0b") {
        return digits(binary, |b| matches!(b, b'0' | b'1'))
            .then(|| parsed(binary, 2))?
            .map(|n| sign * n);
    }
    if let Some(hex) = rest.strip_prefix("0x") {
        return digits(hex, |b| b.is_ascii_hexdigit())
            .then(|| parsed(hex, 16))?
            .map(|n| sign * n);
    }
    if rest == "0" {
        return Some(0);
    }
    if let Some(octal) = rest.strip_prefix('0') {
        if !digits(octal, |b| matches!(b, b'0'..=b'7')) {
            return None;
        }
        // Salt strips the zeros, unless a sign precedes them.
        return if rest.len() == text.len() {
            let stripped = rest.trim_start_matches('0');
            parsed(if stripped.is_empty() { "0" } else { stripped }, 10)
        } else {
            parsed(octal, 8).map(|n| sign * n)
        };
    }
    if !rest.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if rest.contains(':') {
        return base_60(rest).map(|number| sign * number);
    }
    digits(rest, |b| b.is_ascii_digit())
        .then(|| parsed(rest, 10))?
        .and_then(|number| number.checked_mul(sign))
}

fn base_60(text: &str) -> Option<i64> {
    let mut parts = text.split(':');
    let first = parts
        .next()
        .filter(|part| digits(part, |b| b.is_ascii_digit()))?;
    let mut number = parsed(first, 10)?;
    for part in parts {
        let value: i64 = part.parse().ok().filter(|value| (0..60).contains(value))?;
        if part.len() > 2 || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        number = number.checked_mul(60)?.checked_add(value)?;
    }
    Some(number)
}

/// Parses `1.5`, `.5`, `1.5e+3` (the sign is required), `.inf`, `.nan`.
fn float(text: &str) -> Option<f64> {
    let (sign, rest) = signed(text);
    match rest {
        ".inf" | ".Inf" | ".INF" => return Some(sign as f64 * f64::INFINITY),
        ".nan" | ".NaN" | ".NAN" if rest.len() == text.len() => return Some(f64::NAN),
        _ => {}
    }
    let (mantissa, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    let (whole, fraction) = mantissa.split_once('.')?;
    let digit = |b: u8| b.is_ascii_digit();
    let shaped = if whole.is_empty() {
        rest.len() == text.len()
            && fraction.starts_with(|c: char| c.is_ascii_digit())
            && digits(fraction, digit)
    } else {
        whole.starts_with(|c: char| c.is_ascii_digit())
            && digits(whole, digit)
            && (fraction.is_empty() || digits(fraction, digit))
    };
    let exponent_fits = exponent.is_none_or(|exponent| {
        exponent.len() > 1
            && exponent.starts_with(['+', '-'])
            && exponent[1..].bytes().all(|b| b.is_ascii_digit())
    });
    if !shaped || !exponent_fits {
        return None;
    }
    text.replace('_', "").parse().ok()
}
