//! A test binary: built by cargo, run by us, and what it said.

use std::fmt;
use std::io::{BufRead as _, BufReader, Read};
use std::ops::AddAssign;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::step::Step;

/// A test binary.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Binary {
    pub(crate) package: String,
    pub(crate) target: String,
    /// `lib`, `bin` or `test`.
    pub(crate) kind: String,
    pub(crate) path: PathBuf,
    /// The folder of its package, where cargo would run it.
    pub(crate) folder: PathBuf,
}

/// How many tests passed and failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

/// What came of a binary.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    pub(crate) time: Duration,
    /// Tests with a time that each of them took at least, the longest first.
    pub(crate) slow: Vec<(String, Duration)>,
    /// Why it failed, if it did.
    pub(crate) failure: Option<String>,
    /// All that it printed.
    pub(crate) said: String,
}

/// Builds the tests of some packages, as cargo is told to choose them.
pub(crate) fn build(selection: &[&str]) -> Result<Vec<Binary>> {
    let build = ["test", "--locked", "--no-run", "--quiet"];
    let format = ["--message-format", "json-render-diagnostics"];
    let built = Step::cargo(&[&build[..], &format, selection].concat()).read()?;
    binaries_of(&built)
}

impl Binary {
    /// Runs it to its end. The wrapper is a program with arguments that is told this one, or empty.
    #[allow(clippy::disallowed_methods, reason = "how long a test took decides nothing")]
    pub(crate) fn run(&self, wrapper: &[String], arguments: &[&str]) -> Result<Outcome> {
        let words = [wrapper, &[self.path.to_string_lossy().into_owned()]].concat();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(arguments).current_dir(&self.folder);
        command.env("CARGO_MANIFEST_DIR", &self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let start = Instant::now();
        let child = command.spawn().with_context(|| format!("{} cannot be started", words[0]))?;
        let (status, lines, complaints) = listen(child, start)?;
        let mut outcome = Outcome::of(&lines, status);
        outcome.time = start.elapsed();
        outcome.said.push_str(&complaints);
        Ok(outcome)
    }

    pub(crate) fn name(&self) -> String {
        match self.kind.as_str() {
            "test" => format!("{} tests/{}", self.package, self.target),
            kind => format!("{} {kind}", self.package),
        }
    }

    /// The command that runs it alone.
    pub(crate) fn repetition(&self) -> Step {
        let mut arguments = vec!["test", "--locked", "-p", &self.package];
        match self.kind.as_str() {
            "test" => arguments.extend(["--test", &self.target]),
            "bin" => arguments.extend(["--bin", &self.target]),
            "example" => arguments.extend(["--example", &self.target]),
            _ => arguments.push("--lib"),
        }
        Step::cargo(&arguments)
    }
}

impl Tally {
    /// The sum of what a test binary, or several after each other, said at their ends.
    pub(crate) fn of(said: &str) -> Self {
        let mut sum = Self::default();
        for line in said.lines() {
            let Some(result) = line.strip_prefix("test result: ") else { continue };
            let count = |word: &str| {
                let before = result.split_once(word)?.0;
                before.rsplit(' ').next()?.parse().ok()
            };
            sum += Self {
                passed: count(" passed").unwrap_or(0),
                failed: count(" failed").unwrap_or(0),
            };
        }
        sum
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

impl Outcome {
    /// From the lines of a binary, each with the time at which it came.
    fn of(lines: &[(Duration, String)], status: ExitStatus) -> Self {
        let mut said = String::new();
        let mut slow = Vec::new();
        let mut last = Duration::ZERO;
        for (at, line) in lines {
            said.push_str(line);
            said.push('\n');
            // All tests that ran while nothing was said had begun before.
            if let Some((name, _)) =
                line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
            {
                slow.push((name.trim().to_owned(), at.saturating_sub(last)));
                last = *at;
            }
        }
        slow.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
        let mut tally = Tally::of(&said);
        // One that crashed has no result.
        if !status.success() {
            tally.failed = tally.failed.max(1);
        }
        let failure = (!status.success()).then(|| format!("ended with {status}"));
        Self { tally, time: last, slow, failure, said }
    }
}

type Heard = (ExitStatus, Vec<(Duration, String)>, String);

/// Waits for the end of a child; its lines with their times since `start`, and its complaints.
#[allow(clippy::disallowed_methods, reason = "how long a test took decides nothing")]
fn listen(mut child: Child, start: Instant) -> Result<Heard> {
    let stdout = child.stdout.take().context("its output is piped")?;
    let mut stderr = child.stderr.take().context("its complaints are piped")?;
    let complaints = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stderr.read_to_end(&mut bytes).map(|_| String::from_utf8_lossy(&bytes).into_owned())
    });
    let mut lines = Vec::new();
    for line in BufReader::new(stdout).split(b'\n') {
        lines.push((start.elapsed(), String::from_utf8_lossy(&line?).into_owned()));
    }
    let status = child.wait()?;
    let complaints = complaints.join().ok().context("a thread panicked")??;
    Ok((status, lines, complaints))
}

/// The test binaries among cargo's messages.
fn binaries_of(messages: &str) -> Result<Vec<Binary>> {
    let mut binaries = Vec::new();
    for line in messages.lines() {
        let message: Value = serde_json::from_str(line).context("cargo printed no JSON")?;
        let is_test = message["profile"]["test"] == true;
        let Some(path) = message["executable"].as_str().filter(|_| is_test) else { continue };
        let text = |value: &Value| value.as_str().map(str::to_owned).context("no text");
        let manifest = PathBuf::from(text(&message["manifest_path"])?);
        let folder = manifest.parent().context("a manifest is in a folder")?.to_owned();
        let package = folder.file_name().context("a folder has a name")?;
        binaries.push(Binary {
            package: package.to_string_lossy().into_owned(),
            target: text(&message["target"]["name"])?,
            kind: text(&message["target"]["kind"][0])?,
            path: path.into(),
            folder,
        });
    }
    Ok(binaries)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn only_test_binaries_are_run() {
        let messages = r#"{"reason":"compiler-artifact","manifest_path":"/x/core/Cargo.toml","target":{"kind":["lib"],"name":"core"},"profile":{"test":true},"executable":"/t/core-1"}
{"reason":"compiler-artifact","manifest_path":"/x/cli/Cargo.toml","target":{"kind":["bin"],"name":"l"},"profile":{"test":false},"executable":"/t/l"}
{"reason":"compiler-artifact","manifest_path":"/x/cli/Cargo.toml","target":{"kind":["test"],"name":"cli"},"profile":{"test":true},"executable":"/t/cli-1"}
{"reason":"build-finished","success":true}"#;
        let binaries = binaries_of(messages).unwrap();
        let names: Vec<String> = binaries.iter().map(Binary::name).collect();
        assert_eq!(names, ["core lib", "cli tests/cli"]);
        let repeat = binaries[1].repetition().to_string();
        assert_eq!(repeat, "cargo test --locked -p cli --test cli");
    }

    #[test]
    fn results_are_summed() {
        let said = "test a ... ok\n\ntest result: ok. 12 passed; 0 failed; 1 ignored; 0 measured\n\
            test result: FAILED. 3 passed; 2 failed; 0 ignored\n";
        assert_eq!(Tally::of(said), Tally { passed: 15, failed: 2 });
        assert_eq!(Tally::of("nothing"), Tally::default());
    }

    #[test]
    fn a_test_took_at_least_as_long_as_nothing_was_said() {
        let at = |ms, line: &str| (Duration::from_millis(ms), line.to_owned());
        let lines = [
            at(5, "running 3 tests"),
            at(10, "test quick ... ok"),
            at(910, "test slow            ... ok"),
            at(1000, "test last ... ok"),
            at(1001, "test result: ok. 3 passed; 0 failed; 0 ignored"),
        ];
        let outcome = Outcome::of(&lines, ExitStatus::from_raw(0));
        assert_eq!(outcome.slow[0], ("slow".to_owned(), Duration::from_millis(900)));
        assert_eq!((outcome.tally, outcome.failure), (Tally { passed: 3, failed: 0 }, None));
    }

    #[test]
    fn a_binary_that_crashes_has_failed() {
        let outcome = Outcome::of(&[], ExitStatus::from_raw(9));
        assert_eq!(outcome.tally.failed, 1);
        assert!(outcome.failure.is_some());
    }

    #[test]
    fn what_a_binary_said_is_kept() {
        let script = "echo 'test a ... ok'; echo sorry >&2; echo \"$CARGO_MANIFEST_DIR\"; exit 3";
        let binary = Binary {
            package: "p".into(),
            target: "t".into(),
            kind: "test".into(),
            path: "/bin/sh".into(),
            folder: "/".into(),
        };
        let outcome = binary.run(&[], &["-c", script]).unwrap();
        assert_eq!(outcome.said, "test a ... ok\n/\nsorry\n");
        assert!(outcome.failure.unwrap().contains('3'));
        let wrapped = binary.run(&["echo".to_owned(), "by way of".to_owned()], &["x"]).unwrap();
        assert_eq!(wrapped.said, "by way of /bin/sh x\n");
    }
}
