//! The cases of the suite that etcd cannot run, and why.
#![allow(unreachable_pub, reason = "what is shared is public, whoever uses it")]

pub const CASES: &[(&str, &str)] = &[
    ("fencing::rises_above_the_floor", "a fence is a revision, which nobody can raise"),
    ("fencing::never_wraps", "the same: a floor is refused when the lock is made"),
];
