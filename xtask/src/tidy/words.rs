//! Words that must not appear, or only in one place.

use super::Finding;
use super::source::Source;
use crate::tree::{File, Tree};

/// These checks name what they look for.
const OWN: &str = "xtask/src/tidy/";

/// Nothing is left for later in the code: it is done, or it is an issue.
pub(super) fn unfinished(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in texts(tree) {
        for (number, line) in (1..).zip(file.text.lines()) {
            let mark = ["TODO", "FIXME", "todo!", "unimplemented!"]
                .into_iter()
                .find(|mark| has_word(line, mark));
            if let Some(mark) = mark {
                findings.push(Finding::on(
                    file,
                    number,
                    format!("{mark}: finish it or write an issue"),
                ));
            }
        }
    }
    findings
}

/// Code that is made by macros cannot be searched, formatted or read.
pub(super) fn macros(tree: &Tree) -> Vec<Finding> {
    in_code(tree, "", |line| {
        has_word(line, "macro_rules!").then(|| "macro_rules! belongs into tests only".into())
    })
}

/// A test that does not run says why.
pub(super) fn ignored_tests(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in rust(tree, "") {
        let source = Source::new(&file.path, &file.text);
        for (number, line) in (1..).zip(source.code.lines()) {
            if line.replace(' ', "").contains("#[ignore]") {
                let message = "an ignored test gives its reason: #[ignore = \"…\"]";
                findings.push(Finding::on(file, number, message));
            }
        }
    }
    findings
}

/// No path is that of one particular machine. A test may make up a home.
pub(super) fn machine_paths(tree: &Tree) -> Vec<Finding> {
    const STARTS: [&str; 4] = ["/root/", "/work/", "/home/", "/Users/"];
    let mut findings = Vec::new();
    for file in texts(tree) {
        let source = file.path.ends_with(".rs").then(|| Source::new(&file.path, &file.text));
        for (number, line) in (1..).zip(file.text.lines()) {
            let is_test = source.as_ref().is_some_and(|code| code.is_in_test(number));
            let banned = if is_test { &STARTS[..2] } else { &STARTS };
            if let Some(start) = banned.iter().find(|start| starts_path(line, start)) {
                let message = format!("a path under {start} exists on one machine only");
                findings.push(Finding::on(file, number, message));
            }
        }
    }
    findings
}

/// Whether a path in `line` starts so, and not only continues so.
fn starts_path(line: &str, start: &str) -> bool {
    line.match_indices(start).any(|(at, _)| {
        !line[..at].ends_with(|c: char| c.is_alphanumeric() || "-_./~}*>".contains(c))
    })
}

/// A word of code that has one place, or that one place must not use.
struct Confined {
    /// Any of these on a line.
    words: &'static [&'static str],
    /// Where it is looked for: paths that start so.
    within: &'static str,
    /// Where it may be: paths that hold one of these.
    allowed: &'static [&'static str],
    /// Whether tests are free to use it.
    tests_free: bool,
    /// What to say.
    message: &'static str,
}

const CONFINED: &[Confined] = &[
    Confined {
        words: &["rusqlite"],
        within: "crates/",
        allowed: &[
            "crates/lockfast-backend-embedded/src/wire.rs",
            "crates/lockfast-backend-embedded/src/wire/",
            "/examples/",
        ],
        tests_free: true,
        message: "a store's client library is named in that backend's wire.rs only",
    },
    Confined {
        words: &["tonic::", "prost::", "hyper::", "http::"],
        within: "crates/lockfast-backend-etcd/src/",
        allowed: &["crates/lockfast-backend-etcd/src/wire/"],
        tests_free: true,
        message: "a store's client library is named in that backend's wire only",
    },
    Confined {
        words: &["redis::"],
        within: "crates/lockfast-backend-redis/src/",
        allowed: &["crates/lockfast-backend-redis/src/wire/"],
        tests_free: true,
        message: "a store's client library is named in that backend's wire only",
    },
    Confined {
        words: &[
            "cfg(feature",
            "cfg(any(feature",
            "cfg(not(feature",
            "cfg(all(feature",
            "cfg!(feature",
        ],
        within: "crates/",
        allowed: &[
            "crates/lockfast/src/connect.rs",
            // The layer of tower, and the test kit: whole modules.
            "crates/lockfast-fence/src/lib.rs",
            "crates/lockfast/src/lib.rs",
        ],
        tests_free: false,
        message: "features are asked for in crates/lockfast/src/connect.rs only",
    },
    Confined {
        words: &[
            "Instant::now",
            "SystemTime::now",
            "ClockId::Boottime",
            "ClockId::Monotonic",
            "ClockId::MonotonicRaw",
            "ClockId::Realtime",
        ],
        within: "crates/",
        allowed: &["crates/lockfast-core/src/time.rs"],
        tests_free: false,
        message: "clocks are read in crates/lockfast-core/src/time.rs only",
    },
    Confined {
        words: &["tracing::"],
        within: "crates/lockfast/src/primitive/",
        allowed: &[],
        tests_free: true,
        message: "a primitive observes nothing itself; the engine tells what happens",
    },
    Confined {
        words: &["tracing::"],
        within: "crates/lockfast/src/lease/state.rs",
        allowed: &[],
        tests_free: true,
        message: "the state machine is pure; its driver tells what happens",
    },
];

