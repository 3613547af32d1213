//! What the tests need besides Rust. A new backend adds the server it is tested with as a row of
//! [`NEEDS`]; whatever is missing is installed with apt, and elsewhere named. A server that the
//! machine's packages cannot have is a module of its own, such as [`mysql`].

pub(crate) mod archive;
mod mysql;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::refuse_arguments;
use crate::step::{Step, timed};
use crate::tree;

/// One thing that must be there.
struct Need {
    /// It is there when this program is, or this file.
    program: &'static str,
    /// And when the program, started so, succeeds; nothing is started when this is empty.
    proof: &'static [&'static str],
    /// The Debian packages that bring it.
    packages: &'static [&'static str],
    /// What it is needed for.
    purpose: &'static str,
}

const NEEDS: &[Need] = &[
    Need {
        program: "cc",
        proof: &[],
        packages: &["gcc", "libc6-dev"],
        purpose: "compiles the bundled SQLite of the embedded store",
    },
    Need {
        program: "redis-server",
        proof: &[],
        packages: &["redis-server"],
        purpose: "is what the Redis store is tested with",
    },
    Need {
        program: "redis-cli",
        proof: &[],
        packages: &["redis-tools"],
        purpose: "shares locks with the Redis store",
    },
    Need {
        program: "openssl",
        proof: &[],
        packages: &["openssl"],
        purpose: "makes the certificates of encrypted test servers",
    },
    Need {
        program: "python3",
        proof: &["-c", "import ensurepip, venv"],
        packages: &["python3", "python3-venv"],
        purpose: "runs redis-py, which shares locks with the Redis store",
    },
    Need {
        program: "node",
        proof: &[],
        packages: &["nodejs"],
        purpose: "runs node-redlock, which shares locks with the Redis store",
    },
    Need { program: "npm", proof: &[], packages: &["npm"], purpose: "installs node-redlock" },
    Need {
        program: "postgres",
        proof: &[],
        packages: &["postgresql"],
        purpose: "is what the PostgreSQL store is tested with",
    },
    Need {
        program: "pgbouncer",
        proof: &[],
        packages: &["pgbouncer"],
        purpose: "is the pooler that the PostgreSQL store is tested behind",
    },
    Need {
        program: "mariadbd",
        proof: &[],
        packages: &["mariadb-server"],
        purpose: "is what the MySQL store is tested with",
    },
    Need {
        program: "etcd",
        proof: &[],
        packages: &["etcd-server"],
        purpose: "is what the etcd store is tested with",
    },
    Need {
        program: "etcdctl",
        proof: &[],
        packages: &["etcd-client"],
        purpose: "shares locks with the etcd store",
    },
    Need {
        program: "java",
        proof: &[],
        packages: &["default-jre-headless"],
        purpose: "runs ZooKeeper",
    },
    Need {
        program: "javac",
        proof: &[],
        packages: &["default-jdk-headless"],
        purpose: "compiles a program with Curator's locks, which shares them with the ZooKeeper store",
    },
    Need {
        program: "/usr/share/java/zookeeper.jar",
        proof: &[],
        packages: &["libzookeeper-java"],
        purpose: "is what the ZooKeeper store is tested with",
    },
    Need {
        program: "/usr/share/java/curator-recipes.jar",
        proof: &[],
        packages: &["libcurator-recipes-java"],
        purpose: "shares locks with the ZooKeeper store",
    },
    Need {
        program: "zsh",
        proof: &[],
        packages: &["zsh"],
        purpose: "completes what is typed by a script of the command",
    },
    Need {
        program: "fish",
        proof: &[],
        packages: &["fish"],
        purpose: "completes what is typed by another",
    },
    Need {
        program: "chromium",
        proof: &[],
        packages: &["chromium"],
        purpose: "shows the report of a torture, which is tested in it",
    },
];

/// Where the foreign clients of the stores' tests are listed, and where they go.
const REDIS_CLIENTS: &str = "crates/lockfast-backend-redis/tests/clients";
const ZOOKEEPER_CLIENTS: &str = "crates/lockfast-backend-zookeeper/tests/clients";
const CLIENTS_TO: &str = "target/foreign-clients";

