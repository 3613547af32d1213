//! Real redis-servers, alone and in groups.

mod server;
pub mod topology;

pub use server::{Redis, Setup};
