//! The scripts on a real node do what the rule says that the searches use: both are given the same
//! requests, by seeded chance, and must answer the same and end up with the same.

#![allow(clippy::expect_used, clippy::panic, reason = "this is a test")]

use lockfast_faults::redis::Redis;
use lockfast_sim::rule::{Answer, Node};

const ACQUIRE: &str = include_str!("../../lockfast-backend-redlock/src/scripts/acquire.lua");
const RELEASE: &str = include_str!("../../lockfast-backend-redlock/src/scripts/release.lua");
const RENEW: &str = include_str!("../../lockfast-backend-redlock/src/scripts/renew.lua");
const ENROLL: &str = include_str!("../../lockfast-backend-redlock/src/scripts/enroll.lua");

const HOLDERS: [&str; 3] =
    ["AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB", "CCCCCCCCCCCCCCCCCCCCCC"];
const FENCES: u64 = 9;
const REQUESTS: usize = 400;
/// Long enough that nothing expires by itself.
const LEASE_MS: &str = "600000";
/// The key of the lock's fence, which the scripts find by the lock's own.
const FENCE: &str = "lockfast:{lock}:fence";
/// The connection that the node knows the requests by.
const LINK: &str = "link0001";

type Rule = Node<usize, u64>;

/// A real node with one lock.
struct Real(Redis);

impl Real {
    fn start() -> Self {
        let real = Self(Redis::start());
        real.register();
        real
    }

    fn register(&self) {
        self.0.cli(&["SET", "client", LINK]);
    }

    /// The answer to a script for one lock, a line for each of its parts.
    fn run(&self, script: &str, keys: &[&str], arguments: &[&str]) -> Vec<String> {
        let count = keys.len().to_string();
        let call = [&["EVAL", script, &count], keys, arguments].concat();
        self.0.cli(&call).trim().lines().map(str::to_owned).collect()
    }

    fn acquire(&self, holder: usize, proposal: u64, raises: bool) -> Vec<String> {
        let terms = format!("{}{LEASE_MS}", if raises { 2 } else { 0 });
        self.run(ACQUIRE, &["watch", "client", "lock"], &[LINK, &text(holder, proposal), &terms])
    }

    fn release(&self, holder: usize, proposal: u64) -> Vec<String> {
        let keys = ["watch", "client", "crowd", "lock"];
        self.run(RELEASE, &keys, &[LINK, "0", &text(holder, proposal)])
    }

    fn renew(&self, holder: usize) -> Vec<String> {
        let keys = ["client", "lock", FENCE, "callers", "revoked"];
        self.run(RENEW, &keys, &[LINK, HOLDERS[holder], LEASE_MS])
    }

    /// What the node has of the lock.
    fn read(&self) -> Rule {
        let (value, fence) = (self.0.cli(&["GET", "lock"]), self.0.cli(&["GET", FENCE]));
        let fence = fence.trim().parse().unwrap_or(0);
        let holder = value.trim().split_once('.').map(|(holder, granted)| {
            assert_eq!(granted, fence.to_string(), "while it is held, the fence is the grant's");
            HOLDERS.iter().position(|known| *known == holder).expect("a holder of this test")
        });
        Rule { holder, fence }
    }
}

/// Gives both the same request and compares their answers.
fn step(
    real: &Real,
    rule: &mut Rule,
    (base, gap): (u64, u64),
    chance: &mut impl FnMut(u64) -> u64,
) -> String {
    let (holder, fence) = (chance(3) as usize, base + gap * (1 + chance(FENCES)));
    match chance(20) {
        0..=7 => {
            let expected = match rule.acquire(holder, fence) {
                Answer::Granted => vec!["1".to_owned()],
                Answer::TooLow(seen) => vec!["1".to_owned(), seen.to_string()],
                Answer::Taken(other) => vec!["0".to_owned(), text(other, rule.fence)],
            };
            let answer = real.acquire(holder, fence, true);
            assert_eq!(answer[..expected.len().min(answer.len())], expected);
            assert_eq!(answer.len() == 1, expected.len() == 1);
            format!("{holder} proposes {fence}")
        }
        8..=9 if rule.has(holder) && rule.fence != fence => {
            let expected = ["3".to_owned(), rule.fence.to_string()];
            assert_eq!(real.acquire(holder, fence, false), expected);
            format!("{holder} asks what it has")
        }
        8..=13 => {
            let expected = u8::from(rule.undo(holder, fence)).to_string();
            assert_eq!(real.release(holder, fence), [expected]);
            format!("{holder} undoes {fence}")
        }
        14..=16 => {
            let answer = real.renew(holder);
            let is_counted = answer == [fence.to_string()];
            assert_eq!(is_counted, rule.renew(holder, fence), "{answer:?}");
            assert_eq!(answer.len() == 1, rule.has(holder), "{answer:?}");
            format!("{holder} renews {fence}")
        }
        17..=18 => {
            rule.expire();
            real.0.cli(&["DEL", "lock"]);
            "the grant expires".to_owned()
        }
        _ => {
            rule.forget();
            real.0.cli(&["FLUSHALL"]);
            real.register();
            "the node forgets".to_owned()
        }
    }
}

