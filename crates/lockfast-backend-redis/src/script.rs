//! The scripts, which decide everything on the server. Their digests are computed once.

use std::borrow::Cow;
use std::sync::LazyLock;

use crate::wire::Pipeline;

/// One script.
pub struct Script {
    source: &'static str,
    digest: LazyLock<String>,
}

impl Script {
    /// A script and how its digest is computed when it is first needed.
    pub const fn new(source: &'static str, digest: fn() -> String) -> Self {
        Self { source, digest: LazyLock::new(digest) }
    }

    /// Begins a call with so many keys and arguments, which must follow.
    pub fn call(&self, pipeline: &mut Pipeline, keys: usize, arguments: usize) {
        pipeline.command(3 + keys + arguments);
        pipeline.part("EVALSHA");
        pipeline.part(self.digest.as_bytes());
        // See asking.lua.
        pipeline.part_number(if pipeline.is_asking() { 1 } else { keys as u64 });
    }

    /// Asks the server to keep it.
    pub fn load(&self, pipeline: &mut Pipeline) {
        pipeline.all(&["SCRIPT", "LOAD", &as_sent(self.source)]);
    }
}

/// The digest by which the server knows a script.
pub fn digest(source: &str) -> String {
    sha1_smol::Sha1::from(&*as_sent(source)).digest().to_string()
}

fn as_sent(source: &str) -> Cow<'_, str> {
    // For cargo xtask soak --undone: shows that torture finds it.
    if cfg!(lockfast_undone = "B14") { forgetful(source) } else { Cow::Borrowed(source) }
}

/// Where scripts look at what they changed themselves in the same call.
const MEMORY: [&str; 2] =
    ["if current[lock] ~= nil then", "if count > 1 then\n    -- What was done"];

/// A script without that.
fn forgetful(source: &str) -> Cow<'_, str> {
    let [give, release] = MEMORY;
    let release_not = release.replace("count > 1", "false");
    Cow::Owned(source.replace(give, "if false then").replace(release, &release_not))
}

/// The scripts of one kind of server.
pub(crate) struct Scripts {
    pub(crate) acquire: Script,
    pub(crate) release: Script,
    pub(crate) revoke: Script,
    pub(crate) share: Script,
    pub(crate) renew: Script,
    pub(crate) inspect: Script,
    pub(crate) enroll: Script,
    pub(crate) prolong: Script,
    pub(crate) take: Script,
    pub(crate) give: Script,
    pub(crate) keep: Script,
    pub(crate) value: Script,
}

impl Scripts {
    /// Asks the server to keep all scripts.
    pub(crate) fn load_all(&self, pipeline: &mut Pipeline) {
        let Self { acquire, release, revoke, renew, inspect, enroll, prolong, .. } = self;
        let Self { share, take, give, keep, value, .. } = self;
        let most = [acquire, release, revoke, renew, inspect, enroll, prolong];
        for script in most.into_iter().chain([share, take, give, keep, value]) {
            script.load(pipeline);
        }
    }
}

mod single {
    pub(super) const ACQUIRE: &str = concat!(
        "local CLUSTER = false\n",
        include_str!("scripts/acquire.lua"),
        include_str!("scripts/view.lua"),
        include_str!("scripts/others.lua"),
        include_str!("scripts/queue.lua"),
        include_str!("scripts/admit.lua")
    );
    pub(super) const RELEASE: &str = concat!(
        "local CLUSTER = false\n",
        include_str!("scripts/release.lua"),
        include_str!("scripts/view.lua"),
        include_str!("scripts/others.lua"),
        include_str!("scripts/queue.lua"),
        include_str!("scripts/leave.lua")
    );
    pub(super) const REVOKE: &str = concat!(
        "local CLUSTER = false\n",
        include_str!("scripts/opening.lua"),
        include_str!("scripts/view.lua"),
        include_str!("scripts/others.lua"),
        include_str!("scripts/queue.lua"),
        include_str!("scripts/seize.lua")
    );
    pub(super) const SHARE: &str = concat!(
        "local CLUSTER = false\n",
        include_str!("scripts/opening.lua"),
        include_str!("scripts/view.lua"),
        include_str!("scripts/others.lua"),
        include_str!("scripts/queue.lua"),
        include_str!("scripts/missing.lua"),
        include_str!("scripts/share.lua")
    );
    pub(super) const RENEW: &str = concat!(
        "local CLUSTER = false\n",
        include_str!("scripts/missing.lua"),
        include_str!("scripts/renew.lua")
    );
    pub(super) const VALUE: &str =
        concat!("local CLUSTER = false\n", include_str!("scripts/value.lua"));
}

