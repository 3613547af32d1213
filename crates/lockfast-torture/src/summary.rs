//! A verdict for people: a headline and a short table.

use std::collections::BTreeMap;

use crate::judge::{Finding, Kind, Outcome, Ruling, Tally, Verdict};

/// Findings that the text names; the report has more.
const NAMED_MAX: usize = 5;

/// A line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What was looked at.
    pub what: &'static str,
    /// What was seen.
    pub seen: String,
    /// Whether that is as promised; none where nothing is promised.
    pub mark: Option<Mark>,
}

/// Whether what was seen is as promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It is.
    Kept,
    /// There is something that the store does not promise to prevent.
    Allowed,
    /// It is not.
    Broken,
}

impl Mark {
    /// In one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Allowed => "allowed",
            Self::Broken => "BROKEN",
        }
    }
}

/// What the run came to, in one sentence.
pub fn headline(verdict: &Verdict) -> String {
    let counts = &verdict.counts;
    let faults: u64 = counts.faults.values().sum();
    let scope = format!(
        "{} grants and {faults} faults in {}",
        grouped(counts.granted),
        span(verdict.seconds)
    );
    let allowed: u64 = verdict.found.values().map(|tally| tally.allowed).sum();
    match verdict.outcome {
        Outcome::Broken => {
            let broken = counts.broken;
            let word = if broken == 1 { "promise was" } else { "promises were" };
            format!(
                "{} {word} broken in {}, with {} grants and {faults} faults",
                grouped(broken),
                span(verdict.seconds),
                grouped(counts.granted)
            )
        }
        Outcome::Incomplete => {
            format!("Not judged in full: {}; {scope}", verdict.notes.join("; "))
        }
        Outcome::Kept if allowed > 0 => format!(
            "All promises were kept: {scope}; {} double grants that this store does not promise \
             to prevent",
            grouped(allowed)
        ),
        Outcome::Kept => format!("All promises were kept: {scope}"),
    }
}

/// The table.
pub fn rows(verdict: &Verdict) -> Vec<Row> {
    let found = |kind| verdict.found.get(&kind).copied().unwrap_or_default();
    let finding = |what, kind| {
        let tally = found(kind);
        Row { what, seen: count_of(tally), mark: Some(mark_of(tally)) }
    };
    let plain = |what, seen| Row { what, seen, mark: None };
    let counts = &verdict.counts;
    let mut rows = vec![
        plain("acquisitions", acquisitions(verdict)),
        plain("faults", parts(&counts.faults)),
        plain(
            "processes",
            format!(
                "{} started, {} killed, {} commands under `run`",
                grouped(counts.workers_started),
                grouped(counts.workers_killed),
                grouped(counts.runs)
            ),
        ),
        finding("two held an exclusive lock at once", Kind::Overlap),
        finding("a reader beside a writer", Kind::ReaderBesideWriter),
        finding("more holders than permits", Kind::PermitsExceeded),
        finding("fences that did not rise", Kind::FenceNotRising),
        Row {
            what: "fenced writes",
            seen: format!(
                "{} tried, {} refused, {} stale let through",
                grouped(verdict.writes.tried),
                grouped(verdict.writes.refused),
                grouped(verdict.writes.stale_admitted)
            ),
            mark: Some(mark_of(found(Kind::StaleWrite))),
        },
        Row {
            what: "losses",
            seen: losses(verdict),
            mark: Some(mark_of(found(Kind::LossToldLate))),
        },
    ];
    rows.push(plain("take-over after a crash", take_over(verdict)));
    let free = &verdict.free_wait;
    rows.push(Row {
        what: "longest wait while the lock was free",
        seen: format!(
            "{} without outages and the waiter's own faults ({} with them), at most {}",
            nanos(free.longest_counted),
            nanos(free.longest),
            nanos(free.bound)
        ),
        mark: Some(mark_of(found(Kind::Starved))),
    });
    rows.push(left(found));
    if found(Kind::WorkerFailed).broken > 0 {
        rows.push(finding("workers that ended by themselves", Kind::WorkerFailed));
    }
    rows
}

/// Headline, table and the first findings, as text with lines.
pub fn text(verdict: &Verdict) -> String {
    let rows = rows(verdict);
    let width = rows.iter().map(|row| row.what.len()).max().unwrap_or_default();
    let mut text = headline(verdict) + "\n\n";
    for row in &rows {
        let mark = row.mark.map_or("", Mark::word);
        text.push_str(&format!("{mark:<8}{:<width$}  {}\n", row.what, row.seen));
    }
    let is_told = |finding: &&Finding| finding.ruling != Ruling::Revoked;
    let findings: Vec<&Finding> = verdict.findings.iter().filter(is_told).collect();
    if !findings.is_empty() {
        text.push('\n');
    }
    for finding in findings.iter().take(NAMED_MAX) {
        let word = match finding.ruling {
            Ruling::Broken => Mark::Broken.word(),
            Ruling::Allowed | Ruling::Revoked => Mark::Allowed.word(),
        };
        text.push_str(&format!("{word}: {} ({})\n", finding.text, finding.reason));
    }
    if findings.len() > NAMED_MAX {
        text.push_str("more of them are in the report\n");
    }
    text
}

fn mark_of(tally: Tally) -> Mark {
    match tally {
        Tally { broken: 0, allowed: 0, .. } => Mark::Kept,
        Tally { broken: 0, .. } => Mark::Allowed,
        _ => Mark::Broken,
    }
}

