//! `lockfast env`: which store is used, and why.

use lockfast_core::Address;
use lockfast_core::error::quote;
use serde_json::json;

use crate::args::Global;
use crate::choice::{Choice, Source};
use crate::exit::{Failure, Outcome};
use crate::output::Output;
use crate::plan::URL_VARIABLE;

/// Prints the store without its password, what named it, and what else is there.
///
/// # Errors
/// When the store cannot be told, as every other command would say.
pub(crate) fn run(global: &Global, output: &Output) -> Outcome {
    let choice = Choice::make(global)?;
    let address = Address::parse(&choice.url)?;
    check_scheme(address.scheme())?;
    let store = address.to_string();
    let passed_over = passed_over(&choice);
    let names: Vec<&str> = choice.config.stores.keys().map(String::as_str).collect();
    let path = choice.config.path.as_ref().map(|path| path.to_string_lossy().into_owned());
    if output.json() {
        output.value(&json!({
            "store": store,
            "source": choice.source.word(),
            "name": choice.name,
            "passed_over": passed_over.iter().map(|source| source.word()).collect::<Vec<_>>(),
            "config": { "path": path, "found": choice.config.is_there },
            "stores": names,
        }))?;
        return Ok(0);
    }
    output.line(&format!("store:   {store}"))?;
    output.line(&format!("because: {}", reason(&choice, &passed_over)))?;
    let found = if choice.config.is_there { "" } else { " (not there)" };
    let file = path.map_or_else(|| "none".to_owned(), |path| format!("{}{found}", quote(&path)));
    output.line(&format!("config:  {file}"))?;
    if !names.is_empty() {
        output.line(&format!("stores:  {}", names.join(", ")))?;
    }
    Ok(0)
}

/// Refuses what no store answers to, as whoever connects would.
fn check_scheme(scheme: &str) -> Result<(), Failure> {
    let known = lockfast::known_schemes();
    if known.contains(&format!("{scheme}:")) {
        return Ok(());
    }
    let (scheme, known) = (quote(scheme), known.join(", "));
    Err(Failure::config(format!("no store is called {scheme}; there is {known}")))
}

/// What also names a store, and does not count.
fn passed_over(choice: &Choice) -> Vec<Source> {
    let mut others = Vec::new();
    if choice.source == Source::Option && std::env::var_os(URL_VARIABLE).is_some() {
        others.push(Source::Variable);
    }
    if choice.config.url.is_some() && choice.source != Source::File {
        others.push(Source::File);
    }
    others
}

fn reason(choice: &Choice, passed_over: &[Source]) -> String {
    let mut text = match (choice.source, &choice.name) {
        (Source::Default, _) => {
            "nothing else is set: not --on, not $LOCKFAST_URL, no `url` in the config file".into()
        }
        (source, None) => format!("{} gives it", source.text()),
        (source, Some(name)) => format!("{} is {name}, a store of the config file", source.text()),
    };
    if !passed_over.is_empty() {
        let others: Vec<&str> = passed_over.iter().map(|source| source.text()).collect();
        text.push_str(&format!("; it counts before {}", others.join(" and ")));
    }
    text
}
