//! Short runs of `torture` with the real binary, on a store without a server and through proxies.

use std::collections::HashSet;

use lockfast_faults::redis::Setup;
use lockfast_torture::history::{Event, What};
use rustix::process::Signal;

use crate::sandbox::{Finished, Sandbox, eventually};

/// Long enough for some faults on leases this short.
const SHORT: [&str; 9] =
    ["torture", "--minutes", "0.07", "--ttl", "500ms", "--processes", "3", "--out", "out"];

fn history(sandbox: &Sandbox) -> Vec<Event> {
    let files = std::fs::read_dir(sandbox.path("out")).unwrap().map(|entry| entry.unwrap().path());
    let is_part = |path: &std::path::PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let starts =
            ["director", "worker-", "run-", "job-"].iter().any(|start| name.starts_with(start));
        starts && name.ends_with(".jsonl")
    };
    let mut events: Vec<Event> = Vec::new();
    for path in files.filter(is_part) {
        let text = std::fs::read_to_string(path).unwrap();
        events.extend(text.lines().map(|line| serde_json::from_str::<Event>(line).unwrap()));
    }
    events.sort_by_key(|event| event.at);
    events
}

fn count(events: &[Event], is_it: impl Fn(&What) -> bool) -> usize {
    events.iter().filter(|event| is_it(&event.what)).count()
}

/// Nothing is left, everybody ended well, and something was done.
#[track_caller]
fn check_whole(events: &[Event], finished: &Finished) {
    let said = &finished.stderr;
    assert!(matches!(events[0].what, What::Start { seed: 7, .. }), "{:?}", events[0]);
    assert!(matches!(events[events.len() - 1].what, What::End), "{said}");
    let left = events.iter().find_map(|event| match &event.what {
        What::Left { held, waited_for, processes } => {
            Some((held.clone(), waited_for.clone(), processes.clone()))
        }
        _ => None,
    });
    assert_eq!(left, Some((Vec::new(), Vec::new(), Vec::new())), "{said}");
    let ended_well = |what: &What| matches!(what, What::WorkerEnded { code: Some(0), .. });
    assert_eq!(count(events, ended_well), 3, "{said}");
    let granted = count(events, |what| matches!(what, What::Granted { .. }));
    assert!(granted > 50, "{granted} grants: {said}");
    let faults = count(events, |what| matches!(what, What::Fault { .. }));
    assert!(faults > 0, "{said}");
    assert_eq!(faults, count(events, |what| matches!(what, What::Healed { .. })), "{said}");
    // Every acquisition of a process that was not killed ended in one way.
    let killed: HashSet<Option<u32>> = events
        .iter()
        .filter_map(|event| match event.what {
            What::WorkerKilled { worker } => Some(Some(worker)),
            _ => None,
        })
        .collect();
    for event in events.iter().filter(|event| !killed.contains(&event.worker)) {
        let What::Asked { claim: asked, .. } = event.what else { continue };
        let answers = count(events, |what| match what {
            What::Granted { claim, .. } | What::NotGranted { claim, .. } => *claim == asked,
            _ => false,
        });
        // The command of a `run` records its grant itself, and may be ended before it does.
        let is_run = |what: &What| matches!(what, What::RunEnded { claim } if *claim == asked);
        let is_ended = event.worker.is_none() && count(events, is_run) == 1;
        assert!(answers == 1 || (answers == 0 && is_ended), "{event:?}: {answers}");
    }
}

#[test]
fn a_short_run_on_the_embedded_store() {
    let sandbox = Sandbox::new();
    let finished = sandbox.run(SHORT.iter().chain(&["--seed", "7", "--json"])).expect(0);
    let verdict = finished.json();
    assert_eq!(verdict["outcome"], "kept", "{verdict:#}");
    let stored: serde_json::Value =
        serde_json::from_str(&sandbox.read("out/verdict.json")).unwrap();
    assert_eq!(stored, verdict);
    assert!(
        finished.stderr.contains("left out cut, stall, delay, lost-replies, partition: "),
        "{}",
        finished.stderr
    );
    check_whole(&history(&sandbox), &finished);
}

#[test]
fn a_short_run_through_proxies_with_a_password_that_nobody_sees() {
    let redis = Setup::new().password("geheim").start();
    let sandbox = Sandbox::on(&redis.url());
    let finished = sandbox.run(SHORT.iter().chain(&["--seed", "7"])).expect(0);
    check_whole(&history(&sandbox), &finished);
    assert!(!finished.stderr.contains("geheim"), "{}", finished.stderr);
    for entry in std::fs::read_dir(sandbox.path("out")).unwrap() {
        let path = entry.unwrap().path();
        let bytes = if path.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        let holds_it = bytes.windows(6).any(|window| window == b"geheim");
        assert!(!holds_it, "{}", path.display());
    }
}

#[test]
fn a_partition_cuts_several_workers_off() {
    let redis = Setup::new().start();
    let sandbox = Sandbox::on(&redis.url());
    let options = ["--seed", "7", "--faults", "partition"];
    let finished = sandbox.run(SHORT.iter().chain(&options)).expect(0);
    let events = history(&sandbox);
    check_whole(&events, &finished);
    let faults = events.iter().filter_map(|event| match &event.what {
        What::Fault { number, target, .. } => Some((event.at, *number, target.as_str())),
        _ => None,
    });
    // Half of a second after both were cut off, and with that one ttl, nobody grants them anything.
    let (mut cut_off, mut left) = (Vec::new(), 0);
    for (from, number, target) in faults {
        let (_, workers) = target.split_once("the way of workers ").unwrap();
        let workers: Vec<u32> = workers.split(", ").map(|it| it.parse().unwrap()).collect();
        assert_eq!(workers.len(), 2, "{target}");
        let healed = |what: &What| matches!(what, What::Healed { number: its } if *its == number);
        let until = events.iter().find(|event| healed(&event.what)).unwrap().at;
        let within = from + 500_000_000..until;
        let granted = events.iter().filter(|event| {
            within.contains(&event.at) && matches!(event.what, What::Granted { .. })
        });
        for event in granted {
            let is_cut_off = event.worker.is_some_and(|worker| workers.contains(&worker));
            if is_cut_off { cut_off.push(event) } else { left += 1 }
        }
    }
    assert!(cut_off.is_empty(), "{cut_off:?}");
    assert!(left > 0, "nobody used the locks meanwhile");
}

