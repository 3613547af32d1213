//! The JSON of an answer.

use std::fmt::Write as _;

/// A string with its quotes.
pub(super) fn string(text: &str) -> String {
    let mut json = String::with_capacity(text.len() + 2);
    json.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => json.extend(['\\', character]),
            // Writing to a string cannot fail.
            _ if character.is_control() => drop(write!(json, "\\u{:04x}", u32::from(character))),
            _ => json.push(character),
        }
    }
    json.push('"');
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_back() {
        for text in ["", "a/7", "\"quoted\" \\ and\nlines\u{1}", "é\u{7f}"] {
            let json = string(text);
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text, "{json}");
        }
    }
}
