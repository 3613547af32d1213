use std::sync::Arc;

use lockfast::Locker;

#[tokio::main]
pub(crate) async fn main() -> lockfast::Result<()> {
    let locker = Locker::connect("memory:").await?;
    let permits = Arc::new(locker.semaphore("api", 3)?);
    let mut tasks = Vec::new();
    for number in 0..10 {
        let permits = Arc::clone(&permits);
        tasks.push(tokio::spawn(async move {
            let permit = permits.acquire().await?;
            println!("{number} calls");
            permit.release().await
        }));
    }
    for task in tasks {
        task.await.expect("no task panics")?;
    }
    Ok(())
}
