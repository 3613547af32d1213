use lockfast::{Attempt, Locker};

#[tokio::main]
pub(crate) async fn main() -> lockfast::Result<()> {
    let locker = Locker::connect("memory:").await?;
    let mutex = locker.mutex("job")?;
    match mutex.try_acquire().await? {
        Attempt::Acquired(guard) => {
            println!("got it with fence {}", guard.fence());
            guard.release().await?;
        }
        Attempt::Taken(refusal) => println!("taken: {refusal}"),
    }
    let held = mutex.acquire().await?;
    if let Some(guard) = mutex.try_acquire().await?.acquired() {
        println!("impossible: {}", guard.fence());
    }
    drop(held);
    locker.shutdown().await;
    Ok(())
}
