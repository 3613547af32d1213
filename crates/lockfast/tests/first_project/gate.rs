use lockfast::{Locker, fence::Gate};

#[tokio::main]
pub(crate) async fn main() -> lockfast::Result<()> {
    let locker = Locker::connect("memory:").await?;
    let account = Gate::new("account/7", 100)?;
    let mutex = locker.mutex("account/7")?;

    let guard = mutex.acquire().await?;
    let late = guard.token();
    let balance = *account.open(&late)?;
    guard.release().await?;

    let guard = mutex.acquire().await?;
    *account.open(&guard.token())? += 1;
    match account.check(&late) {
        Ok(mut value) => *value = balance + 10,
        Err(error) => println!("refused: {error}"),
    }
    guard.release().await?;
    Ok(())
}
