//! All tests of the workspace, each binary timed. Most of them wait most of the time, so several
//! run at once; what a binary says is shown when it has ended, and only if it failed.

use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::step::Step;

/// How many binaries run at once.
const AT_ONCE: usize = 2;

/// Binaries that take long begin first, so that the last one does not run alone.
const LONG: &[&str] = &["conformance", "faults", "model"];

/// A test binary.
#[derive(Debug, PartialEq, Eq)]
struct Binary {
    package: String,
    target: String,
    /// `lib`, `bin` or `test`.
    kind: String,
    path: PathBuf,
    /// The folder of its package, where cargo would run it.
    folder: PathBuf,
}

/// Builds all tests and runs them.
pub(crate) fn run() -> Result<()> {
    let build = ["test", "--workspace", "--locked", "--no-run", "--quiet"];
    let built =
        Step::cargo(&[&build[..], &["--message-format", "json-render-diagnostics"]].concat())
            .read()?;
    let mut binaries = binaries_of(&built)?;
    binaries.sort_by_key(|binary| !LONG.iter().any(|word| binary.target.contains(word)));
    let waiting = Mutex::new(binaries.into_iter());
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(binary) = waiting.lock().ok().and_then(|mut rest| rest.next()) {
                    if let Err(error) = binary.run()
                        && let Ok(mut failed) = failed.lock()
                    {
                        failed.push(error.to_string());
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().ok().context("a thread panicked")?;
    if !failed.is_empty() {
        bail!("{}", failed.join("\n"));
    }
    Step::cargo(&["test", "--workspace", "--locked", "--quiet", "--doc"]).run()
}

impl Binary {
    #[allow(clippy::disallowed_methods, reason = "how long a test took decides nothing")]
    fn run(&self) -> Result<()> {
        eprintln!("  start  {}", self.name());
        let start = Instant::now();
        let mut command = Command::new(&self.path);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        let output = command.stdin(Stdio::null()).output();
        let Output { status, stdout, stderr } =
            output.with_context(|| format!("{} cannot be started", self.path.display()))?;
        let (name, seconds) = (self.name(), start.elapsed().as_secs_f64());
        if status.success() {
            eprintln!("  ok     {name} ({seconds:.1} s)");
            return Ok(());
        }
        let (said, complained) =
            (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
        eprintln!("  FAILED {name} ({seconds:.1} s)\n{said}{complained}");
        bail!("{name} ended with {status}; repeat it with\n  {}", self.repetition())
    }

    fn name(&self) -> String {
        match self.kind.as_str() {
            "test" => format!("{} tests/{}", self.package, self.target),
            kind => format!("{} {kind}", self.package),
        }
    }

    /// The command that runs it alone.
    fn repetition(&self) -> Step {
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
}
