//! Connections over TCP that neither linger nor hang.

use std::io;
use std::time::Duration;

use rustix::net::sockopt;
use tokio::net::TcpStream;

const KEEPALIVE_PROBES: u32 = 3;
const USER_TIMEOUT_MS: u32 = 10_000;

/// When a peer that is gone without a word is looked for while nothing is sent. When something
/// is, it is noticed within 10 s.
#[derive(Clone, Copy, Debug)]
pub struct Keepalive {
    /// After so much silence for the first time.
    pub idle: Duration,
    /// Then three times, with so much time in between.
    pub interval: Duration,
}

/// Why there is no connection.
#[derive(Debug)]
pub enum Unconnected {
    /// The host is not known.
    Unknown(io::Error),
    /// Nobody there could be reached.
    Failed(io::Error),
}

/// Connects to a port of a host, at whichever of its addresses answers.
///
/// # Errors
/// What the last of its addresses said.
///
/// # Cancel safety
/// Safe: what is half connected is closed.
pub async fn connect(
    host: &str,
    port: u16,
    keepalive: Keepalive,
) -> Result<TcpStream, Unconnected> {
    let addresses = tokio::net::lookup_host((host, port)).await.map_err(Unconnected::Unknown)?;
    let mut last = None;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                harden(&stream, keepalive).map_err(Unconnected::Failed)?;
                return Ok(stream);
            }
            Err(error) => last = Some(error),
        }
    }
    Err(match last {
        Some(error) => Unconnected::Failed(error),
        None => Unconnected::Unknown(io::Error::other("it has no address")),
    })
}

fn harden(stream: &TcpStream, keepalive: Keepalive) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, keepalive.idle)?;
    sockopt::set_tcp_keepintvl(stream, keepalive.interval)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES)?;
    sockopt::set_tcp_user_timeout(stream, USER_TIMEOUT_MS)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEEPALIVE: Keepalive =
        Keepalive { idle: Duration::from_secs(15), interval: Duration::from_secs(5) };

    #[tokio::test]
    async fn a_connection_neither_lingers_nor_hangs() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = connect("127.0.0.1", port, KEEPALIVE).await.unwrap();
        assert!(stream.nodelay().unwrap());
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), KEEPALIVE.idle);
        assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), KEEPALIVE.interval);
        assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), KEEPALIVE_PROBES);
        assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), USER_TIMEOUT_MS);
    }

    #[tokio::test]
    async fn a_port_without_a_listener_fails() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        let error = connect("127.0.0.1", port, KEEPALIVE).await.unwrap_err();
        assert!(matches!(error, Unconnected::Failed(_)), "{error:?}");
    }
}