fn count_of(tally: Tally) -> String {
    let mut text = match (tally.broken, tally.allowed) {
        (0, 0) => "never".to_owned(),
        (broken, 0) => times(broken),
        (0, allowed) => times(allowed),
        (broken, allowed) => {
            format!("{}, and {} where it is allowed", times(broken), times(allowed))
        }
    };
    if tally.revoked > 0 {
        text.push_str(&format!(" (but {} after a revocation)", times(tally.revoked)));
    }
    text
}

fn times(count: u64) -> String {
    match count {
        1 => "once".to_owned(),
        _ => format!("{} times", grouped(count)),
    }
}

fn acquisitions(verdict: &Verdict) -> String {
    let counts = &verdict.counts;
    let mut text =
        format!("{} asked for, {} granted", grouped(counts.asked), grouped(counts.granted));
    if !counts.not_granted.is_empty() {
        text.push_str(&format!("; not: {}", parts(&counts.not_granted)));
    }
    text
}

fn losses(verdict: &Verdict) -> String {
    let losses = &verdict.losses;
    let mut text = grouped(losses.count);
    if !losses.causes.is_empty() {
        text.push_str(&format!(" ({})", parts(&losses.causes)));
    }
    if let (Some(shortest), Some(median)) =
        (losses.shortest_before_deadline, losses.median_before_deadline)
    {
        let (shortest, median) = (before(shortest), before(median));
        text.push_str(&format!(", told {median} in the median, the last {shortest}"));
    }
    if losses.late > 0 {
        text.push_str(&format!(", {} too late", grouped(losses.late)));
    }
    text
}

fn take_over(verdict: &Verdict) -> String {
    let Some(longest) = &verdict.take_over else {
        return "no holder died while somebody waited".to_owned();
    };
    format!(
        "{} at most of {}, of which {} without outages and faults of who got it",
        nanos(longest.took),
        grouped(longest.count),
        nanos(longest.took_without_outages)
    )
}

fn left(found: impl Fn(Kind) -> Tally) -> Row {
    let kinds = [
        (Kind::HeldAtEnd, "held"),
        (Kind::WaitedForAtEnd, "waited for"),
        (Kind::ProcessLeft, "processes left by `run`"),
    ];
    let all: Vec<(u64, &str)> =
        kinds.into_iter().map(|(kind, word)| (found(kind).broken, word)).collect();
    let is_left = all.iter().any(|(count, _)| *count > 0);
    let seen = match is_left {
        false => "nothing".to_owned(),
        true => {
            let words = all.iter().filter(|(count, _)| *count > 0);
            let words = words.map(|(count, word)| format!("{} {word}", grouped(*count)));
            words.collect::<Vec<_>>().join(", ")
        }
    };
    let mark = if is_left { Mark::Broken } else { Mark::Kept };
    Row { what: "left at the end", seen, mark: Some(mark) }
}

fn parts(counts: &BTreeMap<String, u64>) -> String {
    if counts.is_empty() {
        return "none".to_owned();
    }
    let part = |(name, count): (&String, &u64)| format!("{} {name}", grouped(*count));
    counts.iter().map(part).collect::<Vec<_>>().join(", ")
}

/// `1 234 567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

fn nanos(span_ns: u64) -> String {
    span(span_ns as f64 / 1e9)
}

fn span(seconds: f64) -> String {
    match seconds {
        ..0.0995 => format!("{:.1} ms", seconds * 1e3),
        ..0.9995 => format!("{:.0} ms", seconds * 1e3),
        ..99.95 => format!("{seconds:.1} s"),
        _ => format!("{seconds:.0} s"),
    }
}

fn before(span_ns: i64) -> String {
    match span_ns {
        0.. => format!("{} before the deadline", nanos(span_ns.unsigned_abs())),
        _ => format!("{} after the deadline", nanos(span_ns.unsigned_abs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1 234 567");
        assert_eq!(nanos(1_500_000), "1.5 ms");
        assert_eq!(nanos(250_000_000), "250 ms");
        assert_eq!(nanos(12_340_000_000), "12.3 s");
        assert_eq!(before(-2_000_000), "2.0 ms after the deadline");
    }

    #[test]
    fn a_table_says_what_is_kept_allowed_and_broken() {
        let mut verdict = crate::judge::Judge::default().finish(0);
        verdict.outcome = Outcome::Broken;
        verdict.counts.broken = 1;
        verdict.found.insert(Kind::Overlap, Tally { broken: 0, allowed: 3, revoked: 0 });
        verdict.found.insert(Kind::FenceNotRising, Tally { broken: 1, allowed: 0, revoked: 2 });
        let text = text(&verdict);
        assert!(text.starts_with("1 promise was broken in 0.0 ms, with 0 grants and 0 faults\n\n"));
        let has = |mark: &str, what: &str, seen: &str| {
            text.lines()
                .any(|line| line.starts_with(mark) && line.contains(what) && line.ends_with(seen))
        };
        assert!(has("allowed", "two held an exclusive lock at once", "3 times"), "{text}");
        assert!(
            has("BROKEN", "fences that did not rise", "once (but 2 times after a revocation)"),
            "{text}"
        );
        assert!(has("kept", "more holders than permits", "never"), "{text}");
        assert!(has("kept", "left at the end", "nothing"), "{text}");
    }
}
