//! What a store is broken with: a wrapper that makes any store unreliable, a TCP proxy, child
//! processes to kill and pause, and real servers on free ports.

pub mod child;
pub mod flaky;
mod pause;
pub mod proxy;
pub mod server;
