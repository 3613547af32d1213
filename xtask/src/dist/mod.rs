//! What people install: a stripped binary, a Debian package with manual pages and completions, a list
//! of everything that is in them, and checksums. All of it is in `target/bundle`.

mod check;
mod deb;
mod graph;
mod notices;
mod sbom;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use crate::step::{Step, timed};
use crate::tree;
use graph::Graph;

/// The names of the checksums' file.
const SUMS: &str = "SHA256SUMS";

/// What is handed out.
struct Release {
    version: String,
    /// The triple that it was built for.
    target: String,
    /// When its source was committed, in seconds since 1970: everything inside has this time, so that
    /// the same source makes the same files.
    epoch: u64,
}

/// Makes the files, from a binary that is there if one is given; or checks those that were made.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        [] => {
            let target = best_target()?;
            let binary = timed("release build", || build(&target))?;
            make(target, &binary)
        }
        ["--binary", path] => make(host()?, Path::new(path)),
        ["--check"] => check::run(&folder()?),
        _ => bail!("dist takes --binary PATH or --check, and nothing else"),
    }
}

fn folder() -> Result<PathBuf> {
    Ok(tree::target()?.join("bundle"))
}

fn make(target: String, binary: &Path) -> Result<()> {
    let folder = folder()?;
    tree::remove_if_there(&folder)?;
    std::fs::create_dir_all(&folder)?;
    let graph = timed("dependencies", || Graph::read(&target))?;
    let release = Release { version: graph.root().version.clone(), target, epoch: epoch()? };
    let name = format!("lockfast-{}-{}", release.version, release.target);
    std::fs::copy(binary, folder.join(&name))
        .with_context(|| format!("{} cannot be copied", binary.display()))?;
    timed("bill of materials", || {
        let file = folder.join(format!("lockfast-{}.cdx.json", release.version));
        let text = serde_json::to_string_pretty(&sbom::write(&graph, &release)?)?;
        Ok(std::fs::write(file, text + "\n")?)
    })?;
    let notices = notices::write(&graph)?;
    timed("Debian package", || deb::make(&release, &folder.join(name), &notices, &folder))?;
    sum(&folder)?;
    println!("made in {}; cargo xtask dist --check tries it", folder.display());
    Ok(())
}

/// Writes the checksums of all files in a folder.
fn sum(folder: &Path) -> Result<()> {
    let mut names: Vec<String> = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<_>>()?;
    names.retain(|name| name != SUMS);
    names.sort();
    let words: Vec<&str> = names.iter().map(String::as_str).collect();
    let sums = within(folder, "sha256sum", &words).read()?;
    std::fs::write(folder.join(SUMS), sums)?;
    Ok(())
}

/// A program that runs in another folder.
fn within(folder: &Path, program: &str, arguments: &[&str]) -> Step {
    let folder = folder.to_string_lossy();
    Step::program("env", &[&["-C", &folder, program], arguments].concat())
}

/// Builds the command. Where the source lay is kept out of it.
fn build(target: &str) -> Result<PathBuf> {
    let home = std::env::var("CARGO_HOME").or_else(|_| {
        std::env::var("HOME").map(|home| format!("{home}/.cargo")).context("HOME is not set")
    })?;
    let flags = format!(
        "--remap-path-prefix={}=/lockfast\x1f--remap-path-prefix={home}=/cargo",
        tree::root()?.display()
    );
    let words = ["build", "--profile", "dist", "--locked", "--target", target];
    let package = ["--package", "lockfast-cli", "--bin", "lockfast"];
    Step::cargo(&[&words[..], &package].concat())
        .with_env("CARGO_ENCODED_RUSTFLAGS", &flags)
        .run()?;
    Ok(tree::target()?.join(target).join("dist/lockfast"))
}

/// Static, where Rust's target and a C compiler for it are there; otherwise linked with the C library
/// of this machine, and good for systems that are not older.
fn best_target() -> Result<String> {
    let host = host()?;
    let musl = host.replace("-gnu", "-musl");
    let sysroot = Step::program("rustc", &["--print", "sysroot"]).read()?;
    let has_target = Path::new(sysroot.trim()).join("lib/rustlib").join(&musl).is_dir();
    let has_compiler = Step::program("musl-gcc", &["--version"]).try_read().is_ok();
    if has_target && has_compiler {
        return Ok(musl);
    }
    eprintln!(
        "note: linked with the C library of this machine; for a static binary, \
         rustup target add {musl} and install musl-gcc (Debian: musl-tools)"
    );
    Ok(host)
}

/// The triple of this machine.
fn host() -> Result<String> {
    let said = Step::program("rustc", &["-vV"]).read()?;
    let line = said.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(line.context("rustc -vV names no host")?.to_owned())
}

/// When the source was committed; `SOURCE_DATE_EPOCH` says it where there is no git.
fn epoch() -> Result<u64> {
    let said = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(said) => said,
        Err(_) => Step::program("git", &["log", "-1", "--format=%ct"]).read()?,
    };
    said.trim().parse().with_context(|| format!("{said:?} is not a time in seconds since 1970"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_checked() {
        for words in [&["--chekc"][..], &["--binary"], &["--check", "x"]] {
            let words: Vec<String> = words.iter().map(ToString::to_string).collect();
            assert!(run(&words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn a_file_that_was_changed_is_found_by_its_sum() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "one").unwrap();
        sum(folder.path()).unwrap();
        let verify = || within(folder.path(), "sha256sum", &["--check", "--quiet", SUMS]).read();
        assert!(verify().is_ok());
        std::fs::write(folder.path().join("a"), "two").unwrap();
        assert!(verify().is_err());
    }

    #[test]
    fn the_machine_has_a_triple() {
        assert!(host().unwrap().contains("-linux-"));
    }
}
