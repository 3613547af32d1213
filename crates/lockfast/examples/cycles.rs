//! Takes and gives back a lock so many times, by one of the primitives: for
//! `cargo xtask bench primitives`, which counts the instructions.
//!
//! ```text
//! cargo run --release --example cycles -- Mutex 1000
//! ```

use std::time::Duration;

use lockfast::{Holder, Locker, Mode, Result};

const NAME: &str = "cycles";

async fn cycle(primitive: &str, count: usize) -> Result<()> {
    let locker = Locker::connect("memory:").await?;
    match primitive {
        "AnyLock" => {
            let lock = locker.any_lock(NAME, Mode::Exclusive)?;
            for _ in 0..count {
                lock.acquire().await?.release().await?;
            }
        }
        "Mutex" => {
            let mutex = locker.mutex(NAME)?;
            for _ in 0..count {
                mutex.acquire().await?.release().await?;
            }
        }
        "Mutex by a Holder" => {
            let (mutex, holder) = (locker.mutex(NAME)?, Holder::new());
            for _ in 0..count {
                mutex.acquire_as(&holder).await?.release().await?;
            }
        }
        "RwLock, write" => {
            let rwlock = locker.rwlock(NAME)?;
            for _ in 0..count {
                rwlock.write().await?.release().await?;
            }
        }
        "RwLock, read" => {
            let rwlock = locker.rwlock(NAME)?;
            for _ in 0..count {
                rwlock.read().await?.release().await?;
            }
        }
        "Semaphore" => {
            let semaphore = locker.semaphore(NAME, 4)?;
            for _ in 0..count {
                semaphore.acquire().await?.release().await?;
            }
        }
        "MultiLock of one" => {
            let multi = locker.multi([NAME])?;
            for _ in 0..count {
                multi.acquire().await?.release().await?;
            }
        }
        "Once" => {
            let once = locker.once(NAME, Duration::from_secs(60))?;
            for _ in 0..count {
                if let Some(guard) = once.start().await?.acquired() {
                    guard.finish().await?;
                }
            }
        }
        "Leader" => {
            let leader = locker.leader(NAME)?;
            for _ in 0..count {
                let mut campaign = leader.campaign()?;
                campaign.next().await?;
                campaign.resign().await?;
            }
        }
        other => {
            let message = format!("there is no primitive {other:?} here");
            return Err(lockfast::Error::new(lockfast::ErrorKind::InvalidConfig, message));
        }
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let primitive = arguments.next().unwrap_or_default();
    let count = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(1000);
    cycle(&primitive, count).await
}
