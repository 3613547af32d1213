//! Programs written from the README, the guides and the pages of the public items alone: each of them
//! compiles as it stands, with `lockfast` and `tokio` and nothing else. One that has to be changed means
//! that those pages, or what people wrote from them, are wrong.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failed step fails the test")]
#![allow(clippy::print_stdout, reason = "programs of users print")]
#![allow(clippy::needless_borrows_for_generic_args, reason = "users borrow, and it compiles")]

mod blocking;
mod gate;
mod kit;
mod leader;
mod loss;
mod multi;
mod mutex;
mod once;
mod rwlock;
mod semaphore;
mod service;
mod try_acquire;

#[test]
fn a_mutex() {
    mutex::main().unwrap();
}

#[test]
fn a_try() {
    try_acquire::main().unwrap();
}

#[test]
fn readers_and_a_writer() {
    rwlock::main().unwrap();
}

#[test]
fn permits() {
    semaphore::main().unwrap();
}

#[test]
fn several_locks() {
    multi::main().unwrap();
}

#[test]
fn a_loss_in_select() {
    loss::main().unwrap();
}

#[test]
fn threads_that_may_block() {
    blocking::main().unwrap();
}

#[test]
fn an_election() {
    leader::main().unwrap();
}

#[test]
fn a_scheduled_job() {
    once::main().unwrap();
}

#[test]
fn a_fence_that_is_checked() {
    gate::main().unwrap();
}

#[test]
fn a_service() {
    service::main().unwrap();
}
