//! Feeding the event streams of one process. A stream that is not read fast enough loses events
//! and is told so; it never slows the store down.

use lockfast_core::time::wall_clock;
use lockfast_core::{EventStream, WatchEvent, WatchKind};
use tokio::sync::mpsc::Sender;
use tokio::sync::mpsc::error::TrySendError;

/// The streams that are fed.
#[derive(Debug, Default)]
pub(crate) struct Feeds(Vec<Feed>);

#[derive(Debug)]
struct Feed {
    sender: Sender<WatchEvent>,
    missed: bool,
}

impl Feeds {
    /// Opens another stream.
    pub(crate) fn open(&mut self) -> EventStream {
        let (sender, stream) = EventStream::channel();
        self.0.push(Feed { sender, missed: false });
        stream
    }

    /// Whether nobody looks.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets the streams that were dropped.
    pub(crate) fn prune(&mut self) {
        self.0.retain(|feed| !feed.sender.is_closed());
    }

    /// Passes an event on to every stream.
    pub(crate) fn tell(&mut self, event: &WatchEvent) {
        self.0.retain_mut(|feed| feed.offer(event));
    }

    /// Tells every stream that events were lost on the way here.
    pub(crate) fn tell_missed(&mut self) {
        self.0.iter_mut().for_each(|feed| feed.missed = true);
    }
}

impl Feed {
    /// Returns whether the stream is still there.
    fn offer(&mut self, event: &WatchEvent) -> bool {
        if self.missed {
            let missed = WatchEvent {
                at: wall_clock(),
                name: event.name.clone(),
                kind: WatchKind::Missed,
                fence: None,
                label: None,
            };
            match self.sender.try_send(missed) {
                Ok(()) => self.missed = false,
                Err(TrySendError::Full(_)) => return true,
                Err(TrySendError::Closed(_)) => return false,
            }
        }
        match self.sender.try_send(event.clone()) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.missed = true;
                true
            }
            Err(TrySendError::Closed(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lockfast_core::LockName;

    fn event() -> WatchEvent {
        WatchEvent {
            at: wall_clock(),
            name: LockName::new("a").unwrap(),
            kind: WatchKind::Granted,
            fence: None,
            label: None,
        }
    }

    #[tokio::test]
    async fn a_slow_reader_learns_that_it_missed_something() {
        let mut feeds = Feeds::default();
        let mut stream = feeds.open();
        for _ in 0..EventStream::BACKLOG_MAX + 5 {
            feeds.tell(&event());
        }
        for _ in 0..EventStream::BACKLOG_MAX {
            assert_eq!(stream.next().await.unwrap().kind, WatchKind::Granted);
        }
        feeds.tell(&event());
        assert_eq!(stream.next().await.unwrap().kind, WatchKind::Missed);
        assert_eq!(stream.next().await.unwrap().kind, WatchKind::Granted);
        drop(stream);
        feeds.tell(&event());
        assert!(feeds.is_empty());
    }
}
