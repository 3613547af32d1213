//! `lockfast doctor`: what a store and this machine were found to be like, and what is left of the
//! store's guarantee.

use lockfast::{Diagnosis, Finding, Severity};
use serde_json::{Value, json};

use crate::args::{Doctor, Global};
use crate::exit::{self, Failure, Outcome};
use crate::output::{Output, write_out};
use crate::plan::Store;

/// Prints the diagnosis.
///
/// # Errors
/// When the store cannot be reached.
///
/// # Cancel safety
/// Safe: it only looks.
pub(crate) async fn run(args: &Doctor, global: &Global, output: &Output) -> Outcome {
    let store = Store::choose(global, output)?;
    let diagnosis = lockfast::diagnose(store.url()).await?;
    let is_shown = |finding: &&Finding| !args.quiet || finding.severity != Severity::Ok;
    let shown: Vec<&Finding> = diagnosis.findings.iter().filter(is_shown).collect();
    if output.json() {
        output.value(&value(&store, &diagnosis, &shown))?;
    } else {
        print(&diagnosis, &shown, output)?;
    }
    Ok(code(diagnosis.worst()))
}

/// What could not be checked alone is no reason to stop a deployment; it is told.
fn code(worst: Severity) -> u8 {
    match worst {
        Severity::Ok | Severity::Unknown => 0,
        Severity::Warn => exit::WARNED,
        Severity::Unsafe => exit::UNSAFE,
    }
}

/// The severity in one word, stable.
fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Ok => "ok",
        Severity::Unknown => "unknown",
        Severity::Warn => "warn",
        Severity::Unsafe => "unsafe",
    }
}

fn value(store: &Store, diagnosis: &Diagnosis, shown: &[&Finding]) -> Value {
    let finding = |finding: &&Finding| {
        json!({
            "check": finding.check,
            "server": finding.server,
            "severity": word(finding.severity),
            "fact": finding.fact,
            "meaning": finding.meaning,
            "fix": finding.fix,
        })
    };
    json!({
        "store": store.address().to_string(),
        "findings": shown.iter().map(finding).collect::<Vec<_>>(),
        "unchecked": count(diagnosis, Severity::Unknown),
        "worst": word(diagnosis.worst()),
        "guarantee": diagnosis.guarantee.to_string(),
        "because": diagnosis.because,
    })
}

fn count(diagnosis: &Diagnosis, severity: Severity) -> usize {
    diagnosis.findings.iter().filter(|finding| finding.severity == severity).count()
}

/// A line for each check, then what those mean that are not ok, then the guarantee.
fn print(diagnosis: &Diagnosis, shown: &[&Finding], output: &Output) -> Result<(), Failure> {
    let width = |of: fn(&Finding) -> usize| shown.iter().map(|it| of(it)).max().unwrap_or(0);
    let (check, server) = (width(|it| it.check.len()), width(|it| server(it).chars().count()));
    let mut text = String::new();
    for finding in shown {
        let severity = format!("{:<12}", finding.severity);
        text += &output.painted(colour(finding.severity), &severity);
        let mut place = format!("  {:<check$}", finding.check);
        if server > 0 {
            place += &format!("  {:<server$}", self::server(finding));
        }
        text += &format!("{}  {}\n", output.text(&place), output.text(&finding.fact));
    }
    for finding in shown.iter().filter(|finding| finding.severity != Severity::Ok) {
        text += &explain(finding, output);
    }
    text += &conclude(diagnosis, output);
    write_out(&text)
}

fn explain(finding: &Finding, output: &Output) -> String {
    let place = match &finding.server {
        Some(server) => format!("{} at {server}", finding.check),
        None => finding.check.to_owned(),
    };
    let mut text = format!("\n{}\n", output.painted(colour(finding.severity), &place));
    let lines = [("means", &finding.meaning), ("fix", &finding.fix)];
    for (what, said) in lines.into_iter().filter(|(_, said)| !said.is_empty()) {
        text += &format!("  {what:<6} {}\n", output.text(said));
    }
    text
}

fn conclude(diagnosis: &Diagnosis, output: &Output) -> String {
    let mut text = format!(
        "\nguarantee: {}, because {}\n",
        output.painted("1", &diagnosis.guarantee.to_string()),
        output.text(&diagnosis.because)
    );
    let counts = [Severity::Ok, Severity::Warn, Severity::Unsafe]
        .map(|severity| format!("{} {severity}", count(diagnosis, severity)));
    text += &format!(
        "checks: {}, {} could not be made\n",
        counts.join(", "),
        count(diagnosis, Severity::Unknown)
    );
    text
}

fn server(finding: &Finding) -> &str {
    finding.server.as_deref().unwrap_or_default()
}

fn colour(severity: Severity) -> &'static str {
    match severity {
        Severity::Ok => "32",
        Severity::Unknown => "36",
        Severity::Warn => "33",
        Severity::Unsafe => "1;31",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_decides_the_exit_code() {
        let table =
            [(Severity::Ok, 0), (Severity::Unknown, 0), (Severity::Warn, 1), (Severity::Unsafe, 2)];
        for (worst, expected) in table {
            assert_eq!(code(worst), expected, "{worst}");
        }
    }
}
