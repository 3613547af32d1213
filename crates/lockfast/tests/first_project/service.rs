use lockfast::{Error, ErrorKind, Guard, Lease, Locker, Mutex};
use std::time::Duration;

struct Orders {
    lock: Mutex,
}
impl Orders {
    async fn enter(&self) -> Result<Guard, Error> {
        self.lock.acquire().await
    }
}
fn send(fence: u64) -> u64 {
    fence
}
async fn step(guard: &Guard, lease: &Lease) -> lockfast::Result<()> {
    guard.check()?;
    lease.check()?;
    Ok(())
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let locker = Locker::builder().prefix("shop/").connect("memory:").await?;
    let orders = Orders { lock: locker.mutex("order/7")?.wait(Duration::from_secs(5)) };
    let guard = orders.enter().await?;
    println!("{:?} {}", guard.token(), send(guard.fence().get()));
    step(&guard, &guard).await?;
    let task = tokio::spawn(async move {
        guard.check()?;
        guard.release().await
    });
    task.await??;

    let both = locker.multi(&["b", "a"])?;
    let guard = both.acquire().await?;
    let other = locker.clone();
    let busy = tokio::spawn(async move {
        match other.mutex("a")?.wait(Duration::from_millis(50)).acquire().await {
            Ok(_) => Ok(false),
            Err(error) if error.kind() == ErrorKind::Taken => {
                println!("{error}");
                Ok::<_, Error>(true)
            }
            Err(error) => Err(error),
        }
    })
    .await??;
    assert!(busy);
    tokio::select! {
        cause = guard.lost() => println!("lost {cause}"),
        () = tokio::time::sleep(Duration::from_millis(5)) => println!("done"),
    }
    drop(guard);

    let guard = locker.lock("job").await?;
    let mut work = Box::pin(async {
        tokio::time::sleep(Duration::from_millis(5)).await;
        5
    });
    let result = tokio::select! {
        cause = guard.lost() => return Err(format!("lost: {cause}").into()),
        result = &mut work => result,
    };
    println!("{result}");
    let blocking = lockfast::blocking::Locker::from(locker.clone());
    tokio::task::spawn_blocking(move || -> lockfast::Result<()> {
        let permit = blocking.semaphore("api", 2)?.try_acquire()?.acquired();
        println!("{}", permit.is_some());
        Ok(())
    })
    .await??;
    if let Some(holder) = locker.inspect("job").await?.holders.first() {
        println!("{holder:?}");
    }
    locker.shutdown().await;
    Ok(())
}
