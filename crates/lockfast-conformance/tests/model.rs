//! Random stories bite: they find each store that is broken on purpose and decides against the rule of
//! the queue, and nothing in the same store without the defect.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]
#![allow(dead_code, reason = "other tests use the rest of the reference store")]

mod reference;

use lockfast_conformance::{Seed, model};
use reference::Reference;
use reference::defect::Defect;

/// Which defects random stories have to find: those by which a store decides otherwise than the rule.
const AGAINST_THE_RULE: &[Defect] = &[
    Defect::DoubleGrant,
    Defect::FenceRepeats,
    Defect::FenceIgnoresFloor,
    Defect::FenceWraps,
    Defect::RenewCreates,
    Defect::RenewIgnoresHolder,
    Defect::RenewGrantsWaiters,
    Defect::ReleaseIgnoresHolder,
    Defect::ReleaseLeavesGap,
    Defect::GrantOutlivesCancel,
    Defect::WaiterOutlivesCancel,
    Defect::Unfair,
    Defect::HoldsUnseen,
    Defect::ExpiresEarly,
    Defect::NeverExpires,
    Defect::RepeatIsSecondClaim,
    Defect::ModeChanges,
    Defect::OvertakesWriters,
    Defect::DowngradeIsTwoSteps,
    Defect::DowngradeDoesNothing,
    Defect::DowngradeRaisesFence,
    Defect::DowngradeIgnoresHolder,
    Defect::DowngradeIgnoresPermits,
    Defect::DowngradeIsHidden,
    Defect::RepeatedDowngradeIsLost,
    Defect::OnePermitTooMany,
    Defect::OnePermitTooFew,
    Defect::IgnoresLimit,
    Defect::ForgetsLockDelay,
    Defect::ListsOutOfOrder,
    Defect::RevokeIgnoresFence,
    Defect::RevokeIsUntold,
    Defect::TimeoutLeavesClaim,
    Defect::HoldersEndTogether,
    Defect::ExpiryWakesNobody,
];

#[test]
fn random_stories_find_what_is_against_the_rule() {
    let seeds = || model::SEEDS.map(Seed).collect();
    let whole = model::find(Reference::with(None), seeds());
    assert!(whole.differed.is_none() && whole.agreed > 0, "without a defect: {whole:?}");
    let missed = |defect: &Defect| {
        let played = model::find(Reference::with(Some(*defect)), seeds());
        played.differed.is_none().then(|| format!("{defect:?}: {played:?}"))
    };
    let missed: Vec<String> = std::thread::scope(|scope| {
        let finders: Vec<_> = AGAINST_THE_RULE
            .chunks(AGAINST_THE_RULE.len().div_ceil(4))
            .map(|share| scope.spawn(|| share.iter().filter_map(missed).collect::<Vec<_>>()))
            .collect();
        finders.into_iter().flat_map(|finder| finder.join().expect("no panic")).collect()
    });
    assert!(missed.is_empty(), "\n{}", missed.join("\n"));
}
