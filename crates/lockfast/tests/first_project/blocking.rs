use lockfast::blocking::Locker;

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let fence = tokio::task::spawn_blocking(|| {
        let locker = Locker::connect("memory:")?;
        let guard = locker.mutex("job")?.acquire()?;
        let fence = guard.check()?.fence;
        guard.release()?;
        locker.shutdown()?;
        Ok::<_, lockfast::Error>(fence)
    })
    .await??;
    println!("{fence}");
    Ok(())
}
