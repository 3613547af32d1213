//! The config file: `$XDG_CONFIG_HOME/lockfast/config.toml`, else `~/.config/lockfast/config.toml`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use lockfast_core::error::quote;

use crate::exit::Failure;

/// More than any config file needs; a wrong path must not fill the memory.
const BYTES_MAX: u64 = 64 * 1024;

/// Every key that there is.
const KEYS: [&str; 1] = ["url"];

/// What the config file says.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// The store's URL.
    pub(crate) url: Option<String>,
}

/// Reads the named file, or the one at the usual place if there is one.
///
/// # Errors
/// A file that was named must be there; whatever is there must be readable and right.
pub(crate) fn load(named: Option<&Path>) -> Result<Config, Failure> {
    let path = match named {
        Some(path) => path.to_owned(),
        None => match usual_path().filter(|path| path.exists()) {
            Some(path) => path,
            None => return Ok(Config::default()),
        },
    };
    let shown = quote(&path.to_string_lossy());
    let text = read(&path).map_err(|flaw| {
        Failure::config(format!("the config file {shown} cannot be read: {flaw}"))
    })?;
    parse(&text).map_err(|flaw| Failure::config(format!("the config file {shown}: {flaw}")))
}

fn usual_path() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = set("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".config")))?;
    Some(base.join("lockfast").join("config.toml"))
}

fn read(path: &Path) -> Result<String, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = String::new();
    let read = file.take(BYTES_MAX + 1).read_to_string(&mut text);
    match read {
        Ok(_) if text.len() as u64 > BYTES_MAX => {
            Err(format!("it is larger than {} KiB", BYTES_MAX / 1024))
        }
        Ok(_) => Ok(text),
        Err(error) => Err(error.to_string()),
    }
}

fn parse(text: &str) -> Result<Config, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
        // The parser's own text shows the line, and a line may hold a password.
        let before = error.span().map_or(0, |span| span.start.min(text.len()));
        let head = text.get(..before).unwrap_or_default();
        let line = head.matches('\n').count() + 1;
        let column = head.chars().rev().take_while(|c| *c != '\n').count() + 1;
        format!("line {line}, column {column}: {}", error.message())
    })?;
    if let Some(unknown) = table.keys().find(|key| !KEYS.contains(&key.as_str())) {
        return Err(format!(
            "there is no key {}; did you mean {}?",
            quote(unknown),
            KEYS.map(|key| format!("`{key}`")).join(" or ")
        ));
    }
    match table.get("url") {
        None => Ok(Config::default()),
        Some(toml::Value::String(url)) => Ok(Config { url: Some(url.clone()) }),
        Some(_) => Err("`url` is not a string; write url = \"embedded:\"".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_file_and_bad_ones() {
        assert_eq!(parse("url = \"embedded:\"\n").unwrap().url.as_deref(), Some("embedded:"));
        assert_eq!(parse("").unwrap().url, None);
        let table = [
            ("ulr = 'x'", "did you mean `url`?"),
            ("url = 3", "not a string"),
            ("\n url = secret", "line 2"),
        ];
        for (text, expected) in table {
            let flaw = parse(text).unwrap_err();
            assert!(flaw.contains(expected), "{text}: {flaw}");
            assert!(!flaw.contains("secret"), "{flaw}");
        }
    }
}
