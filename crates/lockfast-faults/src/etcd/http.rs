//! As much of HTTP as asks a server one thing.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longer than any answer takes that is not waited for on purpose.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// A server that says something about itself does so within this.
const LOOK_TIME_MAX: Duration = Duration::from_secs(5);

/// The status and the body at `path`.
pub(super) fn get(server: SocketAddr, path: &str) -> io::Result<(u16, String)> {
    ask(server, &format!("GET {path} HTTP/1.0\r\n\r\n"), LOOK_TIME_MAX)
}

/// The same after sending a body.
pub(super) fn post(server: SocketAddr, path: &str, body: &str) -> io::Result<(u16, String)> {
    let length = body.len();
    let request = format!("POST {path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n{body}");
    ask(server, &request, ANSWER_TIME_MAX)
}

fn ask(server: SocketAddr, request: &str, limit: Duration) -> io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&server, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.write_all(request.as_bytes())?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    parse(&said).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, said))
}

fn parse(said: &str) -> Option<(u16, String)> {
    let (head, body) = said.split_once("\r\n\r\n")?;
    Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_a_status_and_a_body() {
        let said = "HTTP/1.0 200 OK\r\nA: b\r\n\r\n{\"x\":1}\r\n\r\n";
        assert_eq!(parse(said), Some((200, "{\"x\":1}\r\n\r\n".to_owned())));
        assert_eq!(parse("hello"), None);
    }
}
