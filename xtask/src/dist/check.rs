//! Tries what is handed out as its users would: the sums are right, and the package can be installed
//! into an empty root, used, and removed without a trace.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use super::{SUMS, within};
use crate::step::{Step, timed};
use crate::tree;

/// What has to be there when the package is installed.
const INSTALLED: [&str; 9] = [
    "usr/bin/lockfast",
    "usr/share/bash-completion/completions/lockfast",
    "usr/share/doc/lockfast/copyright",
    "usr/share/doc/lockfast/examples/nightly-report.service",
    "usr/share/doc/lockfast/third-party-licences.gz",
    "usr/share/fish/vendor_completions.d/lockfast.fish",
    "usr/share/man/man1/lockfast-run.1.gz",
    "usr/share/man/man1/lockfast.1.gz",
    "usr/share/zsh/vendor-completions/_lockfast",
];

/// Checks the files in a folder.
pub(super) fn run(folder: &Path) -> Result<()> {
    if !folder.join(SUMS).is_file() {
        bail!("there is nothing in {}; make it with\n  cargo xtask dist", folder.display());
    }
    timed("checksums", || within(folder, "sha256sum", &["--check", "--strict", SUMS]).run())?;
    timed("bill of materials", || {
        let bill: Value = serde_json::from_slice(&fs::read(ending(folder, ".cdx.json")?)?)?;
        let count = bill["components"].as_array().map_or(0, Vec::len);
        if bill["bomFormat"] != "CycloneDX" || count == 0 {
            bail!("it lists no components");
        }
        Ok(())
    })?;
    let root = folder.with_extension("root");
    tree::remove_if_there(&root)?;
    let package = ending(folder, ".deb")?;
    timed("install", || install(&root, &package))?;
    timed("use", || try_out(&root, &package))?;
    timed("remove", || remove(&root))?;
    Ok(fs::remove_dir_all(&root)?)
}

/// The file in a folder whose name ends so.
fn ending(folder: &Path, end: &str) -> Result<PathBuf> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with(end) {
            return Ok(path);
        }
    }
    bail!("there is no {end} in {}", folder.display())
}

/// Debian's installer on a root that has nothing but an empty list of packages. What the package
/// depends on is not there either, and it needs no rights that its user lacks.
fn dpkg(root: &Path, arguments: &[&str]) -> Step {
    let log = format!("--log={}/dpkg.log", root.display());
    let root = format!("--root={}", root.display());
    let force = "--force-depends,not-root,bad-path";
    Step::program("dpkg", &[&[root.as_str(), &log, force], arguments].concat())
}

fn install(root: &Path, package: &Path) -> Result<()> {
    fs::create_dir_all(root.join("var/lib/dpkg/info"))?;
    fs::create_dir_all(root.join("var/lib/dpkg/updates"))?;
    fs::write(root.join("var/lib/dpkg/status"), "")?;
    dpkg(root, &["--install", &package.to_string_lossy()]).read()?;
    for path in INSTALLED {
        if !root.join(path).is_file() {
            bail!("it does not install {path}");
        }
    }
    Ok(())
}

/// Runs a job with the command that was installed, on a store of its own.
fn try_out(root: &Path, package: &Path) -> Result<()> {
    let program = root.join("usr/bin/lockfast").to_string_lossy().into_owned();
    let home = root.join("home");
    fs::create_dir_all(&home)?;
    let ask = |arguments: &[&str]| {
        let step = Step::program(&program, arguments).with_env("HOME", &home.to_string_lossy());
        step.with_env("LOCKFAST_URL", &format!("embedded:{}/store", home.display())).read()
    };
    let version = ask(&["--version"])?;
    let version = version.trim().strip_prefix("lockfast ").context("it tells no version")?;
    let is_named = |path: &Path| path.to_string_lossy().contains(&version.replace('-', "~"));
    if !is_named(package) {
        bail!("the command is version {version}, and the package {}", package.display());
    }
    let fence = ask(&["run", "hello", "--try", "--", "sh", "-c", "echo $LOCKFAST_FENCE"])?;
    if fence.trim().parse::<u64>().is_err() {
        bail!("a job printed {fence:?} as its fence");
    }
    let page = root.join("usr/share/man/man1/lockfast.1.gz");
    let page = Step::program("gzip", &["-dc", &page.to_string_lossy()]).read()?;
    if !page.contains(".TH lockfast 1") {
        bail!("the manual page is none");
    }
    Ok(())
}

