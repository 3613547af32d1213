//! Where a store is: `scheme:body?option=value&…`.
//!
//! Each store turns an address into its own typed configuration and refuses options that it does
//! not know. What may be a password never appears in `Display` or `Debug`.

mod place;

use std::fmt;
use std::time::Duration;

use crate::error::{Error, ErrorKind, Result, quote};

pub use place::{Place, Secret, read_host};

/// A store's URL, split but not yet understood.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    scheme: String,
    body: String,
    options: Vec<(String, String)>,
}

impl Address {
    /// Splits a URL.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`]; the message never holds what could be a password.
    pub fn parse(url: &str) -> Result<Self> {
        if url.is_empty() {
            return Err(invalid("the store URL is empty; for example use \"embedded:\""));
        }
        if url.chars().any(char::is_control) {
            return Err(invalid("the store URL holds control characters"));
        }
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(invalid(
                "the store URL has no scheme; it starts with a word and a colon, as \"embedded:\"",
            ));
        };
        let well_formed = scheme.starts_with(|c: char| c.is_ascii_lowercase())
            && scheme.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'+');
        if !well_formed {
            return Err(invalid(
                "the store URL's scheme is not a word in lower case, as in \"embedded:\"",
            ));
        }
        let (body, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut options: Vec<(String, String)> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(invalid(format!(
                    "{} has no value; write name=value, and %3F for a question mark that is none",
                    shown_option(pair)
                )));
            };
            if options.iter().any(|(known, _)| known == key) {
                return Err(invalid(format!("{} is given twice", shown_option(key))));
            }
            options.push((key.to_owned(), percent_decode(value)?));
        }
        Ok(Self { scheme: scheme.to_owned(), body: body.to_owned(), options })
    }

    /// The kind of store.
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// What stands between the scheme and the options, as given.
    pub fn body(&self) -> &str {
        &self.body
    }

    /// The value of an option.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The value of an option that is one of a few words.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`], listing the words.
    pub fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Result<Option<T>> {
        let Some(text) = self.option(name) else { return Ok(None) };
        if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == text) {
            return Ok(Some(*choice));
        }
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let words = match words.split_last() {
            Some((last, [])) => (*last).to_owned(),
            Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
            None => String::new(),
        };
        Err(invalid(format!("option {name} is {}; it can be {words}", quote(text))))
    }

    /// The value of an option that is a span of time: a whole number with `ms`, `s`, `m` or `h`.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`] for what is none, or not from 10 ms to 24 h.
    pub fn span(&self, name: &str) -> Result<Option<Duration>> {
        let Some(text) = self.option(name) else { return Ok(None) };
        let number = text.trim_end_matches(|c: char| c.is_ascii_lowercase());
        let unit_ms = match &text[number.len()..] {
            "ms" => Some(1),
            "s" => Some(1_000),
            "m" => Some(60_000),
            "h" => Some(3_600_000),
            _ => None,
        };
        let ms = unit_ms.zip(digits(number)).map(|(unit_ms, n)| u64::from(n) * unit_ms);
        match ms {
            Some(ms @ 10..=86_400_000) => Ok(Some(Duration::from_millis(ms))),
            _ => Err(invalid(format!(
                "option {name} is {}; write a time from 10ms to 24h, as 500ms, 3s or 2m",
                quote(text)
            ))),
        }
    }

    /// The value of an option that is a whole number.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`] for what is none.
    pub fn number(&self, name: &str) -> Result<Option<u32>> {
        let Some(text) = self.option(name) else { return Ok(None) };
        let whole = || invalid(format!("option {name} is {}; it is a whole number", quote(text)));
        digits(text).ok_or_else(whole).map(Some)
    }

    /// Refuses options that the store does not know.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidUrl`], listing the options that there are.
    pub fn allow_options(&self, known: &[&str]) -> Result<()> {
        let Some((unknown, _)) =
            self.options.iter().find(|(key, _)| !known.contains(&key.as_str()))
        else {
            return Ok(());
        };
        let known = match known {
            [] => "it has none".to_owned(),
            _ => format!("it knows {}", known.join(", ")),
        };
        Err(invalid(format!("{}: has no {}; {known}", self.scheme, shown_option(unknown))))
    }
}

