//! Ports of loopback that stay ours while the server on them is down.
//!
//! A port that the kernel hands out can be handed to anybody else as soon as it is closed: then a
//! server cannot be restarted, or somebody's clients find a stranger. So ports are taken below
//! the range that the kernel uses, and test processes keep each other out by a name.

use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU32, Ordering};

use lockfast_core::Moment;

const FIRST: u32 = 10_000;
const COUNT: u32 = 20_000;
const ATTEMPTS_MAX: usize = 1_000;

/// A port that no other test takes while this lives.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _reservation: UnixListener,
}

impl Port {
    /// Takes a free one.
    ///
    /// # Panics
    /// When there is none.
    pub fn take() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Processes begin at different places, so that they seldom meet.
        let start = std::process::id().wrapping_mul(7_919) ^ Moment::now().host_ns() as u32;
        for _ in 0..ATTEMPTS_MAX {
            let offset = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_add(start) % COUNT;
            let number = u16::try_from(FIRST + offset).unwrap();
            let name = SocketAddr::from_abstract_name(format!("lockfast-test-{number}")).unwrap();
            let Ok(reservation) = UnixListener::bind_addr(&name) else { continue };
            if TcpListener::bind((Ipv4Addr::LOCALHOST, number)).is_ok() {
                return Self { number, _reservation: reservation };
            }
        }
        panic!("no free port from {FIRST} on");
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.number
    }
}
