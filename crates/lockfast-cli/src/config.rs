//! The config file: `$XDG_CONFIG_HOME/lockfast/config.toml`, else `~/.config/lockfast/config.toml`.
//!
//! ```toml
//! url = "prod"             # the store, by its URL or by the name of one below
//!
//! [store.prod]
//! url = "postgres://locks@db.internal/locks"
//! ```

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use lockfast_core::error::quote;

use crate::exit::Failure;

/// More than any config file needs; a wrong path must not fill the memory.
const BYTES_MAX: u64 = 64 * 1024;

/// Every key that there is, and those of a store.
const KEYS: [&str; 2] = ["url", "store"];
const STORE_KEYS: [&str; 1] = ["url"];

/// What the config file says.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// Where it is or would be, unless nobody can know.
    pub(crate) path: Option<PathBuf>,
    /// Whether it is there.
    pub(crate) is_there: bool,
    /// The store: a URL, or the name of one of [`Config::stores`].
    pub(crate) url: Option<String>,
    /// The URLs of the stores that have names.
    pub(crate) stores: BTreeMap<String, String>,
}

/// Reads the named file, or the one at the usual place if there is one.
///
/// # Errors
/// A file that was named must be there; whatever is there must be readable and right.
pub(crate) fn load(named: Option<&Path>) -> Result<Config, Failure> {
    let Some(path) = named.map(Path::to_owned).or_else(usual_path) else {
        return Ok(Config::default());
    };
    let shown = quote(&path.to_string_lossy());
    let unread = |flaw| Failure::config(format!("the config file {shown} cannot be read: {flaw}"));
    if named.is_none() && is_absent(&path).map_err(|error| unread(error.to_string()))? {
        return Ok(Config { path: Some(path), ..Config::default() });
    }
    let text = read(&path).map_err(unread)?;
    let config =
        parse(&text).map_err(|flaw| Failure::config(format!("the config file {shown}: {flaw}")))?;
    Ok(Config { path: Some(path), is_there: true, ..config })
}

/// Whether nothing is there. A link to nowhere is something, and so is what this user may not see: who
/// then took the default store would share no lock with those who can read the file.
fn is_absent(path: &Path) -> io::Result<bool> {
    match path.symlink_metadata() {
        Ok(_) => Ok(false),
        Err(error) => match error.kind() {
            // No file is below one that is no directory, such as /dev/null, the home of some services.
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Ok(true),
            _ => Err(error),
        },
    }
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
    check_keys(&table, &KEYS, "")?;
    let url = string(&table, "url", "")?;
    let mut stores = BTreeMap::new();
    match table.get("store") {
        None => {}
        Some(toml::Value::Table(named)) => {
            for (name, value) in named {
                stores.insert(name.clone(), store(name, value)?);
            }
        }
        Some(_) => return Err("`store` is not a table; write [store.NAME]".to_owned()),
    }
    Ok(Config { url, stores, ..Config::default() })
}

/// The URL of a store that has a name.
fn store(name: &str, value: &toml::Value) -> Result<String, String> {
    if !is_name(name) {
        return Err(format!(
            "{} cannot be the name of a store; use letters, digits, - and _",
            shown_key(name)
        ));
    }
    let place = format!(" in [store.{name}]");
    let toml::Value::Table(table) = value else {
        return Err(format!("{} is not a table; write [store.{name}]", quote(name)));
    };
    check_keys(table, &STORE_KEYS, &place)?;
    match string(table, "url", &place)? {
        None => Err(format!("there is no `url`{place}")),
        Some(url) if is_name(&url) => Err(format!(
            "`url`{place} is not a URL, which starts with a word and a colon, as \"embedded:\"; only \
             the first `url` of the file can be the name of a store"
        )),
        Some(url) => Ok(url),
    }
}

/// A key for people, unless it may be something else that was put in its place, such as a URL with a
/// password.
fn shown_key(key: &str) -> String {
    if is_name(key) { quote(key) } else { "what stands in place of a key".to_owned() }
}

/// Whether this can be the name of a store, which no URL can: that has a colon.
pub(crate) fn is_name(text: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !text.is_empty() && text.bytes().all(is_fit)
}

