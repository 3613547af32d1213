//! What the jobs around us hold, handed down in the environment, so that a nested `run` of the
//! same lock does not wait for itself.
//!
//! One line for each lock: store fingerprint, mode, fence, guard, what a loss does, name. It holds no secret, and it
//! is only a hint. It counts below the guard that holds the lock for its job and stops the job at a
//! loss, and nowhere else: a variable is easily copied. Whether the lock is still held is asked of
//! the store, if that is known.

use lockfast::{Fence, LockName, Mode};

use crate::process::tree::Process;

/// The variable that carries it.
pub(crate) const VARIABLE: &str = "LOCKFAST_HELD";

/// One lock that is held.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hold {
    pub(crate) store: u64,
    pub(crate) mode: Mode,
    pub(crate) fence: Fence,
    /// Whether a loss ends everything under this hold, so that whoever lives there has the lock.
    pub(crate) is_deadly: bool,
    pub(crate) name: LockName,
}

/// One lock that is held around us.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Held {
    pub(crate) hold: Hold,
    /// The process that everything under this hold descends from.
    pub(crate) guard: Process,
}

impl Hold {
    /// Whether holding this is as good as holding the lock in `mode`.
    pub(crate) fn covers(&self, mode: Mode) -> bool {
        self.mode == Mode::Exclusive || self.mode == mode
    }
}

impl Held {
    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.splitn(6, ' ');
        let store = u64::from_str_radix(parts.next()?, 16).ok()?;
        let mode = match parts.next()? {
            "x" => Mode::Exclusive,
            "s" => Mode::Shared,
            permit => Mode::permit(permit.strip_prefix('p')?.parse().ok()?).ok()?,
        };
        let fence = Fence::parse(parts.next()?).ok()?;
        let guard = Process::parse(parts.next()?)?;
        let is_deadly = match parts.next()? {
            "kill" => true,
            "survive" => false,
            _ => return None,
        };
        let name = LockName::new(parts.next()?).ok()?;
        Some(Self { hold: Hold { store, mode, fence, is_deadly, name }, guard })
    }

    fn format(&self) -> String {
        let Hold { store, mode, fence, is_deadly, name } = &self.hold;
        let mode = match mode {
            Mode::Exclusive => "x".to_owned(),
            Mode::Shared => "s".to_owned(),
            Mode::Permit { limit } => format!("p{limit}"),
        };
        let on_lost = if *is_deadly { "kill" } else { "survive" };
        format!("{store:016x} {mode} {fence} {} {on_lost} {name}", self.guard)
    }
}

/// What is held around us, the innermost last. Lines that cannot be read are skipped, and so are
/// those of a guard that is not above us.
pub(crate) fn around_us() -> Vec<Held> {
    let value = std::env::var(VARIABLE).unwrap_or_default();
    value.lines().filter_map(Held::parse).filter(|held| held.guard.is_above_us()).collect()
}

/// The variable's value for a command below us.
pub(crate) fn with(mut around: Vec<Held>, held: Held) -> String {
    if !around.contains(&held) {
        around.push(held);
    }
    around.iter().map(Held::format).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_survives_the_environment() {
        let held = |mode, name: &str| Held {
            hold: Hold {
                store: 0xfeed,
                mode,
                fence: Fence::new(7).unwrap(),
                is_deadly: mode == Mode::Shared,
                name: LockName::new(name).unwrap(),
            },
            guard: Process::parse("17.4711").unwrap(),
        };
        let all = [
            held(Mode::Exclusive, "a b/c"),
            held(Mode::Shared, "é"),
            held(Mode::permit(3).unwrap(), "x"),
        ];
        let text = with(all[..2].to_vec(), all[2].clone());
        assert_eq!(text.lines().filter_map(Held::parse).collect::<Vec<_>>(), all);
        assert_eq!(with(all.to_vec(), all[1].clone()), text, "the same once more");
        assert!(Held::parse("1 x 1 1.1 kill a").is_some());
        for bad in [
            "",
            "x",
            "1 x 0 1.1 kill a",
            "1 y 1 1.1 kill a",
            "1 p0 1 1.1 kill a",
            "zz x 1 1.1 kill a",
            "1 x 1 1.1 kill ",
            "1 x 1 1.1 a",
            "1 x 1 0.1 kill a",
            "1 x 1 1.1 warn a",
        ] {
            assert_eq!(Held::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn who_holds_alone_may_do_everything() {
        let permit = Mode::permit(2).unwrap();
        let table = [
            (Mode::Exclusive, Mode::Exclusive, true),
            (Mode::Exclusive, Mode::Shared, true),
            (Mode::Exclusive, permit, true),
            (Mode::Shared, Mode::Shared, true),
            (Mode::Shared, Mode::Exclusive, false),
            (permit, permit, true),
            (permit, Mode::permit(3).unwrap(), false),
            (permit, Mode::Shared, false),
        ];
        for (outer, inner, covers) in table {
            let hold = Hold {
                store: 1,
                mode: outer,
                fence: Fence::new(1).unwrap(),
                is_deadly: true,
                name: LockName::new("a").unwrap(),
            };
            assert_eq!(hold.covers(inner), covers, "{outer} {inner}");
        }
    }
}
