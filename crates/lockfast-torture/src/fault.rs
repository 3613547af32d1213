//! What is done to the fleet and to the servers: names, and which of them a run uses.

use lockfast_core::error::quote;
use lockfast_faults::{clock, program};

use crate::rig::{self, Row, ServerFault};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A worker is killed, and started again later.
    Kill,
    /// A worker is stopped for a while.
    Pause,
    /// The connections of a worker are closed or reset, and new ones too for a while.
    Cut,
    /// What a worker sends, or both sides do, arrives later.
    Stall,
    /// Everything that a worker sends and is sent takes longer.
    Delay,
    /// What a worker is answered vanishes, and then the connection breaks.
    LostReplies,
    /// Several workers cannot reach the store, and nothing of it reaches them.
    Partition,
    /// The wall clock of a worker steps.
    Clock,
    /// What a rig can do to its servers.
    Server(ServerFault),
}

/// The faults that need no rights on any server.
pub const OF_WORKERS: [Fault; 8] = [
    Fault::Kill,
    Fault::Pause,
    Fault::Cut,
    Fault::Stall,
    Fault::Delay,
    Fault::LostReplies,
    Fault::Partition,
    Fault::Clock,
];

impl Fault {
    /// As in `--faults`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Pause => "pause",
            Self::Cut => "cut",
            Self::Stall => "stall",
            Self::Delay => "delay",
            Self::LostReplies => "lost-replies",
            Self::Partition => "partition",
            Self::Clock => "clock",
            Self::Server(fault) => fault.name,
        }
    }

    /// Whether it happens between a worker and the store.
    pub fn is_of_link(self) -> bool {
        use Fault::{Cut, Delay, LostReplies, Partition, Stall};
        matches!(self, Cut | Stall | Delay | LostReplies | Partition)
    }

    fn steps_clock(self) -> bool {
        self == Self::Clock || self.steps_clock_of_server()
    }

    /// Whether it needs a server whose clock can be stepped.
    pub fn steps_clock_of_server(self) -> bool {
        matches!(self, Self::Server(fault) if fault == rig::CLOCK)
    }

    /// Whether no lock can be granted to anybody while it lasts.
    pub fn is_outage(self) -> bool {
        matches!(self, Self::Server(fault) if fault.outage)
    }

    /// Whether the guarantee of the store does not cover it.
    pub fn is_beyond(self) -> bool {
        matches!(self, Self::Server(fault) if fault.beyond)
    }
}

/// The faults of a run, and what was left out of `all`, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// What happens.
    pub faults: Vec<Fault>,
    /// What does not, one sentence each.
    pub left_out: Vec<String>,
}

/// Reads a list of faults: `all`, `none`, or names with commas between them. `no_proxy` says why
/// workers cannot reach the store through proxies, if they cannot.
///
/// # Errors
/// One sentence that says what is wrong with it and what there is.
pub fn select(
    text: &str,
    row: Option<&Row>,
    no_proxy: Option<&'static str>,
) -> Result<Selection, String> {
    let servers = row.map_or(&[][..], |row| row.faults);
    let known: Vec<Fault> =
        OF_WORKERS.into_iter().chain(servers.iter().copied().map(Fault::Server)).collect();
    let obstacle = |fault: Fault| match (fault, no_proxy) {
        (fault, _) if fault.steps_clock() && !program::is_installed(clock::COMPILER) => Some(
            "a clock is stepped by a small library that is compiled on the spot, and cc is not \
             installed",
        ),
        (fault, Some(why)) if fault.is_of_link() => Some(why),
        _ => None,
    };
    if text == "none" {
        return Ok(Selection { faults: Vec::new(), left_out: Vec::new() });
    }
    if text == "all" {
        let (left_out, faults): (Vec<Fault>, Vec<Fault>) =
            known.into_iter().partition(|fault| obstacle(*fault).is_some());
        return Ok(Selection { faults, left_out: explain(&left_out, obstacle) });
    }
    let mut faults = Vec::new();
    for name in text.split(',') {
        let Some(fault) = known.iter().copied().find(|fault| fault.name() == name) else {
            return Err(format!("{} is not a fault here; {}", quote(name), list(&known)));
        };
        if let Some(why) = obstacle(fault) {
            return Err(format!("{name} is not possible here: {why}"));
        }
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    }
    Ok(Selection { faults, left_out: Vec::new() })
}

fn list(known: &[Fault]) -> String {
    let names: Vec<&str> = known.iter().map(|fault| fault.name()).collect();
    format!("there is all, none, or a list of {}", names.join(","))
}

/// One sentence for each reason.
fn explain(left_out: &[Fault], obstacle: impl Fn(Fault) -> Option<&'static str>) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for fault in left_out {
        let Some(why) = obstacle(*fault) else { continue };
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(fault.name()),
            None => reasons.push((why, vec![fault.name()])),
        }
    }
    let sentence =
        |(why, names): (&str, Vec<&str>)| format!("left out {}: {why}", names.join(", "));
    reasons.into_iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read() {
        let chosen = select("pause,kill,pause", None, None).unwrap();
        assert_eq!(chosen.faults, [Fault::Pause, Fault::Kill]);
        assert!(select("none", None, None).unwrap().faults.is_empty());
    }

    #[test]
    fn what_is_not_possible_is_left_out_of_all_and_refused_by_name() {
        let all = select("all", None, Some("the store has no address")).unwrap();
        assert!(!all.faults.iter().any(|fault| fault.is_of_link()), "{all:?}");
        assert!(all.faults.contains(&Fault::Kill));
        assert_eq!(
            all.left_out[0],
            "left out cut, stall, delay, lost-replies, partition: the store has no address"
        );
        let refusal = select("cut", None, Some("the store has no address")).unwrap_err();
        assert_eq!(refusal, "cut is not possible here: the store has no address");
    }

    #[test]
    fn an_unknown_fault_is_refused_with_the_list() {
        for text in ["", "kil", "kill,", "Kill", "all,kill", "server-kill"] {
            let refusal = select(text, None, None).unwrap_err();
            assert!(refusal.contains("a list of kill,pause,cut,stall,"), "{text}: {refusal}");
        }
    }
}