#[test]
fn an_interrupted_run_ends_in_order() {
    let sandbox = Sandbox::new();
    let arguments =
        ["torture", "--minutes", "60", "--ttl", "500ms", "--seed", "7", "--processes", "3"];
    let running = sandbox.start(arguments.iter().chain(&["--out", "out"]));
    let faults = || {
        let events = sandbox.read("out/director.jsonl");
        events.contains("\"fault\"")
    };
    eventually("the first fault", faults);
    running.signal(Signal::INT);
    let finished = running.finish().expect(0);
    assert!(finished.stderr.contains("interrupted"), "{}", finished.stderr);
    check_whole(&history(&sandbox), &finished);
}

#[test]
fn a_seed_gives_the_same_plan_and_nothing_is_done() {
    let sandbox = Sandbox::new();
    let plan = |seed: &str| {
        let arguments = ["torture", "--on", "redis://nowhere", "--minutes", "5", "--plan"];
        sandbox.run(arguments.iter().chain(&["--seed", seed])).expect(0).stdout
    };
    assert_eq!(plan("7"), plan("7"));
    assert_ne!(plan("7"), plan("8"));
    assert!(plan("7").lines().count() > 20, "{}", plan("7"));
    for fault in ["kill", "pause", "cut", "stall", "delay", "lost-replies", "partition"] {
        assert!(plan("7").contains(fault), "{fault}: {}", plan("7"));
    }
    assert_eq!(std::fs::read_dir(sandbox.path("")).unwrap().count(), 0);
}

#[test]
fn what_is_typed_wrong_is_explained_before_anything_happens() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.path("full")).unwrap();
    std::fs::write(sandbox.path("full/x"), "x").unwrap();
    let table: [(&[&str], i32, &[&str]); 10] = [
        (&["--faults", "kil"], 64, &["\"kil\"", "all, none", "kill,pause"]),
        (&["--faults", "cut"], 64, &["not possible here", "not reached by TCP"]),
        (&["--minutes", "0"], 64, &["--minutes 0", "more than 0", "0.5"]),
        (&["--minutes", "-1"], 64, &["--minutes -1"]),
        (&["--minutes", "NaN"], 64, &["--minutes NaN"]),
        (&["--processes", "0"], 64, &["--processes", "1..=64"]),
        (&["--ttl", "5"], 64, &["say 5s"]),
        (&["--with", "nothing"], 64, &["\"nothing\"", "there is"]),
        (&["--out", "full"], 64, &["\"full\" is not empty"]),
        (&["--on", "memory:"], 78, &["one process only", "embedded:"]),
    ];
    for (arguments, code, words) in table {
        let finished = sandbox.run(["torture"].iter().chain(arguments)).expect(code);
        for word in words {
            assert!(finished.stderr.contains(word), "{arguments:?}: {}", finished.stderr);
        }
    }
}

#[test]
fn a_record_is_judged_again() {
    let sandbox = Sandbox::new();
    let line = |at: u64, rest: &str| format!("{{\"at\":{at},\"worker\":1,{rest}}}\n");
    let mut record = String::new();
    for (claim, from) in [(1, 100), (2, 150)] {
        let asked = format!(
            "\"what\":\"asked\",\"claim\":{claim},\"lock\":\"a\\u001b[2J\",\"mode\":\"exclusive\""
        );
        let granted =
            format!("\"what\":\"granted\",\"claim\":{claim},\"fence\":{claim},\"deadline\":999");
        let ended =
            format!("\"what\":\"ended\",\"claim\":{claim},\"how\":\"drop\",\"deadline\":999");
        record += &(line(from, &asked) + &line(from, &granted) + &line(from + 100, &ended));
    }
    std::fs::write(sandbox.path("mine.jsonl"), record).unwrap();
    let refused = sandbox.run(["torture", "--judge", "mine.jsonl"]).expect(64);
    assert!(refused.stderr.contains("say with --out where"), "{}", refused.stderr);
    let refused = sandbox.run(["torture", "--judge", "gone"]).expect(64);
    assert!(refused.stderr.contains("--judge \"gone\" does not exist"), "{}", refused.stderr);

    let found = sandbox.run(["torture", "--judge", "mine.jsonl", "--out", "new"]).expect(2);
    assert!(found.stdout.starts_with("1 promise was broken"), "{}", found.stdout);
    assert!(found.stdout.contains("two held \"a\\u{1b}[2J\" at 0.000 s"), "{}", found.stdout);
    assert!(found.stderr.contains("report: new/report.html"), "{}", found.stderr);
    let again = sandbox.run(["torture", "--judge", "new/history.jsonl", "--json"]).expect(2);
    assert_eq!(again.json()["found"]["overlap"]["broken"], 1);
    std::fs::create_dir(sandbox.path("empty")).unwrap();
    let refused = sandbox.run(["torture", "--judge", "empty"]).expect(78);
    assert!(refused.stderr.contains("there is no history in it"), "{}", refused.stderr);
}
