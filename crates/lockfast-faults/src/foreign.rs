//! A program that takes locks without Lockfast, as a child that is driven by lines:
//!
//! | line | answers |
//! |---|---|
//! | `acquire NAME TTL_MS WAIT_MS` | `granted`, `taken` |
//! | `extend TTL_MS` | `extended`, `refused` |
//! | `release` | `released`, `refused` |

use std::process::Command;
use std::time::Duration;

use super::child::Child;

/// An interpreter starts and answers within this, also on a busy machine.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// A running program.
#[derive(Debug)]
pub struct Foreign {
    child: Child,
}

impl Foreign {
    /// Starts it and waits until it is ready.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start(command: &mut Command) -> Self {
        let foreign = Self { child: Child::spawn(command).unwrap() };
        assert_eq!(foreign.answer(), "ready");
        foreign
    }

    /// Takes the lock if it is free.
    pub fn try_acquire(&mut self, name: &str, ttl: Duration) -> bool {
        self.begin_acquire(name, ttl, Duration::ZERO);
        self.was_granted()
    }

    /// Begins to take the lock, trying until it is free; [`Foreign::was_granted`] waits for it.
    pub fn begin_acquire(&mut self, name: &str, ttl: Duration, wait: Duration) {
        let line = format!("acquire {name} {} {}", ttl.as_millis(), wait.as_millis());
        self.child.send(&line).unwrap();
    }

    /// What came of [`Foreign::begin_acquire`].
    pub fn was_granted(&self) -> bool {
        match self.answer().as_str() {
            "granted" => true,
            "taken" => false,
            other => panic!("{other}"),
        }
    }

    /// Whether it still had the lock that it last took, and has it longer now.
    pub fn extend(&mut self, ttl: Duration) -> bool {
        self.child.send(&format!("extend {}", ttl.as_millis())).unwrap();
        self.answer() == "extended"
    }

    /// Whether it still had the lock that it last took, and gave it back.
    pub fn release(&mut self) -> bool {
        self.child.send("release").unwrap();
        self.answer() == "released"
    }

    /// Kills it, as a crash does.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    fn answer(&self) -> String {
        self.child.wait_for("answer", ANSWER_TIME_MAX).unwrap()
    }
}
