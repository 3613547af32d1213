use lockfast::Locker;

#[tokio::main]
pub(crate) async fn main() -> lockfast::Result<()> {
    let locker = Locker::connect("memory:").await?;
    let guard = locker.multi(["account/1", "account/2"])?.acquire().await?;
    for token in guard.tokens() {
        println!("{}: {}", token.lock, token.fence);
    }
    guard.check()?;
    guard.release().await?;
    Ok(())
}
