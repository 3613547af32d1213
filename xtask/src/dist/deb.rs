//! The Debian package: the command with its manual pages, completions, examples and licences. It has
//! no scripts of its own, starts nothing, and belongs to root.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::Release;
use crate::step::Step;
use crate::tree;

/// What goes with it as an example, from the root of the repository.
const EXAMPLES: [&str; 4] = [
    "deploy/grafana/lockfast.json",
    "deploy/prometheus/lockfast.rules.yml",
    "deploy/systemd/nightly-report.service",
    "deploy/systemd/nightly-report.timer",
];
/// Where each shell looks for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/lockfast"),
    ("fish", "usr/share/fish/vendor_completions.d/lockfast.fish"),
    ("zsh", "usr/share/zsh/vendor-completions/_lockfast"),
];
const MANUAL: &str = "usr/share/man/man1";
const DOCUMENTS: &str = "usr/share/doc/lockfast";

/// Makes the package in `folder` and answers where it is.
pub(super) fn make(
    release: &Release,
    binary: &Path,
    notices: &str,
    folder: &Path,
) -> Result<PathBuf> {
    let architecture = architecture(&release.target)?;
    // Not in the folder itself, where every file is handed out.
    let stage = folder.with_extension("stage");
    tree::remove_if_there(&stage)?;
    let files = Stage(&stage);
    let binary = fs::read(binary)?;
    files.add("usr/bin/lockfast", &binary)?;
    fs::set_permissions(stage.join("usr/bin/lockfast"), fs::Permissions::from_mode(0o755))?;
    add_manual(&files)?;
    for (shell, path) in COMPLETIONS {
        files.add(path, files.ask(&["completions", shell])?.as_bytes())?;
    }
    add_documents(&files, notices)?;
    let version = format!("{}-1", release.version.replace('-', "~"));
    let control = control(&version, architecture, &binary, files.size()?);
    files.add("DEBIAN/control", control.as_bytes())?;

    let path = folder.join(format!("lockfast_{version}_{architecture}.deb"));
    let (from, to) = (stage.to_string_lossy(), path.to_string_lossy());
    let step = Step::program("dpkg-deb", &["--root-owner-group", "-Zxz", "--build", &from, &to]);
    step.with_env("SOURCE_DATE_EPOCH", &release.epoch.to_string()).read()?;
    fs::remove_dir_all(&stage)?;
    Ok(path)
}

/// The tree of files that becomes the package.
struct Stage<'a>(&'a Path);

impl Stage<'_> {
    fn add(&self, path: &str, bytes: &[u8]) -> Result<()> {
        let path = self.0.join(path);
        let parents = path.ancestors().skip(1).take_while(|it| it.starts_with(self.0));
        let parents: Vec<&Path> = parents.collect();
        fs::create_dir_all(parents[0])?;
        // Whatever the umask of who builds it says.
        for parent in parents {
            fs::set_permissions(parent, fs::Permissions::from_mode(0o755))?;
        }
        fs::write(&path, bytes)?;
        Ok(fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?)
    }

    /// Compresses files, without a time in them.
    fn compress(&self, paths: &[String]) -> Result<()> {
        let paths: Vec<String> =
            paths.iter().map(|path| self.0.join(path).to_string_lossy().into_owned()).collect();
        let words: Vec<&str> =
            ["-9n"].into_iter().chain(paths.iter().map(String::as_str)).collect();
        Step::program("gzip", &words).run()
    }

    /// What the command itself says.
    fn ask(&self, arguments: &[&str]) -> Result<String> {
        let program = self.0.join("usr/bin/lockfast");
        Step::program(&program.to_string_lossy(), arguments).read()
    }

    /// How much it takes on a disk, in KiB.
    fn size(&self) -> Result<u64> {
        let said = Step::program("du", &["-sk", &self.0.to_string_lossy()]).read()?;
        let count = said.split_whitespace().next().and_then(|count| count.parse().ok());
        count.with_context(|| format!("du said {said:?}"))
    }
}

fn add_manual(files: &Stage<'_>) -> Result<()> {
    let written = files.0.with_extension("man");
    fs::create_dir_all(&written)?;
    files.ask(&["man", "--dir", &written.to_string_lossy()])?;
    let mut pages = Vec::new();
    for entry in fs::read_dir(&written)? {
        let entry = entry?;
        let path = format!("{MANUAL}/{}", entry.file_name().to_string_lossy());
        files.add(&path, &fs::read(entry.path())?)?;
        pages.push(path);
    }
    fs::remove_dir_all(&written)?;
    if pages.is_empty() {
        bail!("lockfast man wrote no pages");
    }
    files.compress(&pages)
}

