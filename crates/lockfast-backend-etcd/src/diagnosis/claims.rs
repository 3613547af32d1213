//! Keys that keep a lock taken although nobody has it.

use lockfast_core::error::quote;
use lockfast_core::{Finding, LockName};

use super::unseen;
use crate::config::Config;
use crate::failure::Failure;
use crate::key::{Maker, Space};
use crate::wire::{Connection, KeyValue, RangeRequest};

const CHECK: &str = "claims";
/// How many keys are read at once, and how often: others may keep much there.
const PAGE: i64 = 1000;
const PAGES_MAX: usize = 100;

/// What was found among the keys of the store.
struct Found {
    /// Those that are named like claims and that no lease ends.
    endless: Vec<(Vec<u8>, LockName)>,
    count: usize,
    is_all: bool,
}

pub(super) async fn look(config: &Config, serving: &Connection) -> Finding {
    match read(config, serving).await {
        Ok(found) => judge(&found),
        Err(failure) => unseen(CHECK, &failure),
    }
}

async fn read(config: &Config, serving: &Connection) -> Result<Found, Failure> {
    let space = Space::new(&config.prefix);
    let span = space.span_of_all("");
    let mut request = RangeRequest {
        key: span.from,
        range_end: span.to,
        limit: PAGE,
        keys_only: true,
        ..RangeRequest::default()
    };
    let mut found = Found { endless: Vec::new(), count: 0, is_all: false };
    for _ in 0..PAGES_MAX {
        let page = serving.range(request.clone()).await?;
        found.count += page.kvs.len();
        found.endless.extend(page.kvs.iter().filter_map(|kv| read_endless(&space, kv)));
        match page.kvs.into_iter().next_back().filter(|_| page.more) {
            // The key that comes next after the last one.
            Some(last) => request.key = [last.key.as_slice(), &[0]].concat(),
            None => {
                found.is_all = true;
                break;
            }
        }
    }
    Ok(found)
}

/// The lock that a key claims for ever.
fn read_endless(space: &Space, kv: &KeyValue) -> Option<(Vec<u8>, LockName)> {
    let (name, maker) = space.read(&kv.key)?;
    (kv.lease == 0 && maker != Maker::Nobody).then(|| (kv.key.clone(), name))
}

fn judge(found: &Found) -> Finding {
    if let Some((key, name)) = found.endless.first() {
        let key = quote(&String::from_utf8_lossy(key));
        let fact = match found.endless.len() {
            1 => format!("the key {key} is named like a claim and has no lease"),
            count => format!("{count} keys are named like claims and have no lease, such as {key}"),
        };
        return Finding::warn(
            CHECK,
            fact,
            format!(
                "no lease ends it, so that the lock {} is taken for ever",
                quote(name.as_str())
            ),
            "delete it if nobody has that lock; if it is other data, use a prefix of your own",
        );
    }
    if !found.is_all {
        let fact = format!("the first {} keys all have leases or are no claims", found.count);
        return Finding::unknown(CHECK, fact, "use a prefix where others keep data");
    }
    Finding::ok(CHECK, "every claim hangs on a lease")
}

#[cfg(test)]
mod tests {
    use lockfast_core::Severity;

    use super::*;

    #[test]
    fn a_store_that_was_not_read_to_its_end_is_not_called_well() {
        let found = Found { endless: Vec::new(), count: 100_000, is_all: false };
        assert_eq!(judge(&found).severity, Severity::Unknown);
        assert_eq!(judge(&Found { is_all: true, ..found }).severity, Severity::Ok);
    }
}
