//! An address that can be pointed at one server or another.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// An address behind which the server can be exchanged, as a virtual address does it.
#[derive(Debug)]
pub struct Signpost {
    address: SocketAddr,
    way: Arc<Mutex<Way>>,
}

#[derive(Debug)]
struct Way {
    server: SocketAddr,
    open: Vec<TcpStream>,
}

impl Signpost {
    /// Listens on a free port of loopback and sends connections to `server`.
    pub fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let way = Arc::new(Mutex::new(Way { server, open: Vec::new() }));
        let shared = Arc::downgrade(&way);
        // The thread ends when a connection arrives after the signpost is gone; see Drop.
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Some(way) = shared.upgrade() else { return };
                // A server that is down closes the connection, as the kernel would.
                let _ = join(client, &way);
            }
        });
        Self { address, way }
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Cuts every connection and sends those to come to another server.
    pub fn turn_to(&self, server: SocketAddr) {
        let mut way = self.way.lock().unwrap();
        way.server = server;
        for stream in way.open.drain(..) {
            // It may have been closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Signpost {
    fn drop(&mut self) {
        self.turn_to(self.address);
        self.way = Arc::new(Mutex::new(Way { server: self.address, open: Vec::new() }));
        let _ = TcpStream::connect(self.address);
    }
}

fn join(client: TcpStream, way: &Mutex<Way>) -> io::Result<()> {
    let mut way = way.lock().unwrap();
    let server = TcpStream::connect_timeout(&way.server, Duration::from_secs(5))?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    carry(client.try_clone()?, server.try_clone()?);
    carry(server.try_clone()?, client.try_clone()?);
    way.open.extend([client, server]);
    Ok(())
}

fn carry(mut from: TcpStream, mut to: TcpStream) {
    std::thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
}
