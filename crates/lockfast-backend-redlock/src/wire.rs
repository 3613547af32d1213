//! How servers are spoken to: the connections of the Redis store, one for each node.

pub(crate) use lockfast_backend_redis::node::{
    Config, Connection, Dialer, Endpoint, Facts, Failure, Link, Memory, Pipeline, Pump, Remedy,
    Reply, Script, Setting, Traffic, connect, digest, examine,
};

/// What keeps a request from being served.
pub(crate) mod failure {
    pub(crate) use lockfast_backend_redis::node::{of_nonsense, of_silence};
}
