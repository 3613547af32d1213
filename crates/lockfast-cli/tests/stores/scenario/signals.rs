//! Signals to `lockfast run` while it holds the lock.

use rustix::process::Signal;

use super::{Group, scenario};
use crate::stage::Stage;

pub(super) const GROUP: Group = Group {
    name: "signals",
    scenarios: &[
        scenario("are_passed_on", are_passed_on),
        scenario("may_be_survived", may_be_survived),
    ],
};

fn are_passed_on(stage: &Stage<'_>) {
    let table = [
        (Signal::TERM, "TERM", 143),
        (Signal::INT, "INT", 130),
        (Signal::HUP, "HUP", 129),
        (Signal::QUIT, "QUIT", 131),
        (Signal::USR1, "USR1", 138),
        (Signal::USR2, "USR2", 140),
    ];
    for (signal, name, code) in table {
        let script = format!(
            "trap 'echo {name} > got; trap - {name}; kill -{name} $$' {name}; touch started
             while :; do sleep 0.01; done"
        );
        let holder = stage.hold(&[], &script);
        holder.signal(signal);
        holder.finish().expect(code);
        assert_eq!(stage.sandbox.read("got"), format!("{name}\n"));
        assert!(!stage.sandbox.is_held(&stage.lock), "{name}");
        std::fs::remove_file(stage.sandbox.path("started")).unwrap();
    }
}

fn may_be_survived(stage: &Stage<'_>) {
    let script = "trap 'exit 4' TERM; touch started; while :; do sleep 0.01; done";
    let holder = stage.hold(&[], script);
    holder.signal(Signal::TERM);
    holder.finish().expect(4);
}