mod cluster {
    pub(super) const ACQUIRE: &str = concat!(
        "local CLUSTER, KEY_COUNT = true, 9\n",
        include_str!("scripts/asking.lua"),
        include_str!("scripts/acquire.lua"),
        include_str!("scripts/view.lua"),
        include_str!("scripts/others.lua"),
        include_str!("scripts/queue.lua"),
        include_str!("scripts/admit.lua")
    );
    pub(super) const RELEASE: &str = concat!(
        "local CLUSTER, KEY_COUNT = true, 9\n",
        include_str!("scripts/asking.lua"),
        include_str!("scripts/release.lua"),
        include_str!("scripts/view.lua"),
        include_str!("scripts/others.lua"),
        include_str!("scripts/queue.lua"),
        include_str!("scripts/leave.lua")
    );
    pub(super) const REVOKE: &str = concat!(
        "local CLUSTER, KEY_COUNT = true, 9\n",
        include_str!("scripts/asking.lua"),
        include_str!("scripts/opening.lua"),
        include_str!("scripts/view.lua"),
        include_str!("scripts/others.lua"),
        include_str!("scripts/queue.lua"),
        include_str!("scripts/seize.lua")
    );
    pub(super) const SHARE: &str = concat!(
        "local CLUSTER, KEY_COUNT = true, 9\n",
        include_str!("scripts/asking.lua"),
        include_str!("scripts/opening.lua"),
        include_str!("scripts/view.lua"),
        include_str!("scripts/others.lua"),
        include_str!("scripts/queue.lua"),
        include_str!("scripts/missing.lua"),
        include_str!("scripts/share.lua")
    );
    pub(super) const RENEW: &str = concat!(
        "local CLUSTER, KEY_COUNT = true, 6\n",
        include_str!("scripts/asking.lua"),
        include_str!("scripts/missing.lua"),
        include_str!("scripts/renew.lua")
    );
    pub(super) const INSPECT: &str = concat!(
        "local KEY_COUNT = 3\n",
        include_str!("scripts/asking.lua"),
        include_str!("scripts/view.lua"),
        include_str!("scripts/inspect.lua")
    );
    pub(super) const VALUE: &str = concat!(
        "local CLUSTER, KEY_COUNT = true, 2\n",
        include_str!("scripts/asking.lua"),
        include_str!("scripts/value.lua")
    );
}

const INSPECT: &str =
    concat!(include_str!("scripts/view.lua"), include_str!("scripts/inspect.lua"));
const ENROLL: &str = include_str!("scripts/enroll.lua");
const PROLONG: &str = include_str!("scripts/prolong.lua");
const TAKE: &str = include_str!("scripts/take.lua");
const GIVE: &str = concat!(
    "local CLUSTER = false\n",
    include_str!("scripts/give.lua"),
    include_str!("scripts/others.lua"),
    include_str!("scripts/pass.lua")
);
const KEEP: &str = include_str!("scripts/keep.lua");

/// For a server that has all keys.
pub(crate) static SINGLE: Scripts = Scripts {
    acquire: Script::new(single::ACQUIRE, || digest(single::ACQUIRE)),
    release: Script::new(single::RELEASE, || digest(single::RELEASE)),
    revoke: Script::new(single::REVOKE, || digest(single::REVOKE)),
    share: Script::new(single::SHARE, || digest(single::SHARE)),
    renew: Script::new(single::RENEW, || digest(single::RENEW)),
    inspect: Script::new(INSPECT, || digest(INSPECT)),
    enroll: Script::new(ENROLL, || digest(ENROLL)),
    prolong: Script::new(PROLONG, || digest(PROLONG)),
    take: Script::new(TAKE, || digest(TAKE)),
    give: Script::new(GIVE, || digest(GIVE)),
    keep: Script::new(KEEP, || digest(KEEP)),
    value: Script::new(single::VALUE, || digest(single::VALUE)),
};

/// For a node of a cluster.
pub(crate) static CLUSTER: Scripts = Scripts {
    acquire: Script::new(cluster::ACQUIRE, || digest(cluster::ACQUIRE)),
    release: Script::new(cluster::RELEASE, || digest(cluster::RELEASE)),
    revoke: Script::new(cluster::REVOKE, || digest(cluster::REVOKE)),
    share: Script::new(cluster::SHARE, || digest(cluster::SHARE)),
    renew: Script::new(cluster::RENEW, || digest(cluster::RENEW)),
    inspect: Script::new(cluster::INSPECT, || digest(cluster::INSPECT)),
    enroll: Script::new(ENROLL, || digest(ENROLL)),
    prolong: Script::new(PROLONG, || digest(PROLONG)),
    take: Script::new(TAKE, || digest(TAKE)),
    give: Script::new(GIVE, || digest(GIVE)),
    keep: Script::new(KEEP, || digest(KEEP)),
    value: Script::new(cluster::VALUE, || digest(cluster::VALUE)),
};

#[cfg(test)]
#[path = "script_test.rs"]
mod tests;