fn text(holder: usize, fence: u64) -> String {
    format!("{}.{fence}", HOLDERS[holder])
}

/// With small fences, and with such as clocks give, some of them within one second: the script has a
/// shorter way for those.
#[test]
fn the_scripts_follow_the_rule() {
    let mut seed = 20_u64;
    let mut chance = |below: u64| {
        // Knuth's MMIX constants; the high bits are the good ones.
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for fences in [(0, 1), (1_700_000_000_000_000, 400_000)] {
        let real = Real::start();
        let mut rule = Rule::default();
        let mut way = Vec::new();
        for _ in 0..REQUESTS {
            let before = rule;
            way.push(step(&real, &mut rule, fences, &mut chance));
            assert_eq!(real.read(), rule, "{before:?}, then {:?}", way.last());
        }
    }
}

/// Whoever only tells a node that it waits becomes a caller, and takes nothing, whether the lock is
/// free or another's.
#[test]
fn who_only_waits_takes_nothing() {
    let real = Real::start();
    let wait = |holder: usize| {
        let terms = format!("8{LEASE_MS}");
        let keys = ["watch", "client", "lock"];
        real.run(ACQUIRE, &keys, &[LINK, &text(holder, 5), &terms])
    };
    assert_eq!(wait(0)[0], "0");
    assert_eq!(real.read(), Rule::default());
    assert_eq!(real.acquire(1, 3, false), ["1"]);
    assert_eq!(wait(2)[0], "0");
    assert_eq!(real.read(), Rule { holder: Some(1), fence: 3 });
    assert_eq!(real.0.cli(&["ZCARD", "lockfast:{lock}:callers"]).trim(), "2");
}

/// B144: a connection that was given up does not take the place of the one that came after it, and
/// nothing that it asked for is served. One that the node has forgotten, or that was refused because
/// of another, takes its place.
#[test]
fn who_registers_late_changes_nothing() {
    let real = Real::start();
    let (old, new) = (LINK, "link0002");
    let register = |expected: &str, link: &str| {
        real.run(ENROLL, &["client"], &[expected, link, " label", "60000"])
    };
    let acquire = |link: &str, holder: usize, fence: u64| {
        let terms = format!("0{LEASE_MS}");
        let call = ["watch", "client", "lock"];
        let (_, said) = real.0.try_cli(
            &[&["EVAL", ACQUIRE, "3"], &call[..], &[link, &text(holder, fence), &terms]].concat(),
        );
        said.trim().to_owned()
    };
    real.0.cli(&["DEL", "client"]);
    assert!(acquire(old, 0, 3).contains("LFSTALE -"), "{}", acquire(old, 0, 3));
    // Both are held up, and a new connection is made meanwhile.
    real.0.cli(&["SET", "client", new]);
    for expected in ["-", old] {
        assert_eq!(register(expected, old), ["0"]);
    }
    assert!(acquire(old, 0, 3).contains(&format!("LFSTALE {new}")));
    assert_eq!(real.read(), Rule::default());
    assert_eq!(acquire(new, 1, 4), "1");
    // Who is told of the other can take its place, and so can who is known already.
    assert_eq!(register(new, old), ["1"]);
    assert_eq!(register(old, old), ["1"]);
    assert_eq!(real.0.cli(&["GET", "client"]).trim(), format!("{old} label"));
    real.0.cli(&["DEL", "client"]);
    assert_eq!(register("-", old), ["1"]);
}
