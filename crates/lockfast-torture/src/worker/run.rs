//! A `lockfast run` under one of the locks, attended by a process of its own that outlives a worker
//! that is killed.

use std::io;
use std::process::{ExitStatus, Stdio};

use tokio::process::Command;

use super::task::Wish;
use super::{Shared, attendant};

/// Takes a lock by `lockfast run` and waits until nothing is left of it; not if there is such a run
/// already, and then it says so.
pub(super) async fn under_lock(shared: &Shared, wish: &Wish, chance: u64) -> bool {
    let Ok(_permit) = shared.runs.try_acquire() else { return false };
    // Without an attendant nothing was asked for and nothing is recorded.
    attend(shared, wish, chance).await.is_ok()
}

async fn attend(shared: &Shared, wish: &Wish, chance: u64) -> io::Result<ExitStatus> {
    let script = &shared.script;
    let errand = attendant::Errand {
        claim: wish.claim,
        lock: script.targets[wish.place].name.clone(),
        directory: script.directory.clone(),
        ttl: script.ttl,
        chance,
    };
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(attendant::COMMAND).arg(serde_json::to_string(&errand)?);
    // The URL may hold a password, and everybody can read what a process was started with.
    command.env("LOCKFAST_URL", &script.url);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
    // It ends when its input does, also when this process is killed.
    let input = child.stdin.take();
    tokio::select! {
        ended = child.wait() => return ended,
        () = shared.ended() => {}
    }
    drop(input);
    child.wait().await
}
