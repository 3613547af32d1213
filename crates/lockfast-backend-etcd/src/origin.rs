//! Whether whoever has its turn knows it. A key says from the start that it is held if nobody was known
//! to be ahead of it, and says that it waits as soon as its process hears that somebody was. Of a process
//! that died in between, it says for ever that it is held. What the cluster remembers tells the two
//! apart: the line as it was when the key was made.

use std::sync::Arc;
use std::time::Duration;

use lockfast_core::{LockName, Moment};

use crate::failure::{Failure, Fate};
use crate::line::{Entry, Line, Place};
use crate::store::Store;

/// How long somebody has its turn before that is asked: most have given the lock back by then, and it is
/// known before they would be given up.
const AGE: Duration = Duration::from_millis(700);

impl Store {
    /// Asks it of those whom somebody of this process waits for.
    pub(crate) fn ask_origins(self: &Arc<Self>, now: Moment) {
        let mut doubtful: Vec<(LockName, Place)> = Vec::new();
        self.watches.for_each_line(|name, line| {
            let is_ours = |key: &[u8]| self.claims.has_key(key);
            let mut places = line.take_doubtful(now, AGE);
            places.retain(|(_, key)| !is_ours(key));
            if !places.is_empty() && line.waiting().any(|entry| is_ours(&entry.key)) {
                doubtful.extend(places.into_iter().map(|place| (name.clone(), place)));
            }
        });
        for (name, place) in doubtful {
            let store = Arc::clone(self);
            self.context.runtime.spawn(async move {
                match store.was_granted(&name, &place).await {
                    Ok(was_granted) => store.watches.tell_origin(&name, &place, was_granted),
                    // It is not remembered any more: its lease tells when it ends.
                    Err(failure) if failure.handling == Fate::Refused => {
                        store.watches.tell_origin(&name, &place, true);
                    }
                    Err(failure) => {
                        tracing::debug!(failure = failure.message(), "it is asked again");
                    }
                }
            });
        }
    }

    /// Whether a claim was granted when its key was made.
    async fn was_granted(&self, name: &LockName, place: &Place) -> Result<bool, Failure> {
        let found = self.read_line_at(name, place.0).await?;
        let entries = found.kvs.iter().filter_map(|kv| Entry::read(&self.space, name, kv));
        Ok(Line::of(entries).is_granted(place))
    }
}
