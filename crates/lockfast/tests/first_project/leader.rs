use lockfast::{LeaderEvent, Locker};

#[tokio::main]
pub(crate) async fn main() -> lockfast::Result<()> {
    let locker = Locker::connect("memory:").await?;
    let mut campaign = locker.leader("scheduler")?.campaign()?;
    loop {
        match campaign.next().await? {
            LeaderEvent::Elected { term, lease } => {
                println!("term {term}: {:?} left", lease.remaining());
                lease.check()?;
                break;
            }
            LeaderEvent::Deposed { term, why } => println!("term {term} is over: {why}"),
            other => println!("{other:?}"),
        }
    }
    campaign.resign().await?;
    Ok(())
}
