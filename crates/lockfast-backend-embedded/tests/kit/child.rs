//! Other processes for the tests: the test binary starts itself again, and the copy does what it
//! reads from its standard input.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use lockfast_core::{
    AcquireOutcome, AcquireRequest, Address, Error, Moment, ReleaseRequest, RenewRequest, Wait,
};
use nix::unistd::{Gid, Uid, setgid, setgroups, setuid};

use super::{Asker, Held, ask, release, request};

const URL: &str = "LOCKFAST_TEST_CHILD_URL";
const USER: &str = "LOCKFAST_TEST_CHILD_USER";
const UMASK: &str = "LOCKFAST_TEST_CHILD_UMASK";

/// As whom a process runs. Only root can start one as somebody else.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) id: u32,
    pub(crate) group: u32,
    /// Another group that it is in.
    pub(crate) also: u32,
}

/// A process that is connected to a store.
pub(crate) struct Other {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Other {
    /// Starts a process that is connected to `url`.
    pub(crate) fn start(url: &str) -> Self {
        Self::start_as(url, None, 0o022)
    }

    /// Starts one as somebody else, or as who runs the tests, with this umask.
    pub(crate) fn start_as(url: &str, user: Option<User>, umask: u32) -> Self {
        let mut other = Self::try_start(url, user, umask);
        assert_eq!(other.read(), "connected");
        other
    }

    /// What a process that cannot connect says.
    pub(crate) fn refusal_of(url: &str, user: Option<User>) -> String {
        let mut other = Self::try_start(url, user, 0o022);
        let said = other.read();
        let Self { mut child, input, .. } = other;
        // One that is connected after all ends without orders.
        drop(input);
        child.wait().unwrap();
        said
    }

    fn try_start(url: &str, user: Option<User>, umask: u32) -> Self {
        // A write beyond the limit of a file's size is to fail, not to end the process.
        let mut command = Command::new("sh");
        command
            .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "other_process", "--nocapture"])
            .env(URL, url)
            .env(UMASK, umask.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(User { id, group, also }) = user {
            command.env(USER, format!("{id} {group} {also}"));
        }
        let mut child = command.spawn().unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, input, output }
    }

    /// Tells it what to do.
    pub(crate) fn tell(&mut self, order: &str) {
        writeln!(self.input, "{order}").unwrap();
    }

    /// What it says next.
    pub(crate) fn read(&mut self) -> String {
        loop {
            let line = self.output.next().expect("it has ended").unwrap();
            if let Some((_, said)) = line.split_once("> ") {
                return said.to_owned();
            }
        }
    }

    /// Tells it what to do, and what it says then.
    pub(crate) fn ask(&mut self, order: &str) -> String {
        self.tell(order);
        self.read()
    }

    /// Ends it without a chance to do anything.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Lets it end by itself.
    pub(crate) fn finish(mut self) {
        self.tell("exit");
        assert!(self.child.wait().unwrap().success());
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

/// Becomes the user as whom the process is to run.
fn change_user() {
    let umask: u32 = std::env::var(UMASK).unwrap().parse().unwrap();
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(umask));
    let Ok(user) = std::env::var(USER) else {
        return;
    };
    let mut ids = user.split(' ').map(|id| id.parse::<u32>().unwrap());
    let mut next = || ids.next().unwrap();
    let (id, group, also) = (Uid::from_raw(next()), Gid::from_raw(next()), Gid::from_raw(next()));
    setgroups(&[also]).unwrap();
    setgid(group).unwrap();
    setuid(id).unwrap();
}

/// The process on the other side; nothing in one that was not started so. Orders are
/// `acquire NAME TTL_MS DELAY_MS`, `release`, `try ACT`, `witness`, `doctor CHECK`, `open PATH` and
/// `exit`.
pub(crate) fn serve() {
    let Ok(url) = std::env::var(URL) else {
        return;
    };
    change_user();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let asker = match runtime.block_on(Asker::try_connect(&url)) {
        Ok(asker) => asker,
        Err(error) => return println!("> refused, {:?}: {error}", error.kind()),
    };
    println!("> connected");
    let mut held = Vec::new();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<_> = line.split(' ').collect();
        match words.as_slice() {
            ["acquire", name, ttl, delay] => {
                let millis = |text: &str| Duration::from_millis(text.parse().unwrap());
                let request = AcquireRequest {
                    ttl: millis(ttl),
                    lock_delay: millis(delay),
                    ..request(&asker, name, Wait::Forever)
                };
                let lease = runtime.block_on(ask(&asker, request));
                let now_ns = Moment::now().host_ns();
                println!("> {} {now_ns}", lease.grant.fence);
                held.push(lease);
            }
            ["release"] => {
                let lease = held.pop().unwrap();
                let start_ns = Moment::now().host_ns();
                runtime.block_on(release(&asker, &lease));
                println!("> {start_ns}");
            }
            ["try", act] => println!("> {}", runtime.block_on(attempt(&asker, act, &mut held))),
            ["witness"] => println!("> {:?}", asker.backend.profile().expiry),
            ["doctor", check] => println!("> {}", runtime.block_on(doctor(&url, check))),
            ["open", path] => println!("> {:?}", File::open(path).map_err(|error| error.kind())),
            ["exit"] => return,
            other => panic!("not an order: {other:?}"),
        }
    }
}

/// What a diagnosis finds of one thing.
async fn doctor(url: &str, check: &str) -> String {
    let diagnosing = lockfast_backend_embedded::diagnose(Address::parse(url).unwrap());
    let findings = diagnosing.await.unwrap().findings;
    let found = findings.into_iter().find(|finding| finding.check == check).unwrap();
    format!("{:?}: {}; {}", found.severity, found.fact, found.fix)
}

/// Renews or releases the last lease (`renew`, `release`), or acquires the lock of that name, and
/// says what came of it.
async fn attempt(asker: &Asker, act: &str, held: &mut Vec<Held>) -> String {
    let said = |error: Error| format!("{:?}: {error}", error.kind());
    let Some(Held { name, holder, .. }) = held.last() else {
        return "nothing is held".into();
    };
    let (name, holder) = (name.clone(), *holder);
    match act {
        "renew" => {
            let (ttl, lock_delay) = (Duration::from_secs(60), Duration::ZERO);
            let renewal = RenewRequest { name, holder, ttl, lock_delay };
            let renewed = asker.backend.renew(vec![renewal]).await;
            renewed.map_or_else(said, |outcomes| format!("{outcomes:?}"))
        }
        "release" => {
            let released = asker.backend.release(ReleaseRequest { name, holder }).await;
            released.map_or_else(said, |outcome| format!("{outcome:?}"))
        }
        other => {
            let request = request(asker, other, Wait::No);
            let (name, holder) = (request.name.clone(), request.holder);
            match asker.backend.acquire(request).await {
                Ok(AcquireOutcome::Granted(grant)) => {
                    let fence = grant.fence;
                    held.push(Held { name, holder, grant });
                    format!("granted {fence}")
                }
                Ok(AcquireOutcome::Taken(_)) => "taken".into(),
                Err(error) => said(error),
            }
        }
    }
}
