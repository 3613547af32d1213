//! Who leads, for those who do not want to.

use std::sync::Arc;
use std::time::SystemTime;

use lockfast_core::{
    Error, ErrorKind, Fence, Label, LockName, LockView, Query, Result, WatchEvent, WatchKind,
};

use super::events::Events;
use crate::store::Store;

/// Who leads: see [`Observer`].
///
/// ```
/// use lockfast::{Leadership, Locker};
///
/// fn status(now: &Leadership) -> String {
///     match now {
///         Leadership::Led(leader) => format!("led since {:?}", leader.since),
///         Leadership::Vacant => "nobody leads".into(),
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let leader = Locker::connect("memory:").await?.leader("scheduler")?;
/// let now = leader.observe().await?.next().await?;
/// assert_eq!(status(&now), "nobody leads");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub enum Leadership {
    /// Nobody.
    Vacant,
    /// This one.
    Led(LeaderView),
}

/// A leader as others see it.
///
/// ```
/// use lockfast::{Leadership, Locker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let leader = Locker::connect("memory:").await?.leader("scheduler")?;
/// let mut campaign = leader.campaign()?;
/// campaign.next().await?; // it is elected
/// if let Leadership::Led(view) = leader.observe().await?.next().await? {
///     let who = view.label.map_or("another program".into(), |label| label.to_string());
///     println!("led by {who}"); // program, host and pid
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LeaderView {
    /// The fence of its grant; absent for a program that is not Lockfast.
    pub term: Option<Fence>,
    /// Who, for people; absent for a program that is not Lockfast.
    pub label: Option<Label>,
    /// Since when, by the wall clock of whoever wrote it: for people only. Absent where nobody wrote it,
    /// as a program that is not Lockfast may not.
    pub since: Option<SystemTime>,
}

impl Leadership {
    fn of(view: LockView) -> Self {
        view.holders.into_iter().next().map_or(Self::Vacant, |holder| {
            let (term, label, since) = (holder.fence, holder.label, holder.since);
            Self::Led(LeaderView { term, label, since })
        })
    }

    /// Whether it is the same term, or nobody as before.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Vacant, Self::Vacant) => true,
            (Self::Led(one), Self::Led(other)) if one.term.is_some() => one.term == other.term,
            (Self::Led(one), Self::Led(other)) => other.term.is_none() && one.since == other.since,
            _ => false,
        }
    }

    /// What an event makes of it; `None` when that cannot be told from the event.
    fn after(&self, event: WatchEvent) -> Option<Self> {
        let known = match self {
            Self::Vacant => 0,
            Self::Led(leader) => leader.term?.get(),
        };
        match event.kind {
            WatchKind::Granted => {
                let term = event.fence?;
                let leader =
                    LeaderView { term: Some(term), label: event.label, since: Some(event.at) };
                Some(if term.get() > known { Self::Led(leader) } else { self.clone() })
            }
            WatchKind::Released | WatchKind::Expired | WatchKind::Revoked => {
                let ended = event.fence?.get();
                match self {
                    Self::Led(_) if ended == known => Some(Self::Vacant),
                    // A term of which the beginning was not heard.
                    Self::Led(_) if ended > known => None,
                    _ => Some(self.clone()),
                }
            }
            _ => Some(self.clone()),
        }
    }
}

/// Who leads, and each change of that.
///
/// ```
/// use lockfast::{Leadership, Locker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let leader = Locker::connect("memory:").await?.leader("scheduler")?;
/// let mut observer = leader.observe().await?;
/// match observer.next().await? {
///     Leadership::Led(leader) => println!("led by {:?} since {:?}", leader.label, leader.since),
///     Leadership::Vacant => println!("nobody leads"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Observer {
    store: Arc<Store>,
    name: LockName,
    events: Events,
    known: Option<Leadership>,
    must_look: bool,
}

impl Observer {
    pub(super) async fn open(store: Arc<Store>, name: LockName) -> Result<Self> {
        let events = Events::open(Arc::clone(&store), name.clone()).await?;
        Ok(Self { store, name, events, known: None, must_look: true })
    }

