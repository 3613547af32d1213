//! What the tests of this store share: programs that take locks without Lockfast, and a look at the
//! nodes. The servers, and the short ways to hold, lose and be refused a lock, are those of the
//! conformance crate.
#![allow(dead_code, unused_imports, reason = "each test binary uses a part of it")]
#![allow(unreachable_pub, reason = "what is shared is public, whoever uses it")]

pub mod foreign;
pub mod stories;
pub mod values;

use std::net::SocketAddr;

use lockfast::{Locker, Result};
use lockfast_conformance::shorthand;

pub use lockfast_conformance::shorthand::{
    TIME_MAX, bounded, check_error, failure, hold, loss, queue_for, refusal, request, ttl,
    wait_for_jeopardy, wait_for_renewal,
};
pub use lockfast_faults::certificate;
pub use lockfast_faults::port::Port;
pub use lockfast_faults::server::Server;
pub use lockfast_faults::wait::{eventually, wait_until};
pub use lockfast_faults::zookeeper::{
    Access, Ensemble, Kind, MEMBERS, Session, Setup, ZooKeeper, codes,
};

/// Connects to a store.
pub async fn connect(url: &str) -> Locker {
    shorthand::connect(url, lockfast_backend_zookeeper::connect).await
}

/// Connects to a store, which may fail.
pub async fn try_connect(url: &str) -> Result<Locker> {
    shorthand::try_connect(url, lockfast_backend_zookeeper::connect).await
}

/// The URL of a server at any address.
pub fn url_at(address: SocketAddr) -> String {
    format!("zookeeper://{address}")
}

/// The nodes of those who have a lock of a plain name or wait for it, in alphabetical order.
pub fn claims(server: &ZooKeeper, name: &str) -> Vec<String> {
    server.session().children(&format!("/{name}"))
}

/// Deletes such nodes, as an administrator does it.
pub fn delete_claims(server: &ZooKeeper, name: &str) {
    let mut session = server.session();
    for claim in session.children(&format!("/{name}")) {
        session.try_delete(&format!("/{name}/{claim}")).unwrap();
    }
}
