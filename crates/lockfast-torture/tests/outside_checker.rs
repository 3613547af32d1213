//! The checker that the page about histories shows comes to the same as the referee.

use std::process::Command;

use lockfast_faults::program;

const PAGE: &str = include_str!("../../../docs/torture-history.md");

/// One worker holds from 100 to 300, another from `second` on.
fn history(second: u64, how: &str) -> String {
    let lines = [
        r#"{"at":1,"worker":1,"what":"asked","claim":1,"lock":"a","mode":"exclusive"}"#.to_owned(),
        r#"{"at":100,"worker":1,"what":"granted","claim":1,"fence":1,"deadline":900}"#.to_owned(),
        r#"{"at":200,"worker":1,"what":"still","claim":1,"deadline":900}"#.to_owned(),
        format!(r#"{{"at":300,"worker":1,"what":"ended","claim":1,"how":"{how}","deadline":900}}"#),
        r#"{"at":2,"worker":2,"what":"asked","claim":2,"lock":"a","mode":"exclusive"}"#.to_owned(),
        format!(
            r#"{{"at":{second},"worker":2,"what":"granted","claim":2,"fence":2,"deadline":990}}"#
        ),
        r#"{"at":400,"worker":2,"what":"ended","claim":2,"how":"drop","deadline":990}"#.to_owned(),
        r#"{"at":3,"worker":3,"what":"asked","claim":3,"lock":"a","mode":{"permits":3}}"#
            .to_owned(),
        r#"{"at":4,"worker":3,"what":"granted","claim":3,"fence":9,"deadline":990}"#.to_owned(),
    ];
    lines.join("\n") + "\n"
}

#[test]
fn the_documented_checker_finds_overlaps() {
    let (_, code) = PAGE.split_once("```python\n").unwrap();
    let (code, _) = code.split_once("```").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (script, lines) = (directory.path().join("check.py"), directory.path().join("h.jsonl"));
    std::fs::write(&script, code).unwrap();
    for (second, how, expected) in [(250, "drop", 1), (300, "drop", 0), (250, "lost", 0)] {
        std::fs::write(&lines, history(second, how)).unwrap();
        let mut python = Command::new(program::find("python3"));
        let said = program::run_well(python.arg(&script).arg(&lines));
        let last = format!("2 exclusive holds, {expected} overlaps");
        assert_eq!(said.lines().last(), Some(last.as_str()), "{said}");
        let directory = directory.path();
        let verdict = lockfast_torture::referee::conclude(&lines, directory).unwrap();
        assert_eq!(verdict.counts.overlaps, expected);
    }
}

#[test]
fn the_documented_lines_are_read() {
    let (_, lines) = PAGE.split_once("```json\n").unwrap();
    let (lines, _) = lines.split_once("```").unwrap();
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a.jsonl"), lines).unwrap();
    let verdict = lockfast_torture::referee::conclude(directory.path(), directory.path()).unwrap();
    assert_eq!((verdict.counts.events, verdict.counts.granted), (5, 1));
    assert!(!verdict.notes.iter().any(|note| note.contains("cannot be read")));
}
