//! One step of a longer job: shown when it starts, timed when it ends, and when it fails the
//! message is the command that repeats it alone.

use std::fmt;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::tree;

/// A program with its arguments, run at the root of the repository.
pub(crate) struct Step {
    program: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Step {
    /// Cargo, the one that runs us.
    pub(crate) fn cargo(arguments: &[&str]) -> Self {
        Self::program("cargo", arguments)
    }

    /// Any program.
    pub(crate) fn program(program: &str, arguments: &[&str]) -> Self {
        Self {
            program: program.to_owned(),
            arguments: arguments.iter().map(ToString::to_string).collect(),
            environment: Vec::new(),
        }
    }

    /// Adds a variable to the program's environment.
    pub(crate) fn with_env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs it and waits; its output goes where ours goes.
    pub(crate) fn run(&self) -> Result<()> {
        let status = self
            .command()?
            .status()
            .with_context(|| format!("{} cannot be started", self.program))?;
        if !status.success() {
            bail!("it ended with {status}; repeat it with\n  {self}");
        }
        Ok(())
    }

    /// Runs it and answers what it printed.
    pub(crate) fn read(&self) -> Result<String> {
        let output = self
            .command()?
            .output()
            .with_context(|| format!("{} cannot be started", self.program))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{self} ended with {}: {}", output.status, said.trim());
        }
        String::from_utf8(output.stdout).with_context(|| format!("{self} printed no UTF-8"))
    }

    /// Runs it and answers whether it succeeded, and what it printed on both outputs.
    pub(crate) fn try_read(&self) -> Result<(bool, String)> {
        let output = self
            .command()?
            .output()
            .with_context(|| format!("{} cannot be started", self.program))?;
        let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
        said.push_str(&String::from_utf8_lossy(&output.stderr));
        Ok((output.status.success(), said))
    }

    fn command(&self) -> Result<Command> {
        // Cargo tells its children which cargo it is; a plain name could be another version.
        let program = match (self.program.as_str(), std::env::var_os("CARGO")) {
            ("cargo", Some(cargo)) => cargo,
            (program, _) => program.into(),
        };
        let mut command = Command::new(program);
        // What cargo told us about ourselves is not for others: build scripts that look at it
        // would run anew, and everything after them.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                command.env_remove(&name);
            }
        }
        // A build server builds once: what the next build could save would only fill its disk.
        if std::env::var_os("CI").is_some() {
            command.env("CARGO_INCREMENTAL", "0");
        }
        command
            .args(&self.arguments)
            .envs(self.environment.iter().cloned())
            .current_dir(tree::root()?);
        Ok(command)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            write!(f, "{name}={} ", quoted(value))?;
        }
        f.write_str(&self.program)?;
        self.arguments.iter().try_for_each(|argument| write!(f, " {}", quoted(argument)))
    }
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Runs `body` under a title and tells how long it took.
#[allow(clippy::disallowed_methods, reason = "how long a build took decides nothing")]
pub(crate) fn timed<T>(title: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
    eprintln!("start  {title}");
    let start = Instant::now();
    let outcome = body();
    let seconds = start.elapsed().as_secs_f64();
    match &outcome {
        Ok(_) => eprintln!("ok     {title} ({seconds:.1} s)"),
        Err(_) => eprintln!("FAILED {title} ({seconds:.1} s)"),
    }
    outcome.with_context(|| format!("{title} failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_shown_as_a_shell_would_take_it() {
        let step = Step::cargo(&["doc", "--no-deps", "a b"]).with_env("RUSTDOCFLAGS", "-D it's");
        assert_eq!(step.to_string(), r"RUSTDOCFLAGS='-D it'\''s' cargo doc --no-deps 'a b'");
    }

    #[test]
    fn a_failing_step_says_how_to_repeat_it() {
        let error = Step::program("false", &["x"]).run().unwrap_err();
        assert!(error.to_string().ends_with("\n  false x"), "{error}");
        let error = Step::program("no-such-program-here", &[]).run().unwrap_err();
        assert!(error.to_string().contains("no-such-program-here"));
    }

    #[test]
    fn what_cargo_told_us_is_not_passed_on() {
        assert!(std::env::var_os("CARGO_PKG_NAME").is_some(), "cargo runs this test");
        let passed_on = Step::program("env", &[]).read().unwrap();
        let told =
            |line: &&str| line.starts_with("CARGO_PKG_") || line.starts_with("CARGO_MANIFEST_");
        assert_eq!(passed_on.lines().find(told), None);
    }

    #[test]
    fn the_title_is_in_the_error() {
        let error = timed::<()>("lints", || bail!("red")).unwrap_err();
        assert_eq!(format!("{error:#}"), "lints failed: red");
    }
}
