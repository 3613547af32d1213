//! The way to the server fails, or the server does not answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockfast::{ErrorKind, Released};
use lockfast_conformance::way::{NAME, Succession, TTL, Way};
use lockfast_faults::proxy::Link;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::kit::{
    Mysql, TIME_MAX, bounded, connect_both, connections, eventually, hold, name, prepare,
    start_server, ttl, url_at,
};

/// A server, and a way to it that fails.
struct Net {
    server: Mysql,
    way: Way,
}

impl Net {
    async fn start() -> Self {
        let server = start_server();
        prepare(&server).await;
        let way = Way::start(server.address(), url_at, lockfast_backend_mysql::connect).await;
        Self { server, way }
    }

    /// Every lock with its last fence and who has it.
    fn locks(&self) -> String {
        self.server.sql("SELECT name, fence, HEX(holder) FROM lockfast_locks")
    }

    /// Who has the lock.
    fn holder(&self) -> String {
        let query = format!("SELECT HEX(holder) FROM lockfast_locks WHERE name = '{NAME}'");
        self.server.sql(&query).trim().to_owned()
    }
}

/// P1, P3: a cut that ends in time costs nothing.
/// The user sees: `Jeopardy`, then `Held`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_short_cut() {
    let net = Net::start().await;
    for cut in [Link::Close, Link::Reset] {
        net.way.outlive(cut).await;
        assert_eq!(net.holder(), "NULL");
    }
}

/// P2, P3, P9: a cut that does not end: the holder is told by its deadline, and only after that
/// the next gets in, within a second.
/// The user sees: the loss `Expired` with what the renewals met; the release is `AlreadyLost`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cut_for_good() {
    let net = Net::start().await;
    let Succession { lost, next, .. } = net.way.lose().await;
    assert!(matches!(lost.release().await.unwrap(), Released::AlreadyLost(_)));
    assert!(next.check().is_ok());
}

/// P3: connections that are open at both ends but carry nothing are given up in time, and the
/// lease goes on over a new one.
/// The user sees: nothing, or `Jeopardy` for a while.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_link() {
    let net = Net::start().await;
    net.way.outlive_silence().await;
    assert_eq!(net.holder(), "NULL");
}

/// P10: a waiter, too, finds out although nothing tells it.
/// The user sees: nothing but the delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_half_open_link_while_waiting() {
    Net::start().await.way.wait_in_silence().await;
}

/// P5 (B76): waiters that give up while the way is cut for longer than their leases last are out of
/// the line when it is there again.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_give_up_during_a_cut() {
    Net::start().await.way.give_up_during_a_cut().await;
}

/// P7, P8 (B130): a lock is taken away and the reply is lost: the next holder keeps it.
/// The user sees: `Unreachable`, and the lock as it is then by `show`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_to_a_revocation_is_lost() {
    Net::start().await.way.revoke_without_a_reply().await;
}

/// P5, P7: an acquisition whose reply was lost is repeated and has the lock once; nothing is left
/// after its release.
/// The user sees: nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_reply() {
    let net = Net::start().await;
    net.way.repeat_a_lost_grant().await;
    assert_eq!(net.holder(), "NULL");
}

/// P5, P7: an acquisition that arrives after its release does not take effect, because its
/// connection was given up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_request() {
    let net = Net::start().await;
    // Statements are prepared when they are first used, and that must be answered.
    hold(&net.way.far, NAME, ttl(TTL)).await.release().await.unwrap();
    // The first connections only: whatever is sent over them is delivered much later.
    net.way.proxy.set_open(Link::HoldRequests);
    let mutex = net.way.far.mutex(NAME).unwrap().with_options(ttl(TTL).retries(0));
    let taking = tokio::time::timeout(Duration::from_millis(300), mutex.acquire());
    assert!(taking.await.is_err(), "it was granted over a held link");
    // The engine undoes it over a new connection.
    eventually("a new connection", TTL * 3, async || net.way.proxy.accepted() >= 3).await;
    // Asked after the release, so answered after it.
    eventually("it is undone", TTL * 3, async || net.way.far.inspect(mutex.name()).await.is_ok())
        .await;
    let (ended, before) = (net.way.proxy.ended(), net.locks());
    net.way.proxy.set_open(Link::Pass);
    // The server has done with what was late when it has closed that connection.
    eventually("what was late has arrived", TTL * 3, async || net.way.proxy.ended() > ended).await;
    assert_eq!(net.locks(), before);
    let guard = hold(&net.way.near, NAME, ttl(TTL)).await;
    assert!(guard.check().is_ok());
}