/// What has one place stays in that place.
pub(super) fn confined(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in CONFINED {
        for file in rust(tree, rule.within) {
            if rule.allowed.iter().any(|part| file.path.contains(part)) {
                continue;
            }
            let source = Source::new(&file.path, &file.text);
            for (number, line) in (1..).zip(source.code.lines()) {
                let is_free = rule.tests_free && source.is_in_test(number);
                if !is_free && rule.words.iter().any(|word| has_word(line, word)) {
                    findings.push(Finding::on(file, number, rule.message));
                }
            }
        }
    }
    findings
}

/// What `check` says about lines of code that are not tests.
fn in_code(tree: &Tree, within: &str, check: impl Fn(&str) -> Option<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in rust(tree, within) {
        let source = Source::new(&file.path, &file.text);
        for (number, line) in source.lines() {
            findings.extend(check(line).map(|message| Finding::on(file, number, message)));
        }
    }
    findings
}

fn rust<'a>(tree: &'a Tree, within: &'a str) -> impl Iterator<Item = &'a File> {
    tree.ending(".rs")
        .filter(move |file| file.path.starts_with(within) && !file.path.starts_with(OWN))
}

/// Everything that people write by hand.
fn texts(tree: &Tree) -> impl Iterator<Item = &File> {
    tree.files().iter().filter(|file| file.path != "Cargo.lock" && !file.path.starts_with(OWN))
}

/// Whether `line` holds `word` and not only a longer one.
fn has_word(line: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].ends_with(is_part);
        let after = word.ends_with(is_part) && line[at + word.len()..].starts_with(is_part);
        !before && !after
    })
}

#[cfg(test)]
mod tests {
    use super::super::shown;
    use super::*;
    use crate::tree::sample;

    #[test]
    fn nothing_is_left_for_later() {
        let text = "// TODO: later\nlet TODOS = 1;\ntodo!()\n";
        let found = unfinished(&sample(&[("src/a.rs", text), ("a.md", "FIXME\n")]));
        assert_eq!(
            shown(&found),
            [
                "a.md:1: FIXME: finish it or write an issue",
                "src/a.rs:1: TODO: finish it or write an issue",
                "src/a.rs:3: todo!: finish it or write an issue",
            ]
        );
    }

    #[test]
    fn macros_are_for_tests() {
        let text = "macro_rules! a { () => {} }\n#[cfg(test)]\nmod t {\n    macro_rules! b { () => {} }\n}\n";
        let found = macros(&sample(&[("src/a.rs", text), ("tests/a.rs", text)]));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, Some(1));
    }

    #[test]
    fn an_ignored_test_has_a_reason() {
        let text = "#[ignore = \"needs a clock\"]\n// #[ignore]\n#[ignore]\n";
        let found = ignored_tests(&sample(&[("tests/a.rs", text)]));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, Some(3));
    }

    #[test]
    fn paths_of_one_machine_are_found() {
        let bad = ["see /home/ann/x", "\"/root/.cargo\"", "(/work/a)", "/Users/ann"];
        for text in bad {
            assert_eq!(machine_paths(&sample(&[("a.toml", text)])).len(), 1, "{text}");
        }
        for text in ["crates/work/a", "$HOME/home/x", "~/work/", "/usr/bin/env", "/homes/"] {
            assert!(machine_paths(&sample(&[("a.md", text)])).is_empty(), "{text}");
        }
        let tests = "\"/home/me\" \"/home/you/x\"\n\"/root/x\"\n";
        let found = machine_paths(&sample(&[("tests/a.rs", tests)]));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, Some(2));
    }

    #[test]
    fn confined_words_stay_where_they_belong() {
        let code = "use rusqlite::Connection;\nfn now() { Instant::now(); }\n// rusqlite\n";
        let tree = sample(&[
            ("crates/lockfast-backend-embedded/src/backend.rs", code),
            ("crates/lockfast-backend-embedded/src/wire.rs", "use rusqlite::Row;\n"),
            ("crates/lockfast-backend-embedded/tests/a.rs", "use rusqlite::Row;\n"),
            ("crates/lockfast-core/src/time.rs", "SystemTime::now()\n"),
            ("crates/lockfast/src/connect.rs", "#[cfg(feature = \"x\")]\n"),
            ("crates/lockfast/src/locker.rs", "#[cfg(feature = \"x\")]\n"),
            ("crates/lockfast/src/lease/state.rs", "tracing::info!()\n"),
            ("crates/lockfast/src/lease/driver.rs", "tracing::info!()\n"),
            ("crates/lockfast/src/primitive/mutex.rs", "use tracing::info;\n"),
        ]);
        let places: Vec<(String, Option<usize>)> =
            confined(&tree).into_iter().map(|finding| (finding.path, finding.line)).collect();
        assert_eq!(
            places,
            [
                ("crates/lockfast-backend-embedded/src/backend.rs".into(), Some(1)),
                ("crates/lockfast/src/locker.rs".into(), Some(1)),
                ("crates/lockfast-backend-embedded/src/backend.rs".into(), Some(2)),
                ("crates/lockfast/src/primitive/mutex.rs".into(), Some(1)),
                ("crates/lockfast/src/lease/state.rs".into(), Some(1)),
            ]
        );
    }
}
