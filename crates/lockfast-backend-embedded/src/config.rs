//! What an address means for these stores. Nothing is guessed: an option that does not exist is
//! an error, and so is a path that a person probably meant otherwise.

use std::ffi::OsString;
use std::path::PathBuf;

use lockfast_core::address::{invalid, percent_decode};
use lockfast_core::error::quote;
use lockfast_core::{Address, Result};

/// An address that was understood.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Config {
    /// `memory:[NAME]`
    Memory {
        /// Shared under this name within the process; nobody's else without one.
        name: Option<String>,
    },
    /// `embedded:[PATH]`
    Embedded(Embedded),
}

/// Where the embedded store is and how careful it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Embedded {
    /// The store's directory.
    pub(crate) dir: PathBuf,
    /// Whether every commit waits for the disk, not only those that raise the fence's ceiling.
    pub(crate) sync_full: bool,
    /// Whose members share it, by name or number; nobody else's but this user's without one.
    pub(crate) group: Option<String>,
}

impl Config {
    /// Understands an address.
    pub(crate) fn read(address: &Address) -> Result<Self> {
        Self::read_in(address, |name| std::env::var_os(name))
    }

    fn read_in(address: &Address, env: impl Fn(&str) -> Option<OsString>) -> Result<Self> {
        let body = percent_decode(address.body())?;
        match address.scheme() {
            "memory" => {
                address.allow_options(&[])?;
                Ok(Self::Memory { name: (!body.is_empty()).then_some(body) })
            }
            "embedded" => {
                address.allow_options(&["group", "sync"])?;
                let sync_full = address.choice("sync", &[("normal", false), ("full", true)])?;
                let sync_full = sync_full.unwrap_or(false);
                let group = address.option("group").map(str::to_owned);
                let dir = match (body.is_empty(), &group) {
                    (true, None) => default_dir(env)?,
                    // Each of them has another home.
                    (true, Some(group)) => {
                        return Err(invalid(format!(
                            "the URL says that group {} shares the store, but not where it is; \
                             name a directory, as in embedded:/var/lib/lockfast-shared?group=NAME",
                            quote(group)
                        )));
                    }
                    (false, _) => checked_path(&body, "the embedded store", "embedded:PATH")?,
                };
                Ok(Self::Embedded(Embedded { dir, sync_full, group }))
            }
            other => Err(invalid(format!(
                "{} is not a scheme of the embedded stores; they are memory: and embedded:",
                quote(other)
            ))),
        }
    }
}

/// The file of `sqlite:PATH`.
pub(crate) fn read_database(address: &Address) -> Result<PathBuf> {
    address.allow_options(&[])?;
    match percent_decode(address.body())? {
        path if path.is_empty() => Err(invalid("the URL names no database; write sqlite:PATH")),
        path => checked_path(&path, "a SQLite database", "sqlite:PATH"),
    }
}

fn checked_path(path: &str, what: &str, form: &str) -> Result<PathBuf> {
    if path.starts_with('~') {
        return Err(invalid(format!(
            "the path {} starts with a ~ that no shell has replaced; write it in full, or ./~ if \
             that is its name",
            quote(path)
        )));
    }
    if path.starts_with("//") && !path.starts_with("///") {
        return Err(invalid(format!(
            "{what} has no host, but {} follows the scheme; write {form}",
            quote(path)
        )));
    }
    Ok(PathBuf::from(path))
}

/// `$XDG_STATE_HOME/lockfast`, or `~/.local/state/lockfast`.
fn default_dir(env: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf> {
    // The XDG specification says that a path that is not absolute counts as unset.
    let absolute = |name| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(state) = absolute("XDG_STATE_HOME") {
        return Ok(state.join("lockfast"));
    }
    match absolute("HOME") {
        Some(home) => Ok(home.join(".local/state/lockfast")),
        None => Err(invalid(
            "there is no place for the embedded store because neither XDG_STATE_HOME nor HOME is \
             set; name a directory, as in embedded:/var/lib/lockfast",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::ErrorKind;

    fn read(url: &str, env: &[(&str, &str)]) -> Result<Config> {
        Config::read_in(&Address::parse(url).unwrap(), |name| {
            env.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into())
        })
    }

    fn embedded(dir: &str, sync_full: bool) -> Config {
        Config::Embedded(Embedded { dir: dir.into(), sync_full, group: None })
    }

    fn shared(dir: &str, group: &str) -> Config {
        let group = Some(group.to_owned());
        Config::Embedded(Embedded { dir: dir.into(), sync_full: false, group })
    }

    #[test]
    fn addresses_that_are_understood() {
        let home = [("HOME", "/home/me")];
        let state = [("HOME", "/home/me"), ("XDG_STATE_HOME", "/state")];
        let relative = [("HOME", "/home/me"), ("XDG_STATE_HOME", "state")];
        let memory = |name: Option<&str>| Config::Memory { name: name.map(Into::into) };
        type Env<'a> = &'a [(&'a str, &'a str)];
        let table: &[(&str, Env<'_>, Config)] = &[
            ("memory:", &[], memory(None)),
            ("memory:a%20b", &[], memory(Some("a b"))),
            ("embedded:/x/y", &[], embedded("/x/y", false)),
            ("embedded:x", &[], embedded("x", false)),
            ("embedded:///x", &[], embedded("///x", false)),
            ("embedded:a%3Fb", &[], embedded("a?b", false)),
            ("embedded:/x?sync=full", &[], embedded("/x", true)),
            ("embedded:/x?sync=normal", &[], embedded("/x", false)),
            ("embedded:/x?group=a%20b", &[], shared("/x", "a b")),
            ("embedded:x?sync=normal&group=7", &[], shared("x", "7")),
            ("embedded:", &state, embedded("/state/lockfast", false)),
            ("embedded:", &home, embedded("/home/me/.local/state/lockfast", false)),
            ("embedded:", &relative, embedded("/home/me/.local/state/lockfast", false)),
        ];
        for (url, env, expected) in table {
            assert_eq!(&read(url, env).unwrap(), expected, "{url}");
        }
    }

    #[test]
    fn addresses_that_are_refused() {
        let table = [
            ("memory:?sync=full", "memory: has no option \"sync\"; it has none"),
            ("embedded:?snyc=full", "it knows group, sync"),
            ("embedded:?group=deploy", "group \"deploy\" shares the store, but not where it is"),
            ("embedded:/x?sync=maybe", "it can be normal or full"),
            ("embedded:~/x", "write it in full"),
            ("embedded://host/x", "has no host"),
            ("embedded:", "neither XDG_STATE_HOME nor HOME"),
            ("redis:", "memory: and embedded:"),
        ];
        for (url, expected) in table {
            let error = read(url, &[]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidUrl, "{url}");
            assert!(error.to_string().contains(expected), "{url}: {error}");
        }
    }
}