fn remove(root: &Path) -> Result<()> {
    dpkg(root, &["--purge", "lockfast"]).read()?;
    let left = Step::program("find", &[&root.join("usr").to_string_lossy(), "-type", "f"]).read();
    // The folder itself may be gone as well.
    let left = left.unwrap_or_default();
    if !left.is_empty() {
        bail!("it leaves files behind:\n{left}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Release, deb, sum};
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// Answers as the command would, as far as it is asked here.
    const STAND_IN: &str = "#!/bin/sh
case \"$1 $2\" in
'man --dir') for page in lockfast lockfast-run; do echo \".TH $page 1\" > \"$3/$page.1\"; done ;;
'completions '*) echo \"words for $2\" ;;
'--version '*) echo 'lockfast 9.8.7' ;;
'run hello') shift 4; LOCKFAST_FENCE=42 exec \"$@\" ;;
*) exit 64 ;;
esac
";

    /// Everything that is handed out, around a command that is none.
    fn bundle(version: &str) -> (tempfile::TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let (binary, folder) = (place.path().join("lockfast"), place.path().join("bundle"));
        fs::write(&binary, STAND_IN).unwrap();
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(&folder).unwrap();
        let bill = "{ \"bomFormat\": \"CycloneDX\", \"components\": [{}] }";
        fs::write(folder.join("lockfast.cdx.json"), bill).unwrap();
        let target = "x86_64-unknown-linux-gnu".into();
        let release = Release { version: version.into(), target, epoch: 86_400 };
        deb::make(&release, &binary, "texts of others", &folder).unwrap();
        sum(&folder).unwrap();
        (place, folder)
    }

    #[test]
    fn the_package_installs_into_an_empty_root_works_and_leaves_nothing() {
        let (place, folder) = bundle("9.8.7");
        run(&folder).unwrap();
        let package = folder.join("lockfast_9.8.7-1_amd64.deb");
        let said = Step::program("dpkg-deb", &["--contents", &package.to_string_lossy()]).read();
        let said = said.unwrap();
        assert!(said.lines().all(|line| line.contains(" root/root ")), "{said}");
        assert!(said.contains("-rwxr-xr-x"), "{said}");
        assert!(said.contains("1970-01-02"), "{said}");
        let left: Vec<_> = fs::read_dir(place.path()).unwrap().map(|it| it.unwrap()).collect();
        assert_eq!(left.len(), 2, "the binary and the bundle: {left:?}");
    }

    #[test]
    fn the_same_source_makes_the_same_package() {
        let (first, second) = (bundle("9.8.7"), bundle("9.8.7"));
        let sums = |folder: &Path| fs::read_to_string(folder.join(SUMS)).unwrap();
        assert_eq!(sums(&first.1), sums(&second.1));
    }

    #[test]
    fn what_is_wrong_is_found() {
        let (_place, folder) = bundle("9.8.6");
        let error = format!("{:#}", run(&folder).unwrap_err());
        assert!(error.contains("the command is version 9.8.7"), "{error}");
        fs::write(folder.join("lockfast.cdx.json"), "{}").unwrap();
        assert!(format!("{:#}", run(&folder).unwrap_err()).starts_with("checksums failed"));
        sum(&folder).unwrap();
        assert!(format!("{:#}", run(&folder).unwrap_err()).contains("it lists no components"));
        fs::remove_file(folder.join(SUMS)).unwrap();
        assert!(run(&folder).unwrap_err().to_string().contains("cargo xtask dist"));
    }
}
