//! The programs of Java that tests start, and the archives of classes that they are made of.

use std::path::PathBuf;
use std::process::Command;

use crate::program;

/// Where Debian keeps archives of classes.
const FOLDER: &str = "/usr/share/java";

/// What a server is made of. The encrypted one needs Netty too.
pub const SERVER: &[&str] = &["zookeeper", "zookeeper-jute", "slf4j-api", "slf4j-simple"];

/// What an encrypted server needs more.
pub const NETTY: &[&str] = &[
    "netty-buffer",
    "netty-codec",
    "netty-common",
    "netty-handler",
    "netty-resolver",
    "netty-transport",
    "netty-transport-native-epoll",
    "netty-transport-native-unix-common",
];

/// What a client with the recipes of Curator is made of, besides that of a server.
pub const CURATOR: &[&str] = &["curator-client", "curator-framework", "curator-recipes", "guava"];

/// What makes a program of Java start fast and stay small.
const QUICK: &[&str] = &["-XX:TieredStopAtLevel=1", "-Xms16m"];

/// Without handlers of its own for signals it ends by any of them.
const OPTIONS: &[&str] = &["-XX:+UseSerialGC", "-Xrs"];

/// The path of such an archive, if it is there.
pub fn locate(archive: &str) -> Option<PathBuf> {
    let path = PathBuf::from(FOLDER).join(format!("{archive}.jar"));
    path.is_file().then_some(path)
}

/// The paths of these archives, as Java wants them, and of a folder with classes if one is given.
///
/// # Panics
/// When one is not installed, saying how to install it.
pub fn class_path(archives: &[&str], folder: Option<&str>) -> String {
    let path = |archive: &&str| {
        let path = locate(archive);
        path.unwrap_or_else(|| panic!("{archive}.jar is not installed; run: cargo xtask setup"))
    };
    let paths = archives.iter().map(path).map(|path| path.display().to_string());
    paths.chain(folder.map(str::to_owned)).collect::<Vec<_>>().join(":")
}

/// Java with at most so many megabytes for its objects, which starts fast unless it is to be
/// optimized while it runs.
///
/// # Panics
/// When it is not installed, saying how to install it.
pub fn command(megabytes: u32, optimized: bool) -> Command {
    let mut command = Command::new(program::find("java"));
    command.args(OPTIONS).arg(format!("-Xmx{megabytes}m"));
    if !optimized {
        command.args(QUICK);
    }
    command
}
