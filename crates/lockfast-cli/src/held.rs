//! What the jobs around us hold, handed down in the environment, so that a nested `run` of the
//! same lock does not wait for itself.
//!
//! One line for each lock: store fingerprint, mode, fence, name. It holds no secret, and it is
//! only a hint: whether the lock is still held is asked of the store.

use lockfast::{Fence, LockName, Mode};

/// The variable that carries it.
pub(crate) const VARIABLE: &str = "LOCKFAST_HELD";

/// One lock that is held around us.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Held {
    pub(crate) store: u64,
    pub(crate) mode: Mode,
    pub(crate) fence: Fence,
    pub(crate) name: LockName,
}

impl Held {
    /// Whether holding this is as good as holding the lock in `mode`.
    pub(crate) fn covers(&self, mode: Mode) -> bool {
        self.mode == Mode::Exclusive || self.mode == mode
    }

    fn parse(line: &str) -> Option<Self> {
        let mut parts = line.splitn(4, ' ');
        let store = u64::from_str_radix(parts.next()?, 16).ok()?;
        let mode = match parts.next()? {
            "x" => Mode::Exclusive,
            "s" => Mode::Shared,
            permit => Mode::permit(permit.strip_prefix('p')?.parse().ok()?).ok()?,
        };
        let fence = Fence::parse(parts.next()?).ok()?;
        let name = LockName::new(parts.next()?).ok()?;
        Some(Self { store, mode, fence, name })
    }

    fn format(&self) -> String {
        let mode = match self.mode {
            Mode::Exclusive => "x".to_owned(),
            Mode::Shared => "s".to_owned(),
            Mode::Permit { limit } => format!("p{limit}"),
        };
        format!("{:016x} {mode} {} {}", self.store, self.fence, self.name)
    }
}

/// What is held around us, the innermost last. Lines that cannot be read are skipped.
pub(crate) fn around_us() -> Vec<Held> {
    let value = std::env::var(VARIABLE).unwrap_or_default();
    value.lines().filter_map(Held::parse).collect()
}

/// The variable's value for a command below us.
pub(crate) fn with(mut around: Vec<Held>, held: Held) -> String {
    around.push(held);
    around.iter().map(Held::format).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_survives_the_environment() {
        let held = |mode, name: &str| Held {
            store: 0xfeed,
            mode,
            fence: Fence::new(7).unwrap(),
            name: LockName::new(name).unwrap(),
        };
        let all = [
            held(Mode::Exclusive, "a b/c"),
            held(Mode::Shared, "é"),
            held(Mode::permit(3).unwrap(), "x"),
        ];
        let text = with(all[..2].to_vec(), all[2].clone());
        assert_eq!(text.lines().filter_map(Held::parse).collect::<Vec<_>>(), all);
        for bad in ["", "x", "1 x 0 a", "1 y 1 a", "1 p0 1 a", "zz x 1 a", "1 x 1 "] {
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
            let held = Held {
                store: 1,
                mode: outer,
                fence: Fence::new(1).unwrap(),
                name: LockName::new("a").unwrap(),
            };
            assert_eq!(held.covers(inner), covers, "{outer} {inner}");
        }
    }
}
