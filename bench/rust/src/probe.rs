//! The least that passes a lock on: one script that takes it or joins a queue, and one that gives
//! it to the next in the queue and tells so by a push. No fence, no deadline, nothing for waiters
//! that died: a limit to compare with, not a lock to use.

use anyhow::{Context as _, Result};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::contender::TTL;

const TAKE: &str = "
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
  return 1
end
redis.call('RPUSH', KEYS[2], ARGV[1])
return 0";

const PASS_ON: &str = "
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return 0
end
local heir = redis.call('LPOP', KEYS[2])
if heir then
  redis.call('SET', KEYS[1], heir, 'PX', ARGV[2])
  redis.call('PUBLISH', heir, '')
else
  redis.call('DEL', KEYS[1])
end
return 1";

/// A connection that is told when its turn has come.
pub(crate) struct Line {
    connection: MultiplexedConnection,
    pushes: std::sync::Mutex<Option<UnboundedReceiver<PushInfo>>>,
    id: String,
    take: String,
    pass_on: String,
}

impl Line {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let (sender, mut pushes) = unbounded_channel();
        let config = AsyncConnectionConfig::new().set_push_sender(sender);
        let client = Client::open(format!("{url}?protocol=resp3"))?;
        let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
        let number: i64 = redis::cmd("CLIENT").arg("ID").query_async(&mut connection).await?;
        let id = format!("probe-holder-{number:011}");
        let load = |script| redis::cmd("SCRIPT").arg("LOAD").arg(script).to_owned();
        let take = load(TAKE).query_async(&mut connection).await?;
        let pass_on = load(PASS_ON).query_async(&mut connection).await?;
        connection.subscribe(&id).await?;
        // The confirmation of the subscription.
        pushes.recv().await.context("the connection ended")?;
        Ok(Self { connection, pushes: Some(pushes).into(), id, take, pass_on })
    }
}

/// One who wants a lock.
pub(crate) struct Probe {
    connection: MultiplexedConnection,
    pushes: Option<UnboundedReceiver<PushInfo>>,
    id: String,
    take: String,
    pass_on: String,
    name: String,
    queue: String,
}

impl Probe {
    /// The first one made from a line hears its pushes.
    pub(crate) fn new(line: &Line, name: String) -> Self {
        Self {
            connection: line.connection.clone(),
            pushes: line.pushes.lock().ok().and_then(|mut pushes| pushes.take()),
            id: line.id.clone(),
            take: line.take.clone(),
            pass_on: line.pass_on.clone(),
            queue: format!("{name}:queue"),
            name,
        }
    }

    pub(crate) async fn acquire(&mut self) -> Result<bool> {
        let script = self.take.clone();
        if self.call(&script).await? == 1 {
            return Ok(true);
        }
        let pushes = self.pushes.as_mut().context("another one hears the pushes")?;
        while pushes.recv().await.context("the connection ended")?.kind != PushKind::Message {}
        Ok(true)
    }

    pub(crate) async fn release(&mut self) -> Result<()> {
        let script = self.pass_on.clone();
        self.call(&script).await?;
        Ok(())
    }

    async fn call(&mut self, script: &str) -> Result<i64> {
        let mut command = redis::cmd("EVALSHA");
        command.arg(script).arg(2).arg(&self.name).arg(&self.queue).arg(&self.id);
        command.arg(TTL.as_millis() as u64);
        Ok(command.query_async(&mut self.connection).await?)
    }
}
