//! Where a version of a server is: among the machine's packages, or in a root directory of its own.
//! Tests that are run there find it as they find any other.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::setup::archive;
use crate::step::Step;
use crate::tree;

/// A place with servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// This machine, as its packages are.
    Machine,
    /// This machine, with what `cargo xtask setup` has unpacked of Debian's unstable release.
    Unpacked,
    /// A root directory with what Debian's unstable release has.
    Unstable,
    /// The same, where Valkey has the names of Redis.
    UnstableValkey,
}

/// What is in the root directory: the servers with their clients, and what the tests start besides.
const PACKAGES: &[&str] = &[
    "redis-server",
    "redis-tools",
    "valkey-server",
    "valkey-tools",
    "postgresql-18",
    "postgresql-client-18",
    "pgbouncer",
    "mariadb-server",
    "mariadb-client",
    "etcd-server",
    "etcd-client",
    "libzookeeper-java",
    "default-jre-headless",
    "openssl",
    "gcc",
    "libc6-dev",
    "base-files",
    "coreutils",
    "dash",
    "findutils",
    "grep",
    "hostname",
    "mawk",
    "sed",
    "util-linux",
];

/// Where Valkey has the names of Redis.
const VALKEY: &str = "opt/valkey";

/// What the packages' own scripts would have made.
const FILES: &[(&str, &str)] = &[
    (
        "etc/passwd",
        "root:x:0:0::/root:/bin/sh\npostgres:x:101:101::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
    ),
    ("etc/group", "root:x:0:\npostgres:x:101:\nnogroup:x:65534:\n"),
    ("etc/hosts", "127.0.0.1 localhost\n"),
];
const LINKS: &[(&str, &str)] = &[
    ("usr/bin/cc", "gcc"),
    ("usr/bin/java", "/usr/lib/jvm/default-java/bin/java"),
    ("opt/valkey/redis-server", "/usr/bin/valkey-server"),
    ("opt/valkey/redis-cli", "/usr/bin/valkey-cli"),
];

/// All processes of a program end with it, and it ends with us, whatever happens to us.
const ALONE: &[&str] =
    &["setpriv", "--pdeathsig=KILL", "unshare", "--pid", "--fork", "--kill-child"];

/// Starts a program in a root directory, with the repository and what was built at their places. The
/// mounts are seen by this program only, and go with it.
const ENTER: &str = r#"
root=$1 path=$2 repository=$3 built=$4; shift 4
for folder in "$repository" "$built"; do
    mkdir -p "$root$folder"
    mount --bind "$folder" "$root$folder"
done
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
exec chroot "$root" env --chdir="$PWD" PATH="$path" TMPDIR=/tmp "$@"
"#;

impl Place {
    /// Makes it ready.
    pub(super) fn prepare(self) -> Result<()> {
        if Step::program("id", &["-u"]).read()?.trim() != "0" {
            bail!("servers in a root directory of their own need chroot, so run this as root");
        }
        if matches!(self, Self::Unstable | Self::UnstableValkey) {
            let root = archive::bring("unstable", PACKAGES, finish)?;
            // What an interrupted run has left.
            let temporary = root.join("tmp");
            fs::remove_dir_all(&temporary)?;
            fs::create_dir(&temporary)?;
            fs::set_permissions(&temporary, Permissions::from_mode(0o1777))?;
        }
        Ok(())
    }

    /// What the table calls it.
    pub(super) fn name(self) -> Result<String> {
        match self {
            Self::Machine => release(&fs::read_to_string("/etc/os-release")?),
            Self::Unpacked | Self::Unstable | Self::UnstableValkey => {
                Ok("Debian unstable".to_owned())
            }
        }
    }

    /// The words to put before a program so that it runs there.
    pub(super) fn wrapper(self) -> Result<Vec<String>> {
        let mut words: Vec<String> = ALONE.iter().map(ToString::to_string).collect();
        let path = "/usr/local/bin:/usr/bin:/usr/sbin";
        let path = match self {
            Self::Machine | Self::Unpacked => {
                words.push("--mount-proc".to_owned());
                return Ok(words);
            }
            Self::Unstable => path.to_owned(),
            Self::UnstableValkey => format!("/{VALKEY}:{path}"),
        };
        let root = archive::place("unstable")?;
        words.extend(["--mount", "sh", "-euc", ENTER, "enter"].map(str::to_owned));
        words.push(root.to_string_lossy().into_owned());
        words.push(path);
        words.push(tree::root()?.to_string_lossy().into_owned());
        words.push(tree::target()?.to_string_lossy().into_owned());
        Ok(words)
    }
}

fn finish(root: &Path) -> Result<()> {
    for (path, text) in FILES {
        fs::write(root.join(path), text)?;
    }
    fs::create_dir_all(root.join(VALKEY))?;
    for (path, to) in LINKS {
        symlink(to, root.join(path)).with_context(|| format!("{path} cannot be made"))?;
    }
    Ok(())
}

/// `Debian 12`, from the file that says so.
fn release(text: &str) -> Result<String> {
    let field = |name: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map(|value| value.trim_matches('"')).with_context(|| format!("there is no {name}"))
    };
    let name = field("NAME")?.split(' ').next().unwrap_or_default();
    Ok(format!("{name} {}", field("VERSION_ID")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_a_short_name() {
        let text = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian GNU/Linux\"\n\
            VERSION_ID=\"12\"\n";
        assert_eq!(release(text).unwrap(), "Debian 12");
        assert!(release("NAME=x\n").is_err());
    }

    #[test]
    fn valkey_comes_before_redis_only_where_it_is_asked_for() {
        let words = |place: Place| place.wrapper().unwrap().join(" ");
        assert!(words(Place::UnstableValkey).contains(" /opt/valkey:/usr"));
        assert!(!words(Place::Unstable).contains(" /opt/valkey"));
        assert!(!words(Place::Machine).contains("chroot"));
    }
}
