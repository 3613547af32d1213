//! Which store is meant, and by what: `--on`, else `$LOCKFAST_URL`, else the config file, else the
//! default. Each of them may give a URL, or the name of a store of the config file.

use std::ffi::OsStr;

use lockfast_core::error::quote;

use crate::args::Global;
use crate::config::{self, Config};
use crate::exit::Failure;
use crate::plan::{URL_VARIABLE, withheld};

/// The store of whoever says nothing.
const DEFAULT: &str = "embedded:";

/// What named the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// `--on`.
    Option,
    /// `$LOCKFAST_URL`.
    Variable,
    /// `url` in the config file.
    File,
    /// Nothing did.
    Default,
}

/// The store that is meant.
#[derive(Debug)]
pub(crate) struct Choice {
    /// Its URL, which may hold a password.
    pub(crate) url: String,
    /// What named it.
    pub(crate) source: Source,
    /// Its name in the config file, if that is how it was named.
    pub(crate) name: Option<String>,
    /// The config file.
    pub(crate) config: Config,
}

impl Choice {
    /// Chooses.
    ///
    /// # Errors
    /// When what counts is no text, is empty, or names a store that the config file does not have.
    pub(crate) fn make(global: &Global) -> Result<Self, Failure> {
        let config = config::load(global.config.as_deref())?;
        let typed = global.on.as_ref().map(|url| utf8(url, "the store URL")).transpose()?;
        let exported =
            std::env::var_os(URL_VARIABLE).map(|url| utf8(&url, "$LOCKFAST_URL")).transpose()?;
        if withheld(global).is_some() {
            return Err(Failure::config(
                "the store of the run around this command is not known here, because its URL \
                 holds a password and is not handed down; give --on or --config",
            ));
        }
        if typed.is_none() && exported.as_deref() == Some("") {
            return Err(Failure::config(
                "$LOCKFAST_URL is set but empty; unset it, or for example use embedded:",
            ));
        }
        let given = [
            (Source::Option, typed),
            (Source::Variable, exported),
            (Source::File, config.url.clone()),
        ];
        let first = given.into_iter().find_map(|(source, text)| Some((source, text?)));
        let (source, text) = first.unwrap_or((Source::Default, DEFAULT.to_owned()));
        if !config::is_name(&text) {
            return Ok(Self { url: text, source, name: None, config });
        }
        match config.stores.get(&text) {
            Some(url) => Ok(Self { url: url.clone(), source, name: Some(text), config }),
            None => Err(unknown(&text, source, &config)),
        }
    }

    /// Whether the URL itself is in the arguments, where others see it.
    pub(crate) fn is_in_arguments(&self) -> bool {
        self.source == Source::Option && self.name.is_none()
    }
}

impl Source {
    /// How people write it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Option => "--on",
            Self::Variable => "$LOCKFAST_URL",
            Self::File => "`url` in the config file",
            Self::Default => "the default",
        }
    }

    /// In one word, stable.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Option => "option",
            Self::Variable => "variable",
            Self::File => "file",
            Self::Default => "default",
        }
    }
}

fn unknown(name: &str, source: Source, config: &Config) -> Failure {
    let file = config.path.as_ref().map_or_else(
        || "there is no config file, because HOME is not set".to_owned(),
        |path| {
            let path = quote(&path.to_string_lossy());
            let names: Vec<&str> = config.stores.keys().map(String::as_str).collect();
            match (config.is_there, names.is_empty()) {
                (false, _) => format!("the config file {path} is not there"),
                (true, true) => format!("the config file {path} names none"),
                (true, false) => format!("the config file {path} has {}", names.join(", ")),
            }
        },
    );
    Failure::config(format!(
        "{} is {}, and no store has that name: {file}; give a URL such as embedded:, or add \
         [store.{name}] with its url to the config file",
        source.text(),
        quote(name)
    ))
}

fn utf8(text: &OsStr, what: &str) -> Result<String, Failure> {
    text.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Failure::config(format!("{what} is not valid UTF-8")))
}