/// Names an option, unless it cannot be one: then it may be the rest of a password with a
/// question mark in it.
fn shown_option(name: &str) -> String {
    let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    if is_name {
        format!("option {}", quote(name))
    } else {
        "what follows the question mark".into()
    }
}

/// Decodes `%41` in a part of a URL.
///
/// # Errors
/// [`ErrorKind::InvalidUrl`] for a `%` that starts no byte and for what is not UTF-8.
pub fn percent_decode(text: &str) -> Result<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| byte.and_then(|byte| char::from(byte).to_digit(16));
        match (digit(rest.next()), digit(rest.next())) {
            (Some(high), Some(low)) => bytes.push((high * 16 + low) as u8),
            _ => {
                return Err(invalid("the store URL holds a % that starts no %XX; write it as %25"));
            }
        }
    }
    String::from_utf8(bytes).map_err(|_| invalid("a part of the store URL is not UTF-8"))
}

/// Plain digits: unlike `parse`, no sign.
pub fn digits(text: &str) -> Option<u32> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// The error of an address that cannot be understood.
pub fn invalid(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidUrl, message)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whatever stands before the last @ may be a password, also in a URL that was written wrong.
        match self.body.rsplit_once('@') {
            Some((_, host)) => write!(f, "{}://…@{host}", self.scheme),
            None => write!(f, "{}:{}", self.scheme, self.body),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_an_address() {
        let address = Address::parse("embedded:a/b?sync=full&x=%41%20").unwrap();
        assert_eq!((address.scheme(), address.body()), ("embedded", "a/b"));
        assert_eq!(address.option("sync"), Some("full"));
        assert_eq!(address.option("x"), Some("A "));
        let error = address.allow_options(&["sync"]).unwrap_err();
        assert!(error.to_string().contains("it knows sync"), "{error}");
    }

    #[test]
    fn bad_addresses_are_refused_without_their_secrets() {
        for url in [
            "",
            "redis//x:secret@h",
            "r://u:a?secret@h",
            "r://u:a?secret@h&secret@h=1",
            "UP:x",
            "x?y",
            "e:?a",
            "e:?a=1&a=2",
            "e:?a=%zz",
            "e:\n",
        ] {
            let error = Address::parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{url}");
            assert!(!error.to_string().contains("secret"));
        }
    }

    #[test]
    fn options_have_types() {
        let address = Address::parse("e:?a=250ms&b=2h&n=7&c=no").unwrap();
        assert_eq!(address.span("a").unwrap(), Some(Duration::from_millis(250)));
        assert_eq!(address.span("b").unwrap(), Some(Duration::from_secs(7200)));
        assert_eq!(address.number("n").unwrap(), Some(7));
        assert_eq!(address.choice("c", &[("yes", true), ("no", false)]).unwrap(), Some(false));
        assert_eq!(address.span("none").unwrap(), None);
        assert_eq!(address.number("none").unwrap(), None);
        assert_eq!(address.choice("none", &[("yes", true)]).unwrap(), None);
    }

    #[test]
    fn options_of_another_type_are_refused() {
        for text in ["", "5", "ms", "+5s", "1d", "9ms", "25h", "4294967296ms", "1ä"] {
            let address = Address::parse(&format!("e:?a={text}")).unwrap();
            let error = address.span("a").unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{text}");
            assert!(error.to_string().contains("10ms to 24h, as 500ms, 3s or 2m"), "{error}");
        }
        for text in ["", "-1", "+1", "1.0", "4294967296"] {
            let address = Address::parse(&format!("e:?a={text}")).unwrap();
            assert!(address.number("a").unwrap_err().to_string().contains("a whole number"));
        }
        let address = Address::parse("e:?a=z").unwrap();
        let error = address.choice("a", &[("x", 1), ("y", 2), ("w", 3)]).unwrap_err();
        assert_eq!(error.to_string(), "option a is \"z\"; it can be x, y or w");
    }

    #[test]
    fn passwords_do_not_show() {
        for url in ["redis://me:secret@h:1/0", "redis://me:sec@secret@h"] {
            let address = Address::parse(url).unwrap();
            assert!(!format!("{address} {address:?}").contains("sec"));
        }
    }
}
