//! Looking at a store's servers and at this machine: what locks are good for as they are set up.

mod client;
mod cpu;

use lockfast_core::{Diagnosis, Error, ErrorKind, Finding, Result};

use crate::connect;
use crate::lease::keeper::Keeper;
use client::Machine;

/// Looks at the servers of the store at `url` and at this machine: how they are set up, what that
/// means for a lock, and what is left of the store's guarantee. Nothing is changed anywhere.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let diagnosis = lockfast::diagnose("memory:").await?;
/// for finding in &diagnosis.findings {
///     println!("{}: {}: {}", finding.severity, finding.check, finding.fact);
/// }
/// println!("good for {}: {}", diagnosis.guarantee, diagnosis.because);
/// # Ok(())
/// # }
/// ```
///
/// # Cancel safety
/// Safe: it only looks.
///
/// # Errors
/// [`ErrorKind::InvalidUrl`] before anything is touched; what the store meets. What this user may
/// not see is no error, but a finding that says so.
pub async fn diagnose(url: &str) -> Result<Diagnosis> {
    let (address, entry) = connect::resolve(url)?;
    // The caller may have any executor; the keeper's is one that stores can work on.
    let done = Keeper::of_this_process()?.runtime().spawn((entry.diagnose)(address)).await;
    let diagnosis = done.map_err(|error| {
        Error::new(ErrorKind::Internal, "the diagnosis ended").with_source(error)
    })??;
    let diagnosis = diagnosis.with(Machine::this().look());
    let checks = known_checks();
    let is_known = |finding: &&Finding| checks.iter().any(|(_, check)| *check == finding.check);
    let stranger = diagnosis.findings.iter().find(|finding| !is_known(finding));
    debug_assert!(stranger.is_none(), "not among the known checks: {stranger:?}");
    Ok(diagnosis)
}

/// All checks that [`diagnose`] may report: the scheme of a store that was compiled in, or `client`
/// for this machine, and the name of a check.
///
/// ```
/// let of_this_machine = lockfast::known_checks().into_iter().filter(|(of, _)| *of == "client");
/// for (_, check) in of_this_machine {
///     println!("{check}");
/// }
/// ```
pub fn known_checks() -> Vec<(&'static str, &'static str)> {
    let mut checks = connect::known_checks();
    checks.extend(client::CHECKS.iter().map(|check| ("client", *check)));
    checks
}