fn check_keys(table: &toml::Table, known: &[&str], place: &str) -> Result<(), String> {
    let Some(unknown) = table.keys().find(|key| !known.contains(&key.as_str())) else {
        return Ok(());
    };
    let told = match known.iter().find(|key| is_slip(unknown, key)) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None => {
            let known: Vec<String> = known.iter().map(|key| format!("`{key}`")).collect();
            format!("there is {}", known.join(" and "))
        }
    };
    match is_name(unknown) {
        true => Err(format!("there is no key {}{place}; {told}", quote(unknown))),
        false => Err(format!("{}{place} is no key; {told}", shown_key(unknown))),
    }
}

/// Whether somebody who typed `typed` can have meant `meant`: a letter too many, too few or wrong, or
/// two in the wrong order.
fn is_slip(typed: &str, meant: &str) -> bool {
    let (typed, meant) = (typed.as_bytes(), meant.as_bytes());
    let same = |a: &[u8], b: &[u8]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let start = same(typed, meant);
    let (typed, meant) = (&typed[start..], &meant[start..]);
    match (typed, meant) {
        ([a, b, tail @ ..], [c, d, end @ ..]) if (a, b) == (d, c) && tail == end => true,
        ([_, tail @ ..], [_, end @ ..]) if tail == end => true,
        ([_, tail @ ..], whole) if tail == whole => true,
        (whole, [_, end @ ..]) => whole == end,
        _ => false,
    }
}

fn string(table: &toml::Table, key: &str, place: &str) -> Result<Option<String>, String> {
    match table.get(key) {
        None => Ok(None),
        Some(toml::Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(format!("`{key}`{place} is not a string; write {key} = \"embedded:\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_file_and_bad_ones() {
        assert_eq!(parse("url = \"embedded:\"\n").unwrap().url.as_deref(), Some("embedded:"));
        assert_eq!(parse("").unwrap().url, None);
        let named = parse("url = 'b'\n[store.a]\nurl = 'x:'\n[store.b]\nurl = 'y:'\n").unwrap();
        let stores: Vec<_> = named.stores.iter().map(|(name, url)| (&**name, &**url)).collect();
        assert_eq!(stores, [("a", "x:"), ("b", "y:")]);
        let table = [
            ("ulr = 'x'", "did you mean `url`?"),
            ("ttl = '5s'", "there is no key \"ttl\"; there is `url` and `store`"),
            ("stores = 'x'", "did you mean `store`?"),
            ("url = 3", "not a string"),
            ("\n url = secret", "line 2"),
            ("store = 'secret'", "write [store.NAME]"),
            ("[store]\na = 'secret'", "write [store.a]"),
            ("[store.a]\nul = 'secret'", "in [store.a]; did you mean `url`?"),
            ("[store.a]\nttl = 'secret'", "in [store.a]; there is `url`"),
            ("[store.a]\nurl = 3", "`url` in [store.a] is not a string"),
            ("[store.a]", "there is no `url` in [store.a]"),
            ("[store.'a b']\nurl = 'secret'", "letters, digits, - and _"),
            ("[store.a]\nurl = 'secret'", "`url` in [store.a] is not a URL"),
            ("'redis://u:secret@h' = 1", "what stands in place of a key is no key"),
            ("[store.a]\n'redis://u:secret@h' = 1", "in [store.a] is no key; there is `url`"),
            ("[store]\n'redis://u:secret@h' = 1", "cannot be the name of a store"),
        ];
        for (text, expected) in table {
            let flaw = parse(text).unwrap_err();
            assert!(flaw.contains(expected), "{text}: {flaw}");
            assert!(!flaw.contains("secret"), "{flaw}");
        }
    }

    #[test]
    fn slips_of_the_keyboard() {
        for slip in ["ulr", "ur", "urll", "uri", "turl", "rul"] {
            assert!(is_slip(slip, "url"), "{slip}");
        }
        for other in ["ttl", "lru", "u", "wait", ""] {
            assert!(!is_slip(other, "url"), "{other}");
        }
    }
}