fn add_documents(files: &Stage<'_>, notices: &str) -> Result<()> {
    let root = tree::root()?;
    let read =
        |path: &str| fs::read(root.join(path)).with_context(|| format!("there is no {path}"));
    let licence = String::from_utf8(read("LICENSE-MIT")?)?;
    files.add(&format!("{DOCUMENTS}/copyright"), copyright(&licence)?.as_bytes())?;
    for path in EXAMPLES {
        let name = path.rsplit('/').next().unwrap_or(path);
        files.add(&format!("{DOCUMENTS}/examples/{name}"), &read(path)?)?;
    }
    let (changes, others) =
        (format!("{DOCUMENTS}/changelog"), format!("{DOCUMENTS}/third-party-licences"));
    files.add(&changes, &read("CHANGELOG.md")?)?;
    files.add(&others, notices.as_bytes())?;
    files.compress(&[changes, others])
}

/// The licence in the form that Debian's tools read.
fn copyright(mit: &str) -> Result<String> {
    let (head, terms) = mit.split_once("Permission is").context("LICENSE-MIT has no terms")?;
    let holder = head.lines().find_map(|line| line.strip_prefix("Copyright (c) "));
    let holder = holder.context("LICENSE-MIT names nobody")?;
    let terms: String = format!("Permission is{terms}")
        .lines()
        .map(|line| if line.is_empty() { " .\n".to_owned() } else { format!(" {line}\n") })
        .collect();
    Ok(format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: lockfast\n\
         Comment: The packages that are compiled in, with their licences, are in\n \
         third-party-licences.gz beside this file.\n\n\
         Files: *\n\
         Copyright: {holder}\n\
         License: MIT or Apache-2.0\n\n\
         License: MIT\n{terms}\n\
         License: Apache-2.0\n \
         On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.\n"
    ))
}

fn control(version: &str, architecture: &str, binary: &[u8], size: u64) -> String {
    let needs = needs(binary);
    let depends = if needs.is_empty() { String::new() } else { format!("Depends: {needs}\n") };
    format!(
        "Package: lockfast\n\
         Version: {version}\n\
         Architecture: {architecture}\n\
         Maintainer: The Lockfast Authors\n\
         Installed-Size: {size}\n\
         {depends}\
         Recommends: ca-certificates\n\
         Section: admin\n\
         Priority: optional\n\
         Description: run jobs under a distributed lock\n \
         Takes a lock, runs a command while it holds it, and gives it back. The lock\n \
         reaches all processes of one machine, or every machine that shares a Redis,\n \
         PostgreSQL, MySQL, MariaDB, etcd or ZooKeeper server. Each grant has a fencing\n \
         token, and a job whose lease is lost is stopped before another can start.\n"
    )
}

/// The libraries that a binary is linked with: the newest version of the C library whose symbols it
/// names. One that is linked statically needs nothing.
fn needs(binary: &[u8]) -> String {
    const MARK: &[u8] = b"GLIBC_2.";
    let starts = binary.windows(MARK.len()).enumerate().filter(|(_, bytes)| *bytes == MARK);
    let minor = starts
        .filter_map(|(at, _)| {
            let rest = &binary[at + MARK.len()..];
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            std::str::from_utf8(&rest[..digits]).ok()?.parse::<u32>().ok()
        })
        .max();
    let Some(minor) = minor else { return String::new() };
    let has_unwinder = binary.windows(13).any(|bytes| bytes == b"libgcc_s.so.1");
    format!("libc6 (>= 2.{minor}){}", if has_unwinder { ", libgcc-s1" } else { "" })
}

/// Debian's name of the processor in a triple.
fn architecture(target: &str) -> Result<&'static str> {
    match target.split('-').next() {
        Some("x86_64") => Ok("amd64"),
        Some("aarch64") => Ok("arm64"),
        _ => bail!("there is no Debian package for {target}; there is one for x86_64 and aarch64"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_of_the_c_library_counts() {
        let binary = b"\0GLIBC_2.17\0GLIBC_2.4\0GLIBC_2.39\0libgcc_s.so.1\0GLIBC_2.9x";
        assert_eq!(needs(binary), "libc6 (>= 2.39), libgcc-s1");
        assert_eq!(needs(b"\0GLIBC_2.34\0"), "libc6 (>= 2.34)");
        assert_eq!(needs(b"static"), "");
    }

    #[test]
    fn processors_have_other_names_in_debian() {
        assert_eq!(architecture("aarch64-unknown-linux-musl").unwrap(), "arm64");
        assert!(architecture("riscv64gc-unknown-linux-gnu").is_err());
    }

    #[test]
    fn a_licence_is_written_as_debian_reads_it() {
        let text = copyright("MIT License\n\nCopyright (c) 2026 Ann\n\nPermission is\n\ngiven.\n");
        let text = text.unwrap();
        assert!(text.contains("Copyright: 2026 Ann\n"), "{text}");
        assert!(
            text.contains("License: MIT\n Permission is\n .\n given.\n\nLicense: Apache"),
            "{text}"
        );
        assert!(copyright("nothing").is_err());
    }
}
