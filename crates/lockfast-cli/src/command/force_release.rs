//! `lockfast force-release`: the operator's way out.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use lockfast::{Error, ErrorKind, Fence, HolderView, LockName, LockView, Locker, RevokeOutcome};
use lockfast_core::error::{is_printable, quote};
use serde_json::json;

use super::view::describe_holder;
use crate::args::{ForceRelease, Global};
use crate::exit::{Failure, NOT_ACQUIRED, Outcome};
use crate::output::Output;
use crate::plan::{self, Store};

/// The longest reason, in bytes.
const REASON_BYTES_MAX: usize = 256;

/// Takes the lock away from whoever has it.
///
/// # Errors
/// When nobody confirms it, when nobody has the lock, or when its fence is another.
///
/// # Cancel safety
/// Safe: it was taken away or not.
pub(crate) async fn run(args: &ForceRelease, global: &Global, output: &Output) -> Outcome {
    let name = plan::name(&args.name)?;
    let reason = check_reason(plan::text(&args.reason, "the reason")?)?;
    let mut expect_fence = args
        .expect_fence
        .as_deref()
        .map(|typed| plan::text(typed, "the fence").and_then(|text| Ok(Fence::parse(text)?)))
        .transpose()?;
    if !args.yes && !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "force-release can let two holders overlap; add --yes to confirm it",
        ));
    }
    let store = Store::choose(global, output)?;
    let locker = store.connect_to_look(output).await?;
    if !args.yes {
        let Some(shown) = confirm(&locker, &name, output).await? else {
            return Err(Failure::new(NOT_ACQUIRED, "not confirmed; nothing was done"));
        };
        // Whoever came after the one that was shown keeps it.
        expect_fence = expect_fence.or(shown.holders.iter().find_map(|holder| holder.fence));
    }
    let shown = quote(name.as_str());
    let revoked = match expect_fence {
        Some(fence) => locker.revoke_fence(&name, fence, &reason).await,
        None => locker.revoke(&name, &reason).await,
    };
    match revoked.map_err(|error| say_doubt(error, &shown))? {
        RevokeOutcome::Revoked(holders) => {
            report(&name, &holders, output)?;
            Ok(0)
        }
        RevokeOutcome::NotHeld => {
            Err(Failure::new(NOT_ACQUIRED, format!("lock {shown} is not held; nothing was done")))
        }
        RevokeOutcome::OtherFence(holders) => {
            let fences: Vec<_> =
                holders.iter().filter_map(|holder| holder.fence).map(|f| f.to_string()).collect();
            let expected = expect_fence.map_or_else(String::new, |fence| fence.to_string());
            Err(Failure::new(
                NOT_ACQUIRED,
                format!(
                    "the fence of lock {shown} is {}, expected {expected}; nothing was done",
                    fences.join(", ")
                ),
            ))
        }
    }
}

/// A request that was sent and not answered may have been carried out.
fn say_doubt(error: Error, shown: &str) -> Failure {
    let is_open = matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::NoQuorum);
    if error.is_without_effect() || !is_open {
        return error.into();
    }
    let message = format!(
        "{}; it may have been done: look with `lockfast show` at lock {shown} before you try again",
        error.message()
    );
    error.with_message(message).into()
}

fn check_reason(reason: &str) -> Result<String, Failure> {
    let flaw = if reason.trim().is_empty() {
        "is empty".to_owned()
    } else if reason.len() > REASON_BYTES_MAX {
        format!("has {} bytes, at most {REASON_BYTES_MAX}", reason.len())
    } else if !is_printable(reason) {
        "holds control characters or invisible ones".to_owned()
    } else {
        return Ok(reason.to_owned());
    };
    Err(Failure::usage(format!("--reason {} {flaw}; say why in a few words", quote(reason))))
}

/// Shows who has the lock; nothing when it is to be left with them.
async fn confirm(
    locker: &Locker,
    name: &LockName,
    output: &Output,
) -> Result<Option<LockView>, Failure> {
    let lock = locker.inspect(name).await?;
    let shown = quote(name.as_str());
    if lock.holders.is_empty() {
        output.note(&format!("lock {shown} is not held"));
    }
    for holder in &lock.holders {
        output.note(&format!("lock {shown} is held by {}", describe_holder(holder)));
    }
    let question =
        output.text("Take it away? Whoever has it may still be at work. [y/N] ").into_owned();
    let _ = io::stderr().write_all(question.as_bytes());
    let mut answer = String::new();
    io::stdin()
        .lock()
        .read_line(&mut answer)
        .map_err(|error| Failure::internal("no answer", error))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes").then_some(lock))
}

fn report(name: &LockName, holders: &[HolderView], output: &Output) -> Result<(), Failure> {
    if output.json() {
        let fences: Vec<_> = holders.iter().map(|holder| holder.fence.map(Fence::get)).collect();
        return output.value(&json!({
            "name": name.as_str(),
            "revoked": holders.len(),
            "fences": fences,
        }));
    }
    holders.iter().try_for_each(|holder| {
        output.line(&format!("{name}: taken from {}", describe_holder(holder)))
    })
}
