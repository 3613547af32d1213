//! Locks on etcd, against a key by hand, the server's own lock and the least that passes a lock on.

use std::fmt::Write as _;

use anyhow::Result;

use super::peer::{Samples, measure_etcd};
use super::{ratio, thousands};

/// Measures everything on etcd; the text between this section's marks.
pub(super) fn run() -> Result<String> {
    let samples = measure_etcd()?;
    let mut text = String::new();
    cycles(&samples, &mut text)?;
    handovers(&samples, &mut text)?;
    commands(&samples, &mut text)?;
    lines(&samples, &mut text)?;
    Ok(text)
}

fn cycles(samples: &Samples, text: &mut String) -> Result<()> {
    text.push_str(
        "Free locks, cycles a second:\n\n| case | Lockfast | by hand | by hand, a lease each | the \
         server's lock | ratio to by hand | target |\n|---|---|---|---|---|---|---|\n",
    );
    for (title, server, tasks, target) in [
        ("1 task, every write on disk", "durable", 1, "≥ 0.95"),
        ("1 task, no disk", "quick", 1, "≥ 0.95"),
        ("64 tasks, every write on disk", "durable", 64, "≥ 1.5, aim 3"),
        ("64 tasks, no disk", "quick", 64, "≥ 1.5, aim 3"),
    ] {
        let rate = |peer: &str| samples.get(&format!("{server}.{peer}_{tasks}.cycles_per_s"));
        let (ours, by_hand) = (rate("lockfast")?, rate("by-hand")?);
        let _ = writeln!(
            text,
            "| {title} | {} | {} | {} | {} | {} | {target} |",
            thousands(ours.median()),
            thousands(by_hand.median()),
            thousands(rate("own-lease")?.median()),
            thousands(rate("lock-rpc")?.median()),
            ratio(&ours.over(&by_hand)),
        );
    }
    Ok(())
}

fn handovers(samples: &Samples, text: &mut String) -> Result<()> {
    text.push_str(
        "\nHand-over, held for 2 ms:\n\n| case | p50 | p99 | the probe, p50 | the server's lock, p50 \
         | ratio to the probe | target |\n|---|---|---|---|---|---|---|\n",
    );
    for (who, title) in [("shared", "one process"), ("apart", "a connection each")] {
        for waiters in [1, 32] {
            for (server, disk) in [("durable", "every write on disk"), ("quick", "no disk")] {
                let times = |peer: &str, what: &str| {
                    samples.get(&format!("{server}.{peer}_{waiters}.{what}"))
                };
                let ours = times(&format!("lockfast_{who}"), "p50_us")?;
                let probe = times("probe_shared", "p50_us")?;
                let plural = if waiters == 1 { "" } else { "s" };
                let target = if who == "shared" { "≤ 1.3" } else { "–" };
                let _ = writeln!(
                    text,
                    "| {waiters} waiter{plural}, {title}, {disk} | {} µs | {} µs | {} µs | {} µs | {} | \
                     {target} |",
                    thousands(ours.median()),
                    thousands(times(&format!("lockfast_{who}"), "p99_us")?.median()),
                    thousands(probe.median()),
                    thousands(times("lock-rpc_apart", "p50_us")?.median()),
                    ratio(&ours.over(&probe)),
                );
            }
        }
    }
    Ok(())
}

fn commands(samples: &Samples, text: &mut String) -> Result<()> {
    text.push_str(
        "\nA command under a lock, each a process of its own:\n\n| case | `lockfast run` | `etcdctl \
         lock` | ratio |\n|---|---|---|---|\n",
    );
    for (server, disk) in [("durable", "every write on disk"), ("quick", "no disk")] {
        for (what, title) in
            [("free_ms", "one after the other"), ("crowd_ms", "16 at once for one lock")]
        {
            let each = |peer: &str| samples.get(&format!("{server}.command_{peer}.{what}"));
            let (ours, theirs) = (each("lockfast")?, each("etcdctl")?);
            let _ = writeln!(
                text,
                "| {title}, {disk} | {:.1} ms each | {:.1} ms each | {} |",
                ours.median(),
                theirs.median(),
                ratio(&ours.over(&theirs)),
            );
        }
    }
    Ok(())
}

fn lines(samples: &Samples, text: &mut String) -> Result<()> {
    text.push_str("\n| what it costs | figure | target |\n|---|---|---|\n");
    let p50 = |line: usize| samples.get(&format!("quick.line_{line}.p50_us"));
    let (short, long) = (p50(10)?, p50(5_000)?);
    let writes = |peer: &str| -> Result<String> {
        Ok(format!("{:.2}", samples.get(&format!("quick.{peer}.writes"))?.median()))
    };
    for (what, figure, target) in [
        ("writes of the cluster's log for a free lock", writes("lockfast")?, "≤ 2"),
        ("the same by hand, with a lease that is there", writes("by-hand")?, "–"),
        ("the same by hand, with a lease of its own", writes("own-lease")?, "–"),
        ("the same by the server's lock, with a lease that is there", writes("lock-rpc")?, "–"),
        ("hand-over with 10 in line, p50", format!("{} µs", thousands(short.median())), "–"),
        ("hand-over with 5 000 in line, p50", format!("{} µs", thousands(long.median())), "–"),
        ("the second to the first", ratio(&long.over(&short)), "the same"),
        (
            "10 000 locks held by one process, of a core",
            format!("{:.1} %", samples.get("hold.core_percent")?.median()),
            "< 2 %",
        ),
        (
            "streams that keep their leases alive",
            format!("{:.0}", samples.get("hold.streams")?.median()),
            "1",
        ),
    ] {
        let _ = writeln!(text, "| {what} | {figure} | {target} |");
    }
    Ok(())
}