/// B45, P6, P7: a release whose reply was lost is repeated and finds nothing: that is no loss, because
/// the first may have been made.
/// The user sees: `Unknown`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_to_a_release_is_lost() {
    let net = Net::start().await;
    // Statements are prepared when they are first used, and that must be answered.
    hold(&net.way.far, NAME, ttl(TTL)).await.release().await.unwrap();
    let guard = hold(&net.way.far, NAME, ttl(TTL * 8)).await;
    net.way.proxy.set_open(Link::SwallowReplies);
    let releasing = tokio::spawn(guard.release());
    eventually("it is released", TTL * 3, async || net.holder() == "NULL").await;
    net.way.proxy.set_open(Link::Close);
    let released = bounded(releasing).await.unwrap().unwrap();
    assert!(matches!(released, Released::Unknown { .. }), "{released:?}");
    hold(&net.way.near, NAME, ttl(TTL)).await.release().await.unwrap();
}

/// P7, P15: a downgrade that was done but whose reply was lost is repeated, and known.
/// The user sees: nothing but the delay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reply_to_a_downgrade_is_lost() {
    let net = Net::start().await;
    net.way.downgrade_without_a_reply().await;
    assert_eq!(net.holder(), "NULL");
}

/// Passes connections on to a server. When `mutes` is set, the next one hears nothing any more from
/// where it looks for the named lock of the one before it.
async fn pass_on(listener: TcpListener, server: SocketAddr, mutes: Arc<AtomicBool>) {
    while let Ok((client, _)) = listener.accept().await {
        let server = TcpStream::connect(server).await.unwrap();
        tokio::spawn(pass_one_on(client, server, mutes.swap(false, Ordering::SeqCst)));
    }
}

async fn pass_one_on(mut client: TcpStream, mut server: TcpStream, mutes: bool) {
    let (mut request, mut reply) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut is_mute = false;
    loop {
        tokio::select! {
            read = client.read(&mut request) => {
                let Ok(length @ 1..) = read else { return };
                let said = &request[..length];
                is_mute |= mutes && said.windows(12).any(|part| part == b"IS_USED_LOCK");
                server.write_all(said).await.unwrap();
            }
            read = server.read(&mut reply) => {
                let Ok(length @ 1..) = read else { return };
                if !is_mute && client.write_all(&reply[..length]).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// B162, P10: a connection falls silent while it is being introduced: it is given up in time, and the
/// next one serves. So is the one on which we are woken.
/// The user sees: `Unreachable` for what was asked meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_during_an_introduction() {
    let server = start_server();
    prepare(&server).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = url_at(listener.local_addr().unwrap());
    let mutes = Arc::new(AtomicBool::new(false));
    let passing = tokio::spawn(pass_on(listener, server.address(), Arc::clone(&mutes)));
    let (_locker, backend) = connect_both(&url).await;
    eventually("it listens", TIME_MAX, async || connections(&server).1 > 0).await;
    let mut ended = 0;
    let which: [fn((u64, u64)) -> u64; 2] = [|(commands, _)| commands, |(_, listening)| listening];
    for connection in which {
        mutes.store(true, Ordering::SeqCst);
        // The client may have opened another since it was looked for.
        eventually("it is ended", TIME_MAX, async || {
            ended = connection(connections(&server));
            server.try_sql(&format!("KILL CONNECTION {ended}")).0
        })
        .await;
        eventually("it serves", TIME_MAX, async || match bounded(backend.read(name("a"))).await {
            Ok(_) => !mutes.load(Ordering::SeqCst),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unreachable, "{error}");
                false
            }
        })
        .await;
    }
    eventually("it listens again", TIME_MAX, async || {
        let now = connections(&server).1;
        now > 0 && now != ended
    })
    .await;
    passing.abort();
}
