//! The report: one HTML file that needs nothing else.
//!
//! Text that came from outside is escaped where it is put into the page, and what the script draws
//! is given to it as data.

mod timeline;

use crate::judge::{Finding, Outcome, Party, Ruling, Verdict};
use crate::summary::{self, Mark};
pub(crate) use timeline::Timeline;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page for a verdict, with what is to be drawn.
pub(crate) fn page(verdict: &Verdict, timeline: Timeline) -> serde_json::Result<String> {
    let data = timeline.into_data(verdict);
    // No end of the script's element can be in it.
    let data = serde_json::to_string(&data)?.replace('<', "\\u003c");
    let (class, title) = match verdict.outcome {
        Outcome::Kept => ("kept", "kept"),
        Outcome::Broken => ("broken", "broken"),
        Outcome::Incomplete => ("incomplete", "not judged in full"),
    };
    let parts = [
        ("style", STYLE.to_owned()),
        ("title", format!("Lockfast torture: {title}")),
        ("class", class.to_owned()),
        ("headline", prose(&summary::headline(verdict))),
        ("run", run(verdict)),
        ("notes", notes(verdict)),
        ("rows", rows(verdict)),
        ("findings", findings(verdict)),
        ("data", data),
        ("script", SCRIPT.to_owned()),
    ];
    let mut page =
        String::with_capacity(PAGE.len() + parts.iter().map(|(_, t)| t.len()).sum::<usize>());
    let mut rest = PAGE;
    while let Some((before, after)) = rest.split_once("{{") {
        page.push_str(before);
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        let part = parts.iter().find(|(known, _)| *known == name);
        page.push_str(part.map_or("", |(_, text)| text));
        rest = after;
    }
    page.push_str(rest);
    Ok(page)
}

/// Text as it may stand in a page, also within quotes.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// Text of our own with `code` in it.
fn prose(text: &str) -> String {
    let parts = escape(text);
    let part = |(number, part): (usize, &str)| match number % 2 {
        0 => part.to_owned(),
        _ => format!("<code>{part}</code>"),
    };
    parts.split('`').enumerate().map(part).collect()
}

fn run(verdict: &Verdict) -> String {
    let Some(run) = &verdict.run else { return String::new() };
    let entries = [
        ("store", run.store.clone()),
        ("promises", run.guarantee.clone()),
        ("order", if run.fair { "first come, first served" } else { "none" }.to_owned()),
        ("seed", run.seed.to_string()),
        ("ttl", format!("{} s", run.ttl as f64 / 1e9)),
        ("fleet", format!("{} processes of {} tasks", run.processes, run.tasks)),
    ];
    let entry = |(name, value): &(&str, String)| {
        format!("<div><dt>{name}</dt><dd>{}</dd></div>", escape(value))
    };
    entries.iter().map(entry).collect()
}

fn notes(verdict: &Verdict) -> String {
    verdict.notes.iter().map(|note| format!("<li>{}</li>", prose(note))).collect()
}

fn rows(verdict: &Verdict) -> String {
    let row = |row: summary::Row| {
        let (class, word) = match row.mark {
            None => ("", ""),
            Some(Mark::Kept) => ("kept", "kept"),
            Some(Mark::Allowed) => ("allowed", "allowed"),
            Some(Mark::Broken) => ("broken", "broken"),
        };
        format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td><td><span class=\"mark {class}\">{word}</span></td></tr>\n",
            prose(row.what),
            prose(&row.seen)
        )
    };
    summary::rows(verdict).into_iter().map(row).collect()
}

fn findings(verdict: &Verdict) -> String {
    if verdict.findings.is_empty() {
        return "<p class=\"nothing\">Nothing was found.</p>".to_owned();
    }
    let found: u64 =
        verdict.found.values().map(|tally| tally.broken + tally.allowed + tally.revoked).sum();
    let mut text = String::new();
    if found > verdict.findings.len() as u64 {
        let (shown, found) = (verdict.findings.len() as u64, summary::grouped(found));
        let shown = summary::grouped(shown);
        text.push_str(&format!("<p>The first {shown} of {found}, by kind.</p>"));
    }
    text.push_str("<ol class=\"findings\">\n");
    for (number, finding) in verdict.findings.iter().enumerate() {
        text.push_str(&entry(number, finding, verdict.began));
    }
    text + "</ol>"
}

fn entry(number: usize, finding: &Finding, began: u64) -> String {
    let (class, word) = match finding.ruling {
        Ruling::Broken => ("broken", "broken"),
        Ruling::Allowed => ("allowed", "allowed"),
        Ruling::Revoked => ("revoked", "revoked"),
    };
    let seconds = |at: u64| format!("{:.3} s", at.saturating_sub(began) as f64 / 1e9);
    let party = |party: &Party| {
        let worker = party.worker.map_or("a run".to_owned(), |worker| worker.to_string());
        let fence = party.fence.map_or("–".to_owned(), |fence| fence.to_string());
        let time = |at: Option<u64>| at.map_or("–".to_owned(), seconds);
        format!(
            "<tr><td>{worker}</td><td>{}</td><td>{fence}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            party.claim,
            seconds(party.asked),
            time(party.granted),
            time(party.proof)
        )
    };
    let parties: String = finding.parties.iter().map(party).collect();
    let parties = if parties.is_empty() {
        parties
    } else {
        format!(
            "<table><thead><tr><th>worker</th><th>claim</th><th>fence</th><th>asked</th>\
             <th>granted</th><th>last had it</th></tr></thead><tbody>{parties}</tbody></table>"
        )
    };
    let fault = |fault: &crate::judge::FaultSpan| {
        let until = fault.until.map_or("the end".to_owned(), seconds);
        format!(
            "<li>{} of {}, {} to {until}</li>",
            escape(&fault.fault),
            escape(&fault.target),
            seconds(fault.from)
        )
    };
    let faults: String = finding.faults.iter().map(fault).collect();
    let faults = if faults.is_empty() {
        "<p>No fault around it.</p>".to_owned()
    } else {
        format!("<p>Faults around it:</p><ul>{faults}</ul>")
    };
    format!(
        "<li id=\"finding-{number}\"><div class=\"line\"><span class=\"mark {class}\">{word}</span> \
         <span class=\"text\">{}</span> <a class=\"show\" href=\"#timeline\" \
         data-finding=\"{number}\">show in the timeline</a></div><p class=\"reason\">{}</p>\
         <details><summary>claims and faults</summary>{parties}{faults}</details></li>\n",
        prose(&finding.text),
        prose(&finding.reason)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Judge;

    #[test]
    fn what_came_from_outside_is_text() {
        assert_eq!(
            escape("<a href=\"x\" id='y'>&"),
            "&lt;a href=&quot;x&quot; id=&#39;y&#39;&gt;&amp;"
        );
        let mut verdict = Judge::default().finish(0);
        verdict.notes = vec!["</script><b>{{data}}".to_owned()];
        let page = page(&verdict, Timeline::default()).unwrap();
        assert!(page.contains("<li>&lt;/script&gt;&lt;b&gt;{{data}}</li>"));
        assert!(!page.contains("</script><b>"));
    }
}
