//! The scripts, by which each node decides for itself. Their digests are computed once.

use crate::wire::{Pipeline, Script, digest};

const ACQUIRE_TEXT: &str = include_str!("scripts/acquire.lua");
const RELEASE_TEXT: &str = include_str!("scripts/release.lua");
const RENEW_TEXT: &str = include_str!("scripts/renew.lua");
const REVOKE_TEXT: &str = include_str!("scripts/revoke.lua");
const INSPECT_TEXT: &str = include_str!("scripts/inspect.lua");
const ENROLL_TEXT: &str = include_str!("scripts/enroll.lua");

pub(crate) static ACQUIRE: Script = Script::new(ACQUIRE_TEXT, || digest(ACQUIRE_TEXT));
pub(crate) static RELEASE: Script = Script::new(RELEASE_TEXT, || digest(RELEASE_TEXT));
pub(crate) static RENEW: Script = Script::new(RENEW_TEXT, || digest(RENEW_TEXT));
pub(crate) static REVOKE: Script = Script::new(REVOKE_TEXT, || digest(REVOKE_TEXT));
pub(crate) static INSPECT: Script = Script::new(INSPECT_TEXT, || digest(INSPECT_TEXT));
pub(crate) static ENROLL: Script = Script::new(ENROLL_TEXT, || digest(ENROLL_TEXT));

/// Asks a node to keep all scripts.
pub(crate) fn load_all(pipeline: &mut Pipeline) {
    for script in [&ACQUIRE, &RELEASE, &RENEW, &REVOKE, &INSPECT, &ENROLL] {
        script.load(pipeline);
    }
}
