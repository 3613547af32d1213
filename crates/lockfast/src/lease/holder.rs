//! Who may take a lock again that it has: a value that the caller passes along. It is counted in
//! this process; the store sees one acquisition.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use lockfast_core::{Error, LockName, Mode, Result};

use super::acquire::Target;
use super::cell::LeaseCell;
use super::handle::Guard;

/// One who may take a lock that it has already. Cheap to clone; all clones are the same holder, also
/// in other tasks and threads of this process.
///
/// What it takes with [`acquire_as`](crate::Mutex::acquire_as) again before it was given back is
/// another guard of the same grant: the store is not asked, the fence is the same, the lock is given
/// back with the last guard, and a loss is told to all of them. Locks of other names and connections
/// are independent. A holder has a lock in one mode at a time: one that reads and wants to write would
/// wait for itself, and is refused with [`ErrorKind::AlreadyHeld`](crate::ErrorKind::AlreadyHeld). A
/// writer's lease that was [downgraded](crate::RwLock::downgrade) is a reader's from then on.
///
/// ```
/// use lockfast::{Holder, Locker, Mutex, Released};
///
/// async fn add_page(report: &Mutex, me: &Holder) -> lockfast::Result<()> {
///     let guard = report.acquire_as(me).await?; // whether or not the caller has it
///     println!("add a page with fence {}", guard.fence());
///     Ok(())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let report = Locker::connect("memory:").await?.mutex("nightly-report")?;
/// let me = Holder::new();
/// let guard = report.acquire_as(&me).await?;
/// add_page(&report, &me).await?;
/// guard.check()?; // still held
/// assert!(matches!(guard.release().await?, Released::Released));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Holder(Arc<Mutex<HashMap<Key, Vec<Place>>>>);

/// A lock of a connection, which is known by its address: whoever has or wants a lease keeps the
/// connection, so no other can be there.
type Key = (usize, LockName);

/// What a holder has or wants of a lock.
struct Place {
    /// The mode that it asked for. What it has may have been downgraded since.
    asked: Mode,
    seat: Arc<Seat>,
}

/// The lease that a holder was granted of one lock.
#[derive(Default)]
pub(crate) struct Seat {
    /// Locked while the store is asked for one, so that a holder does not stand in line behind itself.
    pub(crate) asking: tokio::sync::Mutex<()>,
    lease: Mutex<Weak<LeaseCell>>,
}

impl Seat {
    /// The store has granted it.
    pub(crate) fn take(&self, cell: &Arc<LeaseCell>) {
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(cell);
    }

    fn lease(&self) -> Option<Arc<LeaseCell>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner).upgrade()
    }
}

impl Holder {
    /// A new holder, who has nothing. See [`Holder`] for an example.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where this holder's lease of a lock is kept.
    ///
    /// # Errors
    /// [`ErrorKind::AlreadyHeld`](crate::ErrorKind::AlreadyHeld) when it has the lock, or asks for it, in
    /// another mode: it would wait for itself.
    pub(crate) fn seat(&self, target: &Target) -> Result<Arc<Seat>> {
        let key = key(target);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(places) = all.get(&key) {
            check_mode(places, target)?;
            if let Some(own) = places.iter().find(|place| place.asked == target.mode) {
                return Ok(Arc::clone(&own.seat));
            }
        }
        // What is over is forgotten here, so that a holder remembers no more than it has.
        all.retain(|_, places| {
            places.retain(Place::is_in_use);
            !places.is_empty()
        });
        let place = Place { asked: target.mode, seat: Arc::default() };
        let seat = Arc::clone(&place.seat);
        all.entry(key).or_default().push(place);
        Ok(seat)
    }

    /// Whether this holder may ask for a lock: it neither has it nor asks for it in another mode.
    ///
    /// # Errors
    /// As [`Holder::seat`].
    pub(crate) fn check_mode(&self, target: &Target) -> Result<()> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&key(target)).map_or(Ok(()), |places| check_mode(places, target))
    }

    /// Another guard of what this holder has. A reader's may have been a writer's.
    pub(crate) fn again(&self, target: &Target) -> Option<Guard> {
        let leases: Vec<Arc<LeaseCell>> = {
            let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.get(&key(target))?.iter().filter_map(|place| place.seat.lease()).collect()
        };
        leases.into_iter().find_map(|cell| Guard::again(cell, target.mode))
    }
}

fn check_mode(places: &[Place], target: &Target) -> Result<()> {
    let other = |place: &Place| place.mode_taken().filter(|mode| *mode != target.mode);
    match places.iter().find_map(other) {
        Some(other) => Err(Error::already_held(target.mode, other).with_lock(&target.name)),
        None => Ok(()),
    }
}

fn key(target: &Target) -> Key {
    (Arc::as_ptr(&target.store).addr(), target.name.clone())
}

impl Place {
    /// The mode in which somebody has the lease, or asks for it.
    fn mode_taken(&self) -> Option<Mode> {
        let held = self.held().filter(|cell| !cell.look().is_over());
        held.map(|cell| cell.held_mode().mode()).or_else(|| self.is_asked().then_some(self.asked))
    }

    /// Whether somebody asks for the lease, or has a guard of it, which may be lost.
    fn is_in_use(&self) -> bool {
        self.is_asked() || self.held().is_some()
    }

    fn is_asked(&self) -> bool {
        Arc::strong_count(&self.seat) > 1
    }

    /// The lease, while there are guards of it.
    fn held(&self) -> Option<Arc<LeaseCell>> {
        self.seat.lease().filter(|cell| cell.guards.load(Ordering::Acquire) > 0)
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Holder")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_over_is_forgotten() {
        let locker = crate::Locker::connect("memory:").await.unwrap();
        let me = Holder::new();
        let held = locker.mutex("held").unwrap().acquire_as(&me).await.unwrap();
        for number in 0..100 {
            let mutex = locker.mutex(number.to_string()).unwrap();
            mutex.acquire_as(&me).await.unwrap().release().await.unwrap();
        }
        assert_eq!(me.0.lock().unwrap().len(), 2, "what is held, and the last");
        let again = locker.mutex("held").unwrap().acquire_as(&me).await.unwrap();
        assert_eq!(again.fence(), held.fence());
        assert_eq!(format!("{me:?}"), "Holder");
    }
}
