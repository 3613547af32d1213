//! Oracle's MySQL, which Debian has in its unstable release only and which MariaDB's packages would
//! have to make way for. Its files are unpacked beside the build with their own C library, and
//! start by way of that library's loader.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::archive;
use crate::step::Step;

/// The packages; what they depend on comes with them.
const PACKAGES: &[&str] = &["mysql-server-core", "mysql-client-core"];

/// The programs that tests start, and what they are to be told about where they are.
const PROGRAMS: &[(&str, &str)] = &[
    (
        "usr/sbin/mysqld",
        r#" --lc-messages-dir="$root/usr/share/mysql" --character-sets-dir="$root/usr/share/mysql/charsets" --plugin-dir="$root/usr/lib/mysql/plugin""#,
    ),
    ("usr/bin/mysql", ""),
];

/// Brings MySQL unless it is there: `target/servers/mysql/bin/mysqld` starts the server and
/// `target/servers/mysql/bin/mysql` its client.
pub(super) fn bring() -> Result<()> {
    archive::bring("mysql", PACKAGES, |root| {
        for (program, options) in PROGRAMS {
            write_launcher(root, program, options)?;
        }
        let says = Step::program(&root.join("bin/mysqld").to_string_lossy(), &["--version"]);
        eprintln!("  {}", says.read()?.trim());
        Ok(())
    })?;
    Ok(())
}

/// A script that starts a program with the loader and the libraries that it was built for. It works
/// wherever the folder is copied to. The options come last: the server wants `--no-defaults` first.
fn write_launcher(root: &Path, program: &str, options: &str) -> Result<()> {
    let loader = loader(root)?;
    let loader = loader.strip_prefix(root)?;
    let libraries = loader.parent().context("a loader is in a folder")?;
    let script = format!(
        "#!/bin/sh\nroot=$(dirname \"$(dirname \"$(readlink -f \"$0\")\")\")\nexec \"$root/{}\" \
         --library-path \"$root/{}\" \"$root/{program}\" \"$@\"{options}\n",
        loader.display(),
        libraries.display(),
    );
    let name = Path::new(program).file_name().context("a program has a name")?;
    let path = root.join("bin").join(name);
    fs::create_dir_all(root.join("bin"))?;
    fs::write(&path, script)?;
    Ok(fs::set_permissions(&path, Permissions::from_mode(0o755))?)
}

/// `usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2`, or what it is called on another processor. It is
/// in the folder of the libraries.
fn loader(root: &Path) -> Result<PathBuf> {
    for folder in fs::read_dir(root.join("usr/lib"))? {
        for entry in fs::read_dir(folder?.path()).into_iter().flatten() {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with("ld-linux") && name.contains(".so.") {
                return Ok(path);
            }
        }
    }
    bail!("the C library of MySQL has no loader")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_starts_with_its_own_loader_and_libraries() {
        let root = std::env::temp_dir().join(format!("lockfast xtask {}", std::process::id()));
        let libraries = root.join("usr/lib/some-processor");
        fs::create_dir_all(&libraries).unwrap();
        assert!(write_launcher(&root, "usr/sbin/served", "").is_err(), "there is no loader yet");
        let loader = libraries.join("ld-linux-some.so.7");
        fs::write(&loader, "#!/bin/sh\nprintf '%s\\n' \"$0\" \"$@\"\n").unwrap();
        fs::set_permissions(&loader, Permissions::from_mode(0o755)).unwrap();
        write_launcher(&root, "usr/sbin/served", r#" --here="$root/x""#).unwrap();
        let launcher = root.join("bin/served");
        let said = Step::program(&launcher.to_string_lossy(), &["--first", "a b"]).read().unwrap();
        fs::remove_dir_all(&root).unwrap();
        let at = |path: &str| root.join(path).display().to_string();
        let expected = [
            at("usr/lib/some-processor/ld-linux-some.so.7"),
            "--library-path".to_owned(),
            at("usr/lib/some-processor"),
            at("usr/sbin/served"),
            "--first".to_owned(),
            "a b".to_owned(),
            format!("--here={}", at("x")),
        ];
        assert_eq!(said.lines().collect::<Vec<_>>(), expected);
    }
}
