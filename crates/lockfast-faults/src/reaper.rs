//! Ends the servers of a test process that died without doing so itself: killed, interrupted,
//! aborted, or ended with a server in a `static`.
//!
//! A shell waits for the end of a pipe whose other end only the test process has. The kernel closes
//! that end, whatever the process dies of. (A death signal of the parent does not do: it is sent
//! when the *thread* ends that started the server, and tests have a thread each.) What is to be
//! ended is a file for each process, so that nothing has to be said in time.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;

use super::server::start_time_of;

/// Waits for the end of its input, then ends each process that has a file in the directory `$0`:
/// the file's name is the pid, its lines are the time at which the process started and the
/// directory to remove. QUIT ends PostgreSQL in order, and everybody else somehow.
const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM
is_there() {
    read -r line 2>/dev/null < "/proc/$1/stat" || return 1
    set -- "$2" ${line##*) }
    [ "$2" != Z ] && [ "${21}" = "$1" ]
}
read -r _
for ward in "$0"/*; do
    [ -f "$ward" ] || continue
    pid=${ward##*/}
    { read -r born; read -r place; } < "$ward"
    for signal in QUIT CONT; do is_there "$pid" "$born" && kill -s $signal "$pid"; done
    tries=0
    while is_there "$pid" "$born"; do
        tries=$((tries + 1))
        [ $tries -gt 50 ] && kill -s KILL "$pid"
        sleep 0.1
    done
    [ -n "$place" ] && rm -rf "$place"
done
rm -rf "$0"
"#;

/// A process that is ended when the test process is gone. Dropping it says that this was done.
#[derive(Debug)]
pub struct Ward {
    file: PathBuf,
}

struct Reaper {
    directory: PathBuf,
    /// Open as long as this process lives; nothing is ever written.
    _pipe: ChildStdin,
}

/// Has a process that this one has started ended when this one is gone, and its directory removed
/// if it has one in the place for temporary ones.
///
/// # Panics
/// When there can be no reaper.
pub fn watch(pid: u32, directory: Option<&Path>) -> Ward {
    static REAPER: OnceLock<Reaper> = OnceLock::new();
    let reaper = REAPER.get_or_init(|| start().expect("a reaper"));
    let file = reaper.directory.join(pid.to_string());
    let born = start_time_of(pid).unwrap_or_default();
    let place = directory.filter(|path| is_temporary(path)).unwrap_or(Path::new(""));
    // It appears whole or not at all.
    let draft = reaper.directory.join(format!(".{pid}"));
    std::fs::write(&draft, format!("{born}\n{}\n", place.display())).unwrap();
    std::fs::rename(&draft, &file).unwrap();
    Ward { file }
}

impl Drop for Ward {
    fn drop(&mut self) {
        // If it stays, the process is not there any more and nothing is done.
        let _ = std::fs::remove_file(&self.file);
    }
}

fn start() -> io::Result<Reaper> {
    let directory = tempfile::Builder::new().prefix("lockfast-reaper-").tempdir()?.keep();
    let mut command = Command::new("sh");
    // A group of its own: an interrupt at the terminal is for the tests.
    command.args(["-c", SCRIPT]).arg(&directory).process_group(0);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let pipe = command.spawn()?.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    Ok(Reaper { directory, _pipe: pipe })
}

/// Whether a directory was made by `tempfile`, so that nothing else is ever removed.
fn is_temporary(path: &Path) -> bool {
    let is_ours = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".tmp"));
    is_ours && path.parent() == Some(&std::env::temp_dir())
}
