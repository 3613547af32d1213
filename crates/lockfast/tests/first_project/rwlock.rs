use lockfast::Locker;

#[tokio::main]
pub(crate) async fn main() -> lockfast::Result<()> {
    let locker = Locker::connect("memory:").await?;
    let catalog = locker.rwlock("catalog")?;
    let one = catalog.read().await?;
    let two = catalog.read().await?;
    println!("readers {} and {}", one.fence(), two.fence());
    one.release().await?;
    two.release().await?;
    let writer = catalog.write().await?;
    println!("writer {}", writer.fence());
    // A writer can become a reader.
    catalog.downgrade(&writer).await?;
    println!("reader {}", writer.fence());
    writer.release().await?;
    Ok(())
}
