//! What the tests need besides Rust. A new backend adds the server it is tested with as a row of
//! [`NEEDS`]; whatever is missing is installed with apt, and elsewhere named.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::refuse_arguments;
use crate::step::{Step, timed};

/// One thing that must be there.
struct Need {
    /// It is there when this program is.
    program: &'static str,
    /// The Debian packages that bring it.
    packages: &'static [&'static str],
    /// What it is needed for.
    purpose: &'static str,
}

const NEEDS: &[Need] = &[Need {
    program: "cc",
    packages: &["gcc", "libc6-dev"],
    purpose: "compiles the bundled SQLite of the embedded store",
}];

/// Where servers are that a user's `PATH` often leaves out.
const FOLDERS_MORE: &[&str] = &["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Installs what is missing.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    refuse_arguments(arguments)?;
    timed("setup", || {
        let missing: Vec<&Need> = NEEDS.iter().filter(|need| !is_there(need.program)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        for need in &missing {
            eprintln!("  {} is missing: it {}", need.program, need.purpose);
        }
        install(&missing)?;
        match missing.iter().find(|need| !is_there(need.program)) {
            None => Ok(()),
            Some(need) => {
                bail!("{} is still missing after its packages were installed", need.program)
            }
        }
    })
}

fn install(missing: &[&Need]) -> Result<()> {
    let packages: Vec<&str> = missing.iter().flat_map(|need| need.packages).copied().collect();
    if !is_there("apt-get") {
        bail!(
            "there is no apt-get here; install what Debian calls {} and run this again",
            packages.join(", ")
        );
    }
    let is_root = Step::program("id", &["-u"]).read()?.trim() == "0";
    if !is_root && !is_there("sudo") {
        bail!(
            "installing needs root and there is no sudo; as root run apt-get install {}",
            packages.join(" ")
        );
    }
    apt(is_root, &["update"]).run()?;
    let mut arguments = vec!["install", "-y", "--no-install-recommends"];
    arguments.extend(packages);
    apt(is_root, &arguments).run()
}

fn apt(is_root: bool, arguments: &[&str]) -> Step {
    // sudo drops the environment, so env sets it on the other side.
    let mut line =
        vec!["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "DPkg::Lock::Timeout=120"];
    line.extend(arguments);
    if !is_root {
        line.insert(0, "sudo");
    }
    Step::program(line[0], &line[1..])
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(FOLDERS_MORE.iter().map(PathBuf::from))
        .any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_for() {
        assert!(is_there("cargo"));
        assert!(!is_there("no-such-program-here"));
    }

    #[test]
    fn apt_never_asks_and_uses_sudo_only_when_needed() {
        let as_root = apt(true, &["update"]).to_string();
        let as_user = apt(false, &["update"]).to_string();
        assert!(as_root.starts_with("env DEBIAN_FRONTEND=noninteractive apt-get"));
        assert_eq!(as_user, format!("sudo {as_root}"));
    }

    #[test]
    fn every_need_says_what_it_is_for() {
        for need in NEEDS {
            assert!(!need.packages.is_empty() && !need.purpose.is_empty());
        }
    }
}
