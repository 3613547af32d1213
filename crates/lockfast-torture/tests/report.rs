//! The report in a real browser: what was found is there, the timeline is drawn, and text that came
//! from outside stays text.

use std::path::Path;
use std::process::Command;

use lockfast_faults::program;
use lockfast_torture::history::{Event, FORMAT, Mode, What};
use lockfast_torture::judge::Kind;
use lockfast_torture::referee;

const MS: u64 = 1_000_000;

/// What would do something if it were taken for more than text.
const NAME: &str = "a</script><img src=x onerror=\"document.title='obeyed'\">";

/// Two workers take turns, and then both have it.
fn events() -> Vec<Event> {
    let mut events = Vec::new();
    let mut add = |at: u64, worker, what| events.push(Event { at: at * MS, worker, what });
    add(
        0,
        None,
        What::Start {
            format: FORMAT,
            seed: 7,
            store: NAME.into(),
            guarantee: "correctness".into(),
            fair: true,
            ttl: 1000 * MS,
            lasts: 10_000 * MS,
            processes: 2,
            tasks: 1,
            locks: vec![NAME.into()],
        },
    );
    let (fault, target) = (NAME.to_owned(), format!("server {NAME}"));
    add(700, None, What::Fault { number: 1, fault, target, outage: true, beyond: false });
    add(800, None, What::Healed { number: 1 });
    for claim in 0..500_u64 {
        let (from, worker) = (1_000 + claim * 10, Some((claim % 2) as u32));
        let to = from + if claim == 250 { 15 } else { 8 };
        let deadline = (to + 1000) * MS;
        let (lock, how) = (NAME.to_owned(), "drop".to_owned());
        add(from, worker, What::Asked { claim, lock, mode: Mode::Exclusive, wait: None });
        add(from, worker, What::Granted { claim, fence: claim + 1, deadline });
        add(to, worker, What::Ended { claim, how, cause: None, last: None, deadline, kept: None });
    }
    let (held, waited_for, processes) = Default::default();
    add(10_000, None, What::Left { held, waited_for, processes });
    add(10_000, None, What::End);
    events.sort_by_key(|event| event.at);
    events
}

/// The page as the browser has it when its script has run.
fn page_in_browser(directory: &Path, hash: &str) -> String {
    let mut browser = Command::new(program::find("chromium"));
    browser.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--disable-dev-shm-usage",
        "--window-size=1400,2000",
        "--virtual-time-budget=2000",
        "--dump-dom",
    ]);
    browser.arg(format!("--user-data-dir={}", directory.join("profile").display()));
    browser.arg(format!("file://{}/{}{hash}", directory.display(), referee::REPORT));
    program::run_well(&mut browser)
}

/// An attribute of the page's root.
fn attribute(page: &str, name: &str) -> String {
    let (_, rest) = page.split_once(&format!("{name}=\"")).unwrap_or_default();
    rest.split('"').next().unwrap_or_default().to_owned()
}

#[test]
fn a_browser_shows_what_was_found() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path().canonicalize().unwrap();
    let lines = events().into_iter().map(|event| serde_json::to_string(&event).unwrap() + "\n");
    std::fs::write(directory.join("all.jsonl"), lines.collect::<String>()).unwrap();
    let verdict = referee::conclude(&directory, &directory).unwrap();
    assert_eq!(verdict.found.get(&Kind::Overlap).map(|tally| tally.broken), Some(1));

    let page = page_in_browser(&directory, "#finding-0");
    assert_eq!(attribute(&page, "data-errors"), "0");
    assert_eq!(attribute(&page, "data-ready"), "yes");
    // The finding is chosen, so that only what is around it is drawn.
    let drawn: u32 = attribute(&page, "data-drawn").parse().unwrap();
    assert!((3..100).contains(&drawn), "{drawn} bars");
    assert!(page.contains("<title>Lockfast torture: broken</title>"), "{page:.2000}");
    assert!(page.contains("1 promise was broken"), "{page:.2000}");
    let text = "a&lt;/script&gt;&lt;img src=x onerror=\"document.title='obeyed'\"&gt;";
    assert!(page.contains(&format!("two held \"{text}\" at 3.510 s: worker 0 (claim 250, fence 251), worker 1 (claim 251, fence 252)")));
    assert!(page.contains("class=\"chosen\""), "the finding is marked in the list");
    // As text in what the browser made: the store, the finding, the legend.
    assert!(page.matches(text).count() >= 3);
    assert!(!page.contains("<img"), "it is not an element");

    let page = page_in_browser(&directory, "");
    assert_eq!(attribute(&page, "data-errors"), "0");
    let drawn: u32 = attribute(&page, "data-drawn").parse().unwrap();
    assert!(drawn >= 400, "{drawn} bars of the whole run");
}
