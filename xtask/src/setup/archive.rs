//! Debian's unstable release, for servers that are newer than those of the machine. It is read with
//! lists, a cache and a state of their own, so the machine's packages are left alone and root is
//! not needed. Which mirror is asked is what the machine's own apt is set up with, and what comes
//! from it is verified with Debian's keys.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::is_there;
use crate::step::{Step, timed};
use crate::tree;

/// Where servers are that no package of the machine brings.
const SERVERS: &str = "target/servers";

/// Says what is there, and is written last.
const STAMP: &str = "stamp";

/// The release.
const RELEASE: &str = "unstable";

/// Where Debian's package `debian-archive-keyring` keeps the keys.
const KEYRINGS: &[&str] = &[
    "/usr/share/keyrings/debian-archive-keyring.pgp",
    "/usr/share/keyrings/debian-archive-keyring.gpg",
];

/// Unpacks packages, with all that they depend on, into a folder of that name under [`SERVERS`],
/// unless they are there. `finish` makes of the files what can be started.
pub(crate) fn bring(
    name: &str,
    packages: &[&str],
    finish: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let place = place(name)?;
    let servers = tree::root()?.join(SERVERS);
    let wanted = packages.join(" ");
    let stamp = fs::read_to_string(place.join(STAMP)).unwrap_or_default();
    if stamp.lines().next() == Some(&wanted) {
        return Ok(place);
    }
    timed(&format!("{SERVERS}/{name}"), || {
        let apt = servers.join(format!("{name}.apt"));
        let made = servers.join(format!("{name}.new"));
        tree::remove_if_there(&apt)?;
        tree::remove_if_there(&made)?;
        let unpacked = Archive::open(apt.clone())?.unpack(packages, &made)?;
        tree::remove_if_there(&apt)?;
        finish(&made)?;
        fs::write(made.join(STAMP), format!("{wanted}\n{}\n", unpacked.join("\n")))?;
        tree::remove_if_there(&place)?;
        fs::rename(&made, &place).context("cannot move it to its place")
    })?;
    Ok(place)
}

/// Where the packages of that name are, if they were brought.
pub(crate) fn place(name: &str) -> Result<PathBuf> {
    Ok(tree::root()?.join(SERVERS).join(name))
}

/// The release's packages.
struct Archive {
    /// Where apt keeps what it knows.
    folder: PathBuf,
}

impl Archive {
    /// Fetches the lists of packages to a folder.
    fn open(folder: PathBuf) -> Result<Self> {
        for needed in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(needed))?;
        }
        // Nothing is installed, as far as this apt knows.
        fs::write(folder.join("status"), "")?;
        let archive = Self { folder };
        let (mirror, keyring) = (mirror(&archive.folder)?, keyring()?);
        let line = format!("deb [signed-by={}] {mirror} {RELEASE} main\n", keyring.display());
        fs::write(archive.folder.join("sources.list"), line)?;
        eprintln!("  fetching the lists of Debian {RELEASE}");
        archive.apt("apt-get", &["update"]).run()?;
        Ok(archive)
    }

    /// Unpacks packages into a folder, with all that they depend on, down to the C library. Answers
    /// the names of their files, which hold their versions.
    fn unpack(&self, packages: &[&str], to: &Path) -> Result<Vec<String>> {
        eprintln!("  fetching {}", packages.join(", "));
        let fetch = ["install", "--yes", "--download-only", "--no-install-recommends"];
        self.apt("apt-get", &[&fetch[..], packages].concat()).run()?;
        fs::create_dir_all(to)?;
        let to = to.to_string_lossy();
        let archives = self.folder.join("cache/archives");
        let mut names = Vec::new();
        for entry in fs::read_dir(&archives)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.retain(|name| name.ends_with(".deb"));
        names.sort();
        for name in &names {
            let path = archives.join(name);
            Step::program("dpkg", &["-x", &path.to_string_lossy(), &to]).run()?;
        }
        // Nobody shall gain rights by a program that lies here.
        Step::program("chmod", &["--recursive", "u-s,g-s", &to]).run()?;
        Ok(names)
    }

    fn apt(&self, program: &str, arguments: &[&str]) -> Step {
        let sources = self.folder.join("sources.list");
        let more = [
            ("Dir::Etc::sourcelist", &*sources.to_string_lossy()),
            ("Dir::Etc::sourceparts", "/dev/null"),
            // What the machine prefers is about its own release.
            ("Dir::Etc::preferences", "/dev/null"),
            ("Dir::Etc::preferencesparts", "/dev/null"),
            ("APT::Keep-Downloaded-Packages", "true"),
        ];
        apt_in(&self.folder, program, &more, arguments)
    }
}

/// Apt with a state and a cache in a folder.
fn apt_in(folder: &Path, program: &str, more: &[(&str, &str)], arguments: &[&str]) -> Step {
    let inside = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let (state, cache, status) = (inside("state"), inside("cache"), inside("status"));
    let own = [
        ("Dir::State", state.as_str()),
        ("Dir::State::status", &status),
        ("Dir::Cache", &cache),
        // apt's own user need not be able to reach the folder.
        ("APT::Sandbox::User", "root"),
        ("Acquire::Languages", "none"),
        ("Acquire::Retries", "3"),
        ("Acquire::IndexTargets::deb::DEP-11::DefaultEnabled", "false"),
    ];
    let options: Vec<String> =
        own.iter().chain(more).map(|(name, value)| format!("-o{name}={value}")).collect();
    let mut words = vec!["-qq"];
    words.extend(options.iter().map(String::as_str));
    words.extend(arguments);
    Step::program(program, &words)
}

/// The mirror of Debian that the machine's apt is set up with.
fn mirror(folder: &Path) -> Result<String> {
    if !is_there("apt-get") {
        bail!("there is no apt-get here, and servers of Debian {RELEASE} are fetched with it");
    }
    let question = [
        "indextargets",
        "--format=$(REPO_URI)",
        "Identifier: Packages",
        "Origin: Debian",
        "Label: Debian",
    ];
    let mut found = Step::program("apt-get", &question).read()?;
    if found.trim().is_empty() {
        // apt knows who runs a mirror only after it has fetched its lists.
        eprintln!("  fetching the lists of this machine's release to find a mirror");
        apt_in(folder, "apt-get", &[], &["update"]).run()?;
        found = apt_in(folder, "apt-get", &[], &question).read()?;
    }
    let first = found.lines().next().map(str::to_owned);
    first.with_context(|| {
        format!(
            "apt has no mirror of Debian among its sources, and servers of Debian {RELEASE} come \
             from one; add a source for Debian"
        )
    })
}

/// The keys that Debian signs its releases with.
fn keyring() -> Result<PathBuf> {
    let found = KEYRINGS.iter().map(PathBuf::from).find(|path| path.is_file());
    found.context("Debian's keys are missing; install the package debian-archive-keyring")
}
