//! Searches a model by hand, of a size that would be too slow for a test.
//!
//! ```sh
//! cargo run --release -p lockfast-sim --example search -- no_lost_update nodes=5 quorum=3 clients=3
//! ```
//!
//! The first argument is the invariant, by its file's name; the others change the setup. `timed`,
//! `undo`, `adopt` and `relock` switch something on. `roam=SEED` takes random ways
//! instead of all.

#![allow(clippy::print_stdout)]

use std::process::ExitCode;

use lockfast_core::Moment;
use lockfast_sim::invariant::{
    exclusion::EXCLUSION, lost_stays_lost::LOST_STAYS_LOST, no_lost_update::NO_LOST_UPDATE,
    no_older_write::NO_OLDER_WRITE, rising_fences::RISING_FENCES, unique_fences::UNIQUE_FENCES,
};
use lockfast_sim::{Expiry, Gate, Invariant, Outcome, Setup, exhaust, roam};

const ROAM_LENGTH: usize = 200;
const ROAM_STATES: usize = 20_000_000;

fn main() -> ExitCode {
    match search(&std::env::args().skip(1).collect::<Vec<_>>()) {
        Ok(Outcome { broken_by: None, .. }) => ExitCode::SUCCESS,
        Ok(Outcome { broken_by: Some(_), .. }) => ExitCode::FAILURE,
        Err(message) => {
            println!("{message}");
            ExitCode::from(2)
        }
    }
}

fn search(arguments: &[String]) -> Result<Outcome, String> {
    let (name, rest) = arguments.split_first().ok_or("which invariant? Give its file's name")?;
    let invariant = find(name)?;
    let mut setup = Setup::new(3, 2);
    let mut seed = None;
    for argument in rest {
        let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
        match key {
            "roam" => seed = Some(number(key, value)? as u64),
            _ => change(&mut setup, key, value)?,
        }
    }
    let begin = Moment::now();
    let outcome = match seed {
        Some(seed) => roam(setup, invariant, seed, ROAM_LENGTH, ROAM_STATES),
        None => exhaust(setup, invariant),
    }?;
    println!("{setup:?}");
    println!("{} states, {} steps deep", outcome.states, outcome.depth);
    println!("{:?}", Moment::now().since(begin));
    match &outcome.broken_by {
        None => println!("holds: {}", invariant.name),
        Some(way) => {
            println!("broken in {} steps: {}", way.len(), invariant.name);
            way.iter().for_each(|step| println!("  {step:?}"));
        }
    }
    Ok(outcome)
}

fn find(name: &str) -> Result<Invariant, String> {
    match name {
        "exclusion" => Ok(EXCLUSION),
        "lost_stays_lost" => Ok(LOST_STAYS_LOST),
        "no_lost_update" => Ok(NO_LOST_UPDATE),
        "no_older_write" => Ok(NO_OLDER_WRITE),
        "rising_fences" => Ok(RISING_FENCES),
        "unique_fences" => Ok(UNIQUE_FENCES),
        _ => Err(format!("no invariant is called {name:?}; they are the files in src/invariant")),
    }
}

fn change(setup: &mut Setup, key: &str, value: &str) -> Result<(), String> {
    match key {
        "nodes" => setup.nodes = number(key, value)?,
        "quorum" => setup.quorum = number(key, value)?,
        "clients" => setup.clients = number(key, value)?,
        "proposals" => setup.proposals = number(key, value)?,
        "renewals" => setup.renewals = number(key, value)?,
        "forgetful" => setup.forgetful = number(key, value)?,
        "fence_max" => setup.fence_max = u8::try_from(number(key, value)?).unwrap_or(u8::MAX),
        "timed" => setup.expiry = Expiry::AfterValidity,
        "undo" => setup.undo = true,
        "adopt" => setup.adopt = true,
        "relock" => setup.relock = true,
        "gate" => {
            setup.gate = match value {
                "unchecked" => Gate::Unchecked,
                "checked" => Gate::Checked,
                "opened" => Gate::Opened,
                _ => return Err(format!("gate is {value:?}; try unchecked, checked or opened")),
            }
        }
        _ => return Err(format!("{key:?} is no part of a setup")),
    }
    Ok(())
}

fn number(key: &str, value: &str) -> Result<usize, String> {
    value.parse().map_err(|_| format!("{key} is {value:?}, which is no number"))
}
