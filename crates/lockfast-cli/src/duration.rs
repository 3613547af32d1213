//! Durations as people type them: whole numbers, each with its unit, the greatest first.

use std::time::Duration;

use lockfast_core::error::quote;

/// From the greatest to the smallest, as they must follow each other.
const UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The longest of all: more than anybody waits for, and far from any overflow.
const MILLIS_MAX: u64 = 366 * 24 * 3_600_000;

const EXAMPLES: &str = "for example 500ms, 30s, 5m, 2h or 1m30s";

/// Reads a duration that is not shorter than `least`.
///
/// # Errors
/// One sentence: what was given, what is wrong with it and what to write.
pub(crate) fn parse(text: &str, least: Duration) -> Result<Duration, String> {
    let at_least = if least.is_zero() {
        EXAMPLES.to_owned()
    } else {
        format!("give at least {}, {EXAMPLES}", lockfast_core::view::brief(least))
    };
    let refuse = |flaw: &str| Err(format!("{} {flaw}; {at_least}", quote(text)));
    if text.is_empty() {
        return refuse("is empty");
    }
    if text.starts_with('-') {
        return refuse("is negative");
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        if text.bytes().all(|byte| byte == b'0') && !least.is_zero() {
            return refuse("is too short");
        }
        let shown = text.get(..20).unwrap_or(text);
        return refuse(&format!("has no unit: say {shown}s or {shown}ms"));
    }
    let duration = match read(text) {
        Ok(millis) => Duration::from_millis(millis),
        Err(Flaw::Form) => return refuse("is not a duration"),
        Err(Flaw::Size) => return refuse("is too large"),
    };
    if duration < least { refuse("is too short") } else { Ok(duration) }
}

enum Flaw {
    Form,
    Size,
}

fn read(text: &str) -> Result<u64, Flaw> {
    let mut rest = text;
    let mut total: u64 = 0;
    let mut units = UNITS.iter();
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let letters = after.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, next) = after.split_at(letters);
        let (_, millis) = units.find(|(name, _)| *name == unit).ok_or(Flaw::Form)?;
        if number.is_empty() {
            return Err(Flaw::Form);
        }
        let part = number.parse::<u64>().ok().and_then(|number| number.checked_mul(*millis));
        total = part.and_then(|part| part.checked_add(total)).ok_or(Flaw::Size)?;
        rest = next;
    }
    if total > MILLIS_MAX { Err(Flaw::Size) } else { Ok(total) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, millis) in [
            ("500ms", 500),
            ("30s", 30_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("1m30s", 90_000),
            ("1h1m1s1ms", 3_661_001),
            ("0s", 0),
        ] {
            assert_eq!(parse(text, Duration::ZERO), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn everything_else_is_explained() {
        let least = Duration::from_millis(100);
        let table = [
            ("0", "at least 100ms"),
            ("0s", "at least 100ms"),
            ("99ms", "at least 100ms"),
            ("-1", "negative; give at least 100ms"),
            ("-5s", "negative"),
            ("", "is empty; give at least 100ms"),
            ("10", "say 10s or 10ms"),
            ("10 s", "is not a duration"),
            (" 10s", "is not a duration"),
            ("10sec", "is not a duration"),
            ("1e3s", "is not a duration"),
            ("1.5s", "is not a duration"),
            ("٣s", "is not a duration"),
            ("s", "is not a duration"),
            ("30s1m", "is not a duration"),
            ("1s1s", "is not a duration"),
            ("+1s", "is not a duration"),
            ("1S", "is not a duration"),
            ("99999999999999999999s", "is too large"),
            ("18446744073709551615h", "is too large"),
            ("9000h", "is too large"),
        ];
        for (text, expected) in table {
            let message = parse(text, least).unwrap_err();
            assert!(message.contains(expected), "{text}: {message}");
            assert!(message.contains("for example"), "{text}: {message}");
        }
    }
}