    /// Who leads: at first at once, later when that has changed. Terms that were over before anybody
    /// asked may be left out; the last answer is never an old one for longer than events take, or
    /// 10 s where some were lost. See [`Observer`] for an example.
    ///
    /// # Cancel safety
    /// Safe: it only looks, and no change is lost.
    ///
    /// # Errors
    /// When the store cannot tell. The next call asks again.
    pub async fn next(&mut self) -> Result<Leadership> {
        loop {
            let found = if self.must_look {
                Some(self.look().await.map_err(|error| error.with_lock(&self.name))?)
            } else {
                let event = self.events.next().await;
                event.and_then(|event| self.known.as_ref()?.after(event))
            };
            self.must_look = found.is_none();
            let Some(found) = found else { continue };
            if !self.known.as_ref().is_some_and(|known| known.is_same(&found)) {
                self.known = Some(found.clone());
                return Ok(found);
            }
        }
    }

    /// The lock as the store sees it. Whatever happens from then on is heard.
    async fn look(&mut self) -> Result<Leadership> {
        self.events.resume().await?;
        let views = self.store.backend.inspect(Query::Name(self.name.clone())).await?;
        let view = views.into_iter().next();
        let none = || Error::new(ErrorKind::Internal, "the store answered no view");
        view.map(Leadership::of).ok_or_else(none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::{HolderView, Mode};
    use std::time::Duration;

    const AT: SystemTime = SystemTime::UNIX_EPOCH;

    fn event(kind: WatchKind, fence: Option<u64>) -> WatchEvent {
        let fence = fence.map(|fence| Fence::new(fence).unwrap());
        WatchEvent::new(AT, LockName::new("a").unwrap(), kind).with_fence(fence)
    }

    fn led(term: Option<u64>) -> Leadership {
        let term = term.map(|term| Fence::new(term).unwrap());
        Leadership::Led(LeaderView { term, label: None, since: Some(AT) })
    }

    /// B245: another program that leads was told as a new leader at each look, because its record does
    /// not say since when, and the time of the look took the place of that.
    #[test]
    fn who_does_not_say_since_when_stays_the_same() {
        let look = || {
            let holder = HolderView::new(Mode::Exclusive, None, Duration::from_secs(5));
            Leadership::of(LockView::new(LockName::new("a").unwrap(), vec![holder], 0))
        };
        assert!(look().is_same(&look()));
        assert!(!look().is_same(&led(None)) && !look().is_same(&led(Some(5))));
    }

    /// The term, 0 for nobody, or nothing when the store has to be looked at.
    fn term(leadership: Option<Leadership>) -> Option<u64> {
        leadership.map(|leadership| match leadership {
            Leadership::Vacant => 0,
            Leadership::Led(leader) => leader.term.unwrap().get(),
        })
    }

    #[test]
    fn an_event_changes_who_leads_or_the_store_is_looked_at() {
        use WatchKind::*;
        let table = [
            (Leadership::Vacant, Granted, Some(5), Some(5)),
            (led(Some(5)), Granted, Some(9), Some(9)),
            (led(Some(5)), Released, Some(5), Some(0)),
            (led(Some(5)), Expired, Some(5), Some(0)),
            (led(Some(5)), Revoked, Some(5), Some(0)),
            (led(Some(5)), Queued, None, Some(5)),
            (led(Some(5)), Abandoned, None, Some(5)),
            // What was looked at may be ahead of the events.
            (led(Some(9)), Granted, Some(5), Some(9)),
            (led(Some(9)), Released, Some(5), Some(9)),
            (Leadership::Vacant, Released, Some(5), Some(0)),
            // The event alone does not tell.
            (led(Some(5)), Released, Some(9), None),
            (led(None), Granted, Some(5), None),
            (Leadership::Vacant, Granted, None, None),
        ];
        for (known, kind, fence, expected) in table {
            let what = format!("{known:?} {kind:?} {fence:?}");
            assert_eq!(term(known.after(event(kind, fence))), expected, "{what}");
        }
    }
}
