//! Waiting for a lock: with something to look at on a terminal, one line in a log, and clean when
//! interrupted.

use std::convert::Infallible;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use lockfast::{Error, ErrorKind, LockName, LockView, Locker, Order};

use super::view::{describe_holder, describe_refusal, refusal_value};
use crate::exit::{self, Failure};
use crate::output::Output;
use crate::process::signals::{Signals, name_of};

/// How often the queue is looked at: often enough for people, too seldom to be a load.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// How long a claim may take to be taken back when the wait is interrupted.
pub(super) const UNDO_TIME: Duration = Duration::from_secs(5);

/// Waits for `acquisition`, which asks for the lock `name`.
///
/// # Errors
/// When it fails, when the lock is taken, or when a signal interrupts it; nothing is left then.
///
/// # Cancel safety
/// As safe as the acquisition.
pub(crate) async fn wait_for<T>(
    acquisition: impl Future<Output = lockfast::Result<T>>,
    locker: &Locker,
    name: &LockName,
    signals: &mut Signals,
    output: &Output,
) -> Result<T, Failure> {
    let interrupted = {
        let acquisition = std::pin::pin!(acquisition);
        tokio::select! {
            biased;
            acquired = acquisition => return acquired.map_err(refused),
            signal = signals.next() => signal,
            never = show_queue(locker, name, output) => match never {},
        }
    };
    let signal = name_of(interrupted);
    tokio::select! {
        left = tokio::time::timeout(UNDO_TIME, locker.settled()) => match left {
            Ok(()) => output.note(&format!("interrupted by {signal}; left the queue")),
            Err(_) => output.warn("interrupted; the store does not answer, and the claim is left to expire"),
        },
        _ = signals.next() => output.warn("interrupted again; the claim is left to expire"),
    }
    Err(Failure::quiet(exit::of_signal(interrupted.as_raw())))
}

fn refused(error: Error) -> Failure {
    match error.refusal() {
        Some(refusal) => Failure::taken(describe_refusal(refusal), Some(refusal_value(refusal))),
        None if error.kind() == ErrorKind::Taken => Failure::taken(format!("{error:#}"), None),
        None => error.into(),
    }
}

/// Shows the queue for ever: on a terminal what it is like, elsewhere once.
async fn show_queue(locker: &Locker, name: &LockName, output: &Output) -> Infallible {
    // A lock that is free needs no word.
    tokio::time::sleep(LOOK_INTERVAL / 2).await;
    if output.is_terminal() && output.tells() {
        return spin(locker, name, output).await;
    }
    if output.tells() {
        tell_once(locker, name, output).await;
    }
    std::future::pending().await
}

/// Tells once who is in the way, for whoever reads a log.
async fn tell_once(locker: &Locker, name: &LockName, output: &Output) {
    let mut place = Place::new(locker.profile().order);
    loop {
        // Whoever is seen before we stand in line may be ourselves.
        if let Ok(lock) = locker.inspect(name).await
            && place.is_seen(&lock)
        {
            return output.note(&format!("waiting for {name}: {}", place.describe(&lock)));
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Shows the queue on a terminal, as it moves.
async fn spin(locker: &Locker, name: &LockName, output: &Output) -> Infallible {
    let spinner = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
        let ticks =
            if output.text("⠋") == "⠋" { "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏" } else { "|/-\\" };
        spinner.set_style(style.tick_chars(ticks));
    }
    let _gone_at_the_end = ClearOnDrop(spinner.clone());
    let mut place = Place::new(locker.profile().order);
    let mut looks = 0_u32;
    loop {
        // One look for every five ticks of the spinner.
        if looks.is_multiple_of(5)
            && let Ok(lock) = locker.inspect(name).await
        {
            let text = format!("waiting for {name}: {}", place.describe(&lock));
            spinner.set_message(output.text(&text).into_owned());
        }
        looks = looks.wrapping_add(1);
        spinner.tick();
        tokio::time::sleep(LOOK_INTERVAL / 5).await;
    }
}

struct ClearOnDrop(ProgressBar);

impl Drop for ClearOnDrop {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Our place in the queue, as far as it can be seen: a store tells how many wait, and nobody
/// overtakes, so it only ever gets better. Where a store keeps no order, nobody has a place.
struct Place {
    order: Order,
    best: Option<usize>,
}

impl Place {
    fn new(order: Order) -> Self {
        Self { order, best: None }
    }

    /// Whether we are among those that wait, as far as that can be seen.
    fn is_seen(&self, lock: &LockView) -> bool {
        lock.waiting > 0 || (self.order != Order::Fifo && !lock.holders.is_empty())
    }

    fn describe(&mut self, lock: &LockView) -> String {
        let queue = self.describe_queue(lock.waiting);
        match lock.holders.first() {
            Some(holder) => format!("{queue}; held by {}", describe_holder(holder)),
            None => queue,
        }
    }

    fn describe_queue(&mut self, waiting: usize) -> String {
        if self.order != Order::Fifo {
            return "served in no order".to_owned();
        }
        let seen = waiting.max(1);
        let place = self.best.map_or(seen, |place| place.min(seen));
        self.best = Some(place);
        match place {
            1 => "next in the queue".to_owned(),
            _ => format!("place {place} of {seen} in the queue"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_only_gets_better() {
        let mut place = Place::new(Order::Fifo);
        let mut at = |waiting| {
            let name = LockName::new("a").unwrap();
            place.describe(&LockView::new(name, Vec::new(), waiting))
        };
        assert_eq!(at(3), "place 3 of 3 in the queue");
        assert_eq!(at(5), "place 3 of 5 in the queue");
        assert_eq!(at(2), "place 2 of 2 in the queue");
        assert_eq!(at(1), "next in the queue");
        assert_eq!(at(4), "next in the queue");
    }

    /// B195: everybody who waited for a row of ShedLock was told to be the next.
    #[test]
    fn nobody_has_a_place_where_there_is_no_order() {
        let mut place = Place::new(Order::None);
        for waiting in [0, 3] {
            let text = place.describe_queue(waiting);
            assert_eq!(text, "served in no order");
        }
    }
}
