//! Where a store is: `scheme:body?option=value&…`.
//!
//! Each store turns an address into its own typed configuration and refuses options that it does
//! not know. What may be a password never appears in `Display` or `Debug`.

use std::fmt;

use crate::error::{Error, ErrorKind, Result, quote};

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

fn invalid(message: impl Into<String>) -> Error {
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
    fn passwords_do_not_show() {
        for url in ["redis://me:secret@h:1/0", "redis://me:sec@secret@h"] {
            let address = Address::parse(url).unwrap();
            assert!(!format!("{address} {address:?}").contains("sec"));
        }
    }
}
