//! A gate that opens when enough have counted it down.

use lockfast_core::error::quote;
use lockfast_core::{Error, ErrorKind, HolderId, LockName, Result, VersionedValue};

use super::events::Events;
use super::shared_value::{SharedValue, Update};
use crate::lease::policy::Options;
use crate::optimistic::Attempts;

/// A count-down latch: those who wait go on when so many have counted it down, and so does whoever
/// comes later. Cheap to clone.
///
/// Each count is kept in the store, once, also when an answer was lost. A latch is used up when it is
/// open; [`reset`](Latch::reset) makes it new.
///
/// ```
/// use lockfast::Locker;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> lockfast::Result<()> {
/// let locker = Locker::connect("memory:").await?; // any store but redlock:
/// let imported = locker.latch("import/2026-11", 2)?; // two parts, by two machines
///
/// let waiter = imported.clone();
/// let report = tokio::spawn(async move { waiter.wait().await });
/// assert_eq!(imported.count_down().await?, 1);
/// assert_eq!(imported.count_down().await?, 0);
/// report.await.expect("no panic")?;
/// println!("{} is open", imported.name());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Latch {
    value: SharedValue,
    name: LockName,
    count: u32,
}

/// Those who have counted.
struct Counted {
    count: u32,
    by: Vec<String>,
}

impl Latch {
    /// The most that can be counted down.
    pub const COUNT_MAX: u32 = 1000;

    pub(crate) fn new(value: SharedValue, name: LockName, count: u32) -> Result<Self> {
        if (1..=Self::COUNT_MAX).contains(&count) {
            // Each conflict is somebody else's count, so that there is an end to them.
            let value = value.attempts(Attempts::default().most(2 * Self::COUNT_MAX));
            return Ok(Self { value, name, count });
        }
        let message =
            format!("a latch cannot be counted down {count} times; use 1 to {}", Self::COUNT_MAX);
        Err(Error::new(ErrorKind::InvalidConfig, message).with_lock(&name))
    }

    /// As [`SharedValue::with_options`].
    #[must_use]
    pub fn with_options(mut self, options: Options) -> Self {
        self.value = self.value.with_options(options);
        self
    }

    /// The name. See [`Latch`] for an example.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Counts down by one; how many are left. At zero all who wait go on. See [`Latch`] for an example.
    ///
    /// # Cancel safety
    /// When dropped before its end, it may have happened.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] for a latch that is open already, or that others use with another
    /// count; what the store meets.
    pub async fn count_down(&self) -> Result<u32> {
        let id = self.value.new_id()?.to_hex();
        let counted = self.value.update_known(async |there| {
            let mut counted = self.parse(there.as_ref())?;
            if counted.by.contains(&id) {
                return Ok(Update::Keep);
            }
            if counted.left() == 0 {
                let message = format!("the latch was counted down {} times already", self.count);
                return Err(Error::new(ErrorKind::Conflict, message).with_lock(&self.name));
            }
            counted.by.push(id.clone());
            Ok(Update::Put(counted.to_text().into_bytes()))
        });
        self.parse(counted.await?.as_ref()).map(|counted| counted.left())
    }

    /// How many are left.
    ///
    /// ```
    /// use lockfast::Locker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let imported = Locker::connect("memory:").await?.latch("import/2026-11", 3)?;
    /// imported.count_down().await?;
    /// assert_eq!(imported.left().await?, 2); // what an operator may want to see
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] for a latch that others use with another count; what the store meets.
    pub async fn left(&self) -> Result<u32> {
        let there = self.value.read().await?;
        self.parse(there.as_ref()).map(|counted| counted.left())
    }

    /// Waits until none is left, also while the store cannot be reached, for up to a minute.
    /// See [`Latch`] for an example.
    ///
    /// # Cancel safety
    /// Safe: it only looks.
    ///
    /// # Errors
    /// As [`left`](Self::left).
    pub async fn wait(&self) -> Result<()> {
        let mut events = Events::new(self.value.store(), self.value.name().clone())?;
        let mut patience = self.value.patience();
        loop {
            match self.left_before(&mut events).await {
                Ok(0) => return Ok(()),
                Ok(_) => {
                    events.next().await;
                    patience.renew();
                }
                Err(error) => patience.pause_after(error).await?,
            }
        }
    }

    /// How many are left; what changes after that is heard.
    async fn left_before(&self, events: &mut Events) -> Result<u32> {
        events.resume().await?;
        self.left().await
    }

    /// Makes the latch new, as if nobody had counted. One who waits and has not seen yet that it was
    /// open waits for the new one, so reset it when those have gone on who should.
    ///
    /// ```
    /// use lockfast::Locker;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> lockfast::Result<()> {
    /// let imported = Locker::connect("memory:").await?.latch("import", 1)?;
    /// imported.count_down().await?;
    /// imported.wait().await?;
    /// imported.reset().await?; // for tomorrow's import
    /// assert_eq!(imported.left().await?, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// When dropped before its end, it may have happened.
    ///
    /// # Errors
    /// What the store meets.
    pub async fn reset(&self) -> Result<()> {
        self.value.update_known(async |_| Ok(Update::Remove)).await.map(|_| ())
    }

    fn parse(&self, there: Option<&VersionedValue>) -> Result<Counted> {
        let Some(value) = there else {
            return Ok(Counted { count: self.count, by: Vec::new() });
        };
        let counted = Counted::parse(&value.bytes).ok_or_else(|| {
            let message = format!(
                "the value {} is not a latch's; remove it, or use another name",
                quote(self.value.name().as_str())
            );
            Error::new(ErrorKind::CorruptRecord, message).with_lock(&self.name)
        })?;
        if counted.count != self.count {
            let message = format!(
                "the latch is counted down from {}, not from {}; all must say the same",
                counted.count, self.count
            );
            return Err(Error::new(ErrorKind::Conflict, message).with_lock(&self.name));
        }
        Ok(counted)
    }
}

impl Counted {
    fn left(&self) -> u32 {
        self.count.saturating_sub(u32::try_from(self.by.len()).unwrap_or(u32::MAX))
    }

    /// One line with the count, and one for each who has counted.
    fn to_text(&self) -> String {
        let mut text = format!("lockfast-latch {}\n", self.count);
        for id in &self.by {
            text.push_str(id);
            text.push('\n');
        }
        text
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.lines();
        let count = lines.next()?.strip_prefix("lockfast-latch ")?.parse().ok()?;
        let by: Vec<String> = lines.map(str::to_owned).collect();
        let is_id = |line: &String| HolderId::parse(line).is_ok();
        (count > 0 && by.iter().all(is_id)).then_some(Self { count, by })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latch_is_read_as_it_was_written() {
        let by = vec!["00112233445566778899aabbccddeeff".to_owned()];
        let text = Counted { count: 3, by: by.clone() }.to_text();
        let read = Counted::parse(text.as_bytes()).unwrap();
        assert_eq!((read.count, read.left(), read.by), (3, 2, by));
        for other in ["", "lockfast-latch", "lockfast-latch 0\n", "lockfast-latch 2\nx\n", "7"] {
            assert!(Counted::parse(other.as_bytes()).is_none(), "{other}");
        }
        let longest =
            vec!["00112233445566778899aabbccddeeff".to_owned(); Latch::COUNT_MAX as usize];
        let longest = Counted { count: Latch::COUNT_MAX, by: longest }.to_text();
        assert!(VersionedValue::check(longest.as_bytes()).is_ok());
    }
}
