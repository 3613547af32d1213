//! The rule of all gates: an equal or higher fence passes, a lower one does not.

use lockfast_core::error::quote;
use lockfast_core::{Error, ErrorKind, Fence, FencingToken, LockName, Result};

/// Refuses the fence of another lock than the gate's.
pub(crate) fn check_lock(gate: &LockName, token: &FencingToken) -> Result<()> {
    if token.lock == *gate {
        return Ok(());
    }
    let (given, gate) = (quote(token.lock.as_str()), quote(gate.as_str()));
    let message = format!(
        "its fence {} was given to the gate of lock {gate}, about which it says nothing; give the \
         fence of lock {gate}, or use a gate of lock {given}",
        token.fence
    );
    Err(Error::new(ErrorKind::DifferentLock, message).with_lock(&token.lock))
}

/// Judges a token by the highest fence that had been seen before it came.
pub(crate) fn judge(token: &FencingToken, seen: Fence) -> Result<()> {
    match token.fence.get() < seen.get() {
        true => Err(Error::stale_fence(token, seen)),
        false => Ok(()),
    }
}

/// Judges a token by what a gate answers that was given it: the highest fence that it knows now.
pub(crate) fn judge_raised(token: &FencingToken, highest: u64) -> Result<()> {
    let highest = Fence::new(highest).map_err(|error| error.with_lock(&token.lock))?;
    if highest.get() < token.fence.get() {
        let message = format!(
            "the gate answered {highest} to fence {}, below which it cannot be; run what it hands \
             out unchanged and read the answer that its documentation names",
            token.fence
        );
        return Err(Error::new(ErrorKind::CorruptRecord, message).with_lock(&token.lock));
    }
    judge(token, highest)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A token as a guard has it.
    pub(crate) fn token(lock: &str, fence: u64) -> FencingToken {
        FencingToken { lock: LockName::new(lock).unwrap(), fence: Fence::new(fence).unwrap() }
    }

    #[test]
    fn equal_and_higher_fences_pass() {
        let table = [(5, 4, None), (5, 5, None), (5, 6, Some(6)), (1, 2, Some(2))];
        for (given, seen, refused) in table {
            let refusal = judge(&token("a", given), Fence::new(seen).unwrap()).err();
            let told = refusal.as_ref().and_then(Error::fence_seen).map(Fence::get);
            assert_eq!(told, refused, "{given} at {seen}");
            assert!(refusal.is_none_or(|error| error.kind() == ErrorKind::StaleFence));
        }
    }

    #[test]
    fn a_refusal_says_what_was_given_what_was_seen_and_what_to_do() {
        let error = judge(&token("a", 41), Fence::new(42).unwrap()).unwrap_err().to_string();
        for part in ["lock \"a\"", "fence 41", "42 was seen", "acquire the lock again"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn an_answer_that_no_gate_gives_is_told() {
        let table = [
            (0, ErrorKind::InvalidToken),
            (4, ErrorKind::CorruptRecord),
            (6, ErrorKind::StaleFence),
            (1 << 53, ErrorKind::TokenExhausted),
        ];
        for (answer, kind) in table {
            let error = judge_raised(&token("a", 5), answer).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
            assert_eq!(error.lock().unwrap().as_str(), "a");
        }
        judge_raised(&token("a", 5), 5).unwrap();
    }

    #[test]
    fn another_lock_is_told_with_both_names() {
        check_lock(&LockName::new("a").unwrap(), &token("a", 1)).unwrap();
        let error = check_lock(&LockName::new("a").unwrap(), &token("b", 9)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DifferentLock);
        for part in ["lock \"b\": its fence 9", "gate of lock \"a\""] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
