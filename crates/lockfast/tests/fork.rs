//! A forked child has neither the keeper nor the right to its parent's leases.

#![allow(unsafe_code, reason = "fork is the very thing under test")]

use lockfast::ErrorKind;
use lockfast::blocking::Locker;

#[test]
fn a_guard_is_of_no_use_after_a_fork() {
    let locker = Locker::connect("memory:").unwrap();
    let mutex = locker.mutex("a").unwrap();
    let guard = mutex.acquire().unwrap();

    // SAFETY: the child calls nothing that could wait for a thread it does not have: it reads a
    // clock, compares its pid, and leaves without running destructors or exit handlers.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let kinds = [
            guard.check().map(|_| ()).map_err(|error| error.kind()),
            mutex.try_acquire().map(|_| ()).map_err(|error| error.kind()),
        ];
        let refused = kinds.iter().all(|kind| *kind == Err(ErrorKind::ForkedProcess));
        drop(guard);
        // SAFETY: ends the child only.
        unsafe { libc::_exit(if refused { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: `status` is a valid place for the answer, `child` is our own.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status}");
    guard.check().expect("the parent still has it, and the child's drop released nothing");
}
