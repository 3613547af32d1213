//! A blocking socket that speaks the protocol itself, with nothing in between: what the server and
//! the kernel allow.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};

use crate::contender::TTL;
use crate::{Latencies, stay};

const GIVE_BACK: &str = "
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0";

const RENEW: &str = "
local count = 0
for i, key in ipairs(KEYS) do
  if redis.call('GET', key) == ARGV[i + 1] then
    count = count + redis.call('PEXPIRE', key, ARGV[1])
  end
end
return count";

/// As long as the id of a holder in other libraries.
const HOLDER: &str = "holder-0123456789abcdef0";
const KEYS_A_CALL: usize = 100;

/// A connection.
struct Socket {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Socket {
    fn open(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; 64 * 1024] })
    }

    /// Sends prepared commands, of which each is answered by `reply`.
    fn exchange(&mut self, commands: &[u8], reply: &str, count: usize) -> Result<()> {
        self.stream.write_all(commands)?;
        let replies = &mut self.buffer[..reply.len() * count];
        self.stream.read_exact(replies)?;
        ensure!(
            replies.chunks(reply.len()).all(|found| found == reply.as_bytes()),
            "another answer than {reply:?}: {:?}",
            String::from_utf8_lossy(replies)
        );
        Ok(())
    }

    /// Loads a script and answers its digest.
    fn load(&mut self, script: &str) -> Result<String> {
        self.stream.write_all(&encode(&["SCRIPT", "LOAD", script]))?;
        let length = self.stream.read(&mut self.buffer)?;
        let reply = String::from_utf8_lossy(&self.buffer[..length]);
        match reply.split("\r\n").nth(1) {
            Some(digest) if digest.len() == 40 => Ok(digest.to_owned()),
            _ => bail!("no digest but {reply:?}"),
        }
    }
}

fn encode(words: &[&str]) -> Vec<u8> {
    let mut text = format!("*{}\r\n", words.len());
    for word in words {
        text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    text.into_bytes()
}

fn name(number: usize) -> String {
    format!("lock:{number:012}")
}

fn lease() -> String {
    TTL.as_millis().to_string()
}

/// Takes and gives back so many locks at once: all commands in one write.
pub(crate) fn cycle(port: u16, tasks: usize, span: Duration) -> Result<Value> {
    let mut socket = Socket::open(port)?;
    let digest = socket.load(GIVE_BACK)?;
    let names: Vec<String> = (0..tasks).map(name).collect();
    let take = |name: &String| encode(&["SET", name, HOLDER, "NX", "PX", &lease()]);
    let give = |name: &String| encode(&["EVALSHA", &digest, "1", name, HOLDER]);
    let takes: Vec<u8> = names.iter().flat_map(take).collect();
    let gives: Vec<u8> = names.iter().flat_map(give).collect();
    let mut latencies = Vec::new();
    let start = Instant::now();
    while start.elapsed() < span {
        let before = Instant::now();
        socket.exchange(&takes, "+OK\r\n", tasks)?;
        socket.exchange(&gives, ":1\r\n", tasks)?;
        latencies.push(before.elapsed().as_nanos() as u64);
    }
    let rate = (latencies.len() * tasks) as f64 / start.elapsed().as_secs_f64();
    let latencies = Latencies::new(latencies);
    let (p50, p99) = (latencies.percentile(50), latencies.percentile(99));
    Ok(json!({ "cycles_per_s": rate, "p50_us": p50, "p99_us": p99 }))
}

/// Takes so many locks and keeps them.
pub(crate) fn hold(port: u16, locks: usize) -> Result<Value> {
    take_all(port, locks)?;
    stay()?;
    Ok(json!({}))
}

fn take_all(port: u16, locks: usize) -> Result<Socket> {
    let mut socket = Socket::open(port)?;
    for number in 0..locks {
        let command = encode(&["SET", &name(number), HOLDER, "NX", "PX", &lease()]);
        socket.exchange(&command, "+OK\r\n", 1)?;
    }
    Ok(socket)
}

/// Renews all, so many times: says how long it took, and gives them back.
pub(crate) fn renew(port: u16, leases: usize, rounds: usize) -> Result<Value> {
    let mut socket = take_all(port, leases)?;
    let digest = socket.load(RENEW)?;
    let names: Vec<String> = (0..leases).map(name).collect();
    let lease = lease();
    let calls: Vec<(Vec<u8>, String)> = names
        .chunks(KEYS_A_CALL)
        .map(|names| {
            let count = names.len().to_string();
            let mut words = vec!["EVALSHA", &digest, &count];
            words.extend(names.iter().map(String::as_str));
            words.push(&lease);
            words.extend(names.iter().map(|_| HOLDER));
            (encode(&words), format!(":{count}\r\n"))
        })
        .collect();
    let cpu_before = server_cpu(&mut socket)?;
    let before = Instant::now();
    for _ in 0..rounds {
        for (command, reply) in &calls {
            socket.exchange(command, reply, 1)?;
        }
    }
    let wall = before.elapsed().as_secs_f64();
    let cpu = server_cpu(&mut socket)? - cpu_before;
    for name in &names {
        socket.exchange(&encode(&["DEL", name]), ":1\r\n", 1)?;
    }
    let scale = 1e7 / (leases * rounds) as f64;
    Ok(json!({ "server_cpu_ms_per_10k": cpu * scale, "wall_ms_per_10k": wall * scale }))
}

/// The server's CPU time in seconds.
fn server_cpu(socket: &mut Socket) -> Result<f64> {
    socket.stream.write_all(&encode(&["INFO", "cpu"]))?;
    let length = socket.stream.read(&mut socket.buffer)?;
    let text = String::from_utf8_lossy(&socket.buffer[..length]);
    let used = ["used_cpu_user:", "used_cpu_sys:"];
    Ok(text
        .lines()
        .filter_map(|line| used.iter().find_map(|name| line.strip_prefix(name)))
        .filter_map(|seconds| seconds.trim().parse::<f64>().ok())
        .sum())
}