/// What a program with Curator's locks is compiled with.
const CURATOR: &str = "/usr/share/java/curator-client.jar:/usr/share/java/curator-framework.jar:\
    /usr/share/java/curator-recipes.jar:/usr/share/java/zookeeper.jar";

/// Where servers are that a user's `PATH` often leaves out.
const FOLDERS_MORE: &[&str] = &["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Where Debian keeps the programs of each version of PostgreSQL, as `VERSION/bin`.
const FOLDER_POSTGRES: &str = "/usr/lib/postgresql";

/// Installs what is missing.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    refuse_arguments(arguments)?;
    timed("setup", || {
        let missing: Vec<&Need> = NEEDS.iter().filter(|need| !need.is_met()).collect();
        for need in &missing {
            eprintln!("  {} is missing: it {}", need.program, need.purpose);
        }
        if !missing.is_empty() {
            install(&missing)?;
        }
        if let Some(need) = missing.iter().find(|need| !need.is_met()) {
            bail!("{} is still missing after its packages were installed", need.program);
        }
        foreign_clients()?;
        mysql::bring()
    })
}

impl Need {
    fn is_met(&self) -> bool {
        let works = || Step::program(self.program, self.proof).read().is_ok();
        is_there(self.program) && (self.proof.is_empty() || works())
    }
}

/// Brings the clients in other languages that share locks with ours, unless they are there in
/// the versions that are asked for.
fn foreign_clients() -> Result<()> {
    let root = tree::root()?;
    let (redis, to) = (root.join(REDIS_CLIENTS), root.join(CLIENTS_TO));
    python_clients(&redis, &to.join("python"))?;
    python_clients(&root.join(ZOOKEEPER_CLIENTS), &to.join("kazoo"))?;
    compile_with_curator(&root.join(ZOOKEEPER_CLIENTS), "CuratorLock.java", &to.join("curator"))?;
    let node = to.join("node");
    let lists = ["package.json", "package-lock.json"];
    if !is_copied(&redis, &node, &lists) || !node.join("node_modules").is_dir() {
        copy(&redis, &node, &lists)?;
        let quietly = ["ci", "--silent", "--no-audit", "--no-fund", "--prefix"];
        Step::program("npm", &[&quietly[..], &[&*node.to_string_lossy()]].concat()).run()?;
    }
    Ok(())
}

/// Installs what a list names into an environment of its own.
fn python_clients(from: &Path, to: &Path) -> Result<()> {
    const LIST: &str = "requirements.txt";
    if is_copied(from, to, &[LIST]) {
        return Ok(());
    }
    let (venv, list) = (to.to_string_lossy().into_owned(), from.join(LIST));
    let list = list.to_string_lossy();
    Step::program("python3", &["-m", "venv", &venv]).run()?;
    let quietly = ["install", "--quiet", "--disable-pip-version-check", "-r"];
    let words = [&quietly[..], &[&*list]].concat();
    Step::program(&format!("{venv}/bin/pip"), &words).run()?;
    copy(from, to, &[LIST])
}

/// Compiles a program that takes locks by Curator, unless that is done.
pub(crate) fn compile_with_curator(from: &Path, source: &str, to: &Path) -> Result<()> {
    if is_copied(from, to, &[source]) {
        return Ok(());
    }
    fs::create_dir_all(to)?;
    let (folder, path) = (to.to_string_lossy(), from.join(source));
    let words = ["-nowarn", "-cp", CURATOR, "-d", &folder, &*path.to_string_lossy()];
    Step::program("javac", &words).run()?;
    copy(from, to, &[source])
}

fn is_copied(from: &Path, to: &Path, names: &[&str]) -> bool {
    names.iter().all(|name| {
        let (asked, there) = (fs::read(from.join(name)), fs::read(to.join(name)));
        matches!((asked, there), (Ok(asked), Ok(there)) if asked == there)
    })
}

fn copy(from: &Path, to: &Path, names: &[&str]) -> Result<()> {
    fs::create_dir_all(to)?;
    for name in names {
        fs::copy(from.join(name), to.join(name))?;
    }
    Ok(())
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
    let versions = fs::read_dir(FOLDER_POSTGRES).into_iter().flatten().flatten();
    std::env::split_paths(&path)
        .chain(FOLDERS_MORE.iter().map(PathBuf::from))
        .chain(versions.map(|version| version.path().join("bin")))
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
