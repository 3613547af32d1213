//! Programs that take locks on etcd without Lockfast: `etcdctl lock`, and the lock that the server
//! itself has.

use std::io;
use std::time::Duration;

use lockfast_faults::child::Child;
use lockfast_faults::etcd::Etcd;

use super::{TIME_MAX, wait_until};

/// A running `etcdctl lock`.
#[derive(Debug)]
pub struct EtcdctlLock {
    child: Child,
    name: String,
}

impl EtcdctlLock {
    /// Starts it, and returns when it stands in line or has the lock.
    pub fn start(server: &Etcd, name: &str, ttl: Duration) -> Self {
        let before = claims(server, name);
        let mut command = server.etcdctl();
        command.args(["lock", &format!("--ttl={}", ttl.as_secs()), "--", name]);
        let child = Child::spawn(&mut command).unwrap();
        wait_until("etcdctl stands in line", TIME_MAX, || claims(server, name) > before);
        Self { child, name: name.to_owned() }
    }

    /// Waits until it has the lock.
    pub fn wait(&self) {
        // It prints the key.
        self.child.wait_for(&format!("{}/", self.name), TIME_MAX).unwrap();
    }

    /// Whether it does not get the lock for so long.
    pub fn waits_for(&self, span: Duration) -> bool {
        let said = self.child.wait_for(&format!("{}/", self.name), span);
        said.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut)
    }

    /// Gives the lock back, or gives up.
    pub fn end(mut self) {
        self.child.interrupt().unwrap();
        self.child.finish(TIME_MAX).unwrap();
    }

    /// Kills it, as a crash does.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
    }
}

/// How many hold a lock or stand in line for it.
pub fn claims(server: &Etcd, name: &str) -> usize {
    server.keys(&format!("{name}/")).len()
}

/// A lease, as etcdctl shows it.
pub fn grant_lease(server: &Etcd, ttl: Duration) -> String {
    let said = server.ctl(&["lease", "grant", &ttl.as_secs().to_string()]);
    said.split_whitespace().nth(1).unwrap().to_owned()
}

/// Takes the lock that the server itself has, and returns its key; waits for it.
pub fn lock_by_server(server: &Etcd, name: &str, lease: &str) -> Result<String, String> {
    let lease = i64::from_str_radix(lease, 16).unwrap();
    let body = format!(r#"{{"name":"{}","lease":"{lease}"}}"#, base64(name.as_bytes()));
    let (status, said) = server.post("/v3/lock/lock", &body).map_err(|error| error.to_string())?;
    if status != 200 {
        return Err(said);
    }
    let key = said.split(r#""key":""#).nth(1).and_then(|rest| rest.split('"').next());
    Ok(key.unwrap_or_else(|| panic!("no key in {said}")).to_owned())
}

/// Gives it back.
pub fn unlock_by_server(server: &Etcd, key: &str) {
    let (status, said) = server.post("/v3/lock/unlock", &format!(r#"{{"key":"{key}"}}"#)).unwrap();
    assert_eq!(status, 200, "{said}");
}

/// As the server's gateway wants bytes.
fn base64(bytes: &[u8]) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let number = chunk.iter().fold(0_u32, |number, byte| number << 8 | u32::from(*byte))
            << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let sign = SIGNS[(number >> (18 - 6 * place) & 63) as usize];
            text.push(if place <= chunk.len() { char::from(sign) } else { '=' });
        }
    }
    text
}
