//! How locks and their holders are shown, to people and to programs.

use std::time::{Duration, SystemTime};

use lockfast::{HolderView, LockView, Mode, Refusal};
use lockfast_core::error::quote;
use lockfast_core::time::wall_clock;
use lockfast_core::view::{brief, left};
use serde_json::{Value, json};

use crate::output::timestamp;

/// How many holders a sentence names.
const NAMED_MAX: usize = 3;

/// A lock for programs.
pub(crate) fn lock_value(lock: &LockView) -> Value {
    json!({
        "name": lock.name.as_str(),
        "held": !lock.holders.is_empty(),
        "holders": lock.holders.iter().map(holder_value).collect::<Vec<_>>(),
        "waiting": lock.waiting,
    })
}

/// A refusal for programs: the lock, and how long it was waited for.
pub(crate) fn refusal_value(refusal: &Refusal) -> Value {
    let mut value = lock_value(&refusal.lock);
    value["waited_ms"] = u64::try_from(refusal.waited.as_millis()).unwrap_or(u64::MAX).into();
    value
}

fn holder_value(holder: &HolderView) -> Value {
    let label = holder.label.as_ref();
    json!({
        "program": label.map(|label| label.program.as_str()),
        "pid": label.map(|label| label.pid),
        "host": label.map(|label| label.host.as_str()),
        "label": label.and_then(|label| label.text.as_deref()),
        "mode": mode_word(holder.mode),
        "permits": permits(holder.mode),
        "fence": holder.fence.map(|fence| fence.get()),
        "since": holder.since.map(timestamp),
        "until": holder.time_left().and_then(until),
        "remaining_ms": holder.time_left().map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX)),
    })
}

fn until(left: Duration) -> Option<String> {
    wall_clock().checked_add(left).map(timestamp)
}

/// The mode in one word, stable.
pub(crate) fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Exclusive => "exclusive",
        Mode::Shared => "shared",
        Mode::Permit { .. } => "permit",
    }
}

/// How many permits there are, for a semaphore.
pub(crate) fn permits(mode: Mode) -> Option<u32> {
    match mode {
        Mode::Permit { limit } => Some(limit.get()),
        Mode::Exclusive | Mode::Shared => None,
    }
}

/// A holder in a sentence: who, since when, until when.
pub(crate) fn describe_holder(holder: &HolderView) -> String {
    let who =
        holder.label.as_ref().map_or_else(|| "another program".to_owned(), ToString::to_string);
    let since = holder.since.map_or_else(
        || ", since when is not known".to_owned(),
        |since| format!(" since {} ({} ago)", timestamp(since), brief(age(since))),
    );
    let fence = holder.fence.map_or_else(String::new, |fence| format!(", fence {fence}"));
    format!("{who}{since}, {}{fence}", left(holder.time_left()))
}

/// How long ago that was.
pub(crate) fn age(since: SystemTime) -> Duration {
    wall_clock().duration_since(since).unwrap_or_default()
}

/// Why a lock was not granted.
pub(crate) fn describe_refusal(refusal: &Refusal) -> String {
    let name = quote(refusal.lock.name.as_str());
    let named: Vec<_> = refusal.lock.holders.iter().take(NAMED_MAX).map(describe_holder).collect();
    let mut text = match named.is_empty() {
        true => format!("lock {name} is taken"),
        false => format!("lock {name} is held by {}", named.join("; and by ")),
    };
    if refusal.lock.holders.len() > named.len() {
        text.push_str(&format!("; and {} more", refusal.lock.holders.len() - named.len()));
    }
    if refusal.lock.waiting > 0 {
        text.push_str(&format!("; {} waiting", refusal.lock.waiting));
    }
    if !refusal.waited.is_zero() {
        text.push_str(&format!("; gave up after {}", brief(refusal.waited)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// B226: a lock that another program took was shown as taken at the time of the look.
    #[test]
    fn a_time_that_is_not_known_is_not_told() {
        let foreign = HolderView::new(Mode::Exclusive, None, Duration::from_secs(5));
        let text = describe_holder(&foreign);
        assert_eq!(text, "another program, since when is not known, 5.0s left");
        assert_eq!(holder_value(&foreign)["since"], Value::Null);
        // However short a time ago it was taken.
        let young = HolderView::new(Mode::Exclusive, wall_clock(), Duration::from_secs(5));
        assert!(describe_holder(&young).starts_with("another program since 20"));
        let told = wall_clock() - Duration::from_secs(60);
        let told = HolderView::new(Mode::Exclusive, told, Duration::from_secs(5));
        assert!(describe_holder(&told).contains("(1m00s ago)"), "{}", describe_holder(&told));
    }
}
