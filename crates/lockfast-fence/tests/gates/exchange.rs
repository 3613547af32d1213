//! As much of HTTP as these tests need.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Longer than any answer takes.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// What a server answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// Sends one request with these lines of headers and reads the answer.
pub(crate) fn ask(server: &str, method: &str, path: &str, headers: &[&str], body: &str) -> Answer {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(ANSWER_TIME_MAX)).unwrap();
    let length = body.len();
    let mut request =
        format!("{method} {path} HTTP/1.0\r\nHost: {server}\r\nContent-Length: {length}\r\n");
    for header in headers {
        request.push_str(header);
        request.push_str("\r\n");
    }
    stream.write_all(format!("{request}\r\n{body}").as_bytes()).unwrap();
    let mut said = String::new();
    stream.read_to_string(&mut said).unwrap();
    let (head, body) = said.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}
