//! Waiting for a state, with a bound, instead of sleeping for some time and hoping.

use std::time::Duration;

use lockfast_core::Moment;

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(10);

/// Waits until a state is reached, on the caller's thread.
///
/// # Panics
/// When it is not reached within `bound`, saying `what` was waited for.
pub fn wait_until(what: &str, bound: Duration, mut reached: impl FnMut() -> bool) {
    let start = Moment::now();
    while !reached() {
        assert!(Moment::now().since(start) < bound, "not within {bound:?}: {what}");
        std::thread::sleep(INTERVAL);
    }
}

/// Waits until a state is reached.
///
/// # Panics
/// When it is not reached within `bound`, saying `what` was waited for.
///
/// # Cancel safety
/// Safe: it only looks.
pub async fn eventually(what: &str, bound: Duration, mut reached: impl AsyncFnMut() -> bool) {
    let start = Moment::now();
    while !reached().await {
        assert!(Moment::now().since(start) < bound, "not within {bound:?}: {what}");
        tokio::time::sleep(INTERVAL).await;
    }
}
