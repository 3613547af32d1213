//! A TCP proxy on loopback that does to a connection what networks do to it.
//!
//! Every connection through it has a mode that can change while it is open. Bytes that a mode
//! lets vanish are gone, as on a real network; bytes that it holds arrive later, also when the
//! side that sent them has closed.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use lockfast_core::Moment;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What happens to the bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// They pass.
    Pass,
    /// The connection is closed, and so is every new one.
    Close,
    /// The connection is reset (RST), and so is every new one.
    Reset,
    /// Nobody reads them until the mode changes; nothing is lost.
    Stall,
    /// Both sides stay open, and everything that is sent vanishes.
    HalfOpen,
    /// They pass, each this much later.
    Delay(Duration),
    /// Requests pass, replies vanish.
    SwallowReplies,
    /// Replies pass, requests are kept and delivered when the mode changes.
    HoldRequests,
}

/// How long a server that others reach through a proxy may take until it listens.
const PATIENCE: Duration = Duration::from_secs(2);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

/// A proxy in front of one server. Dropping it cuts every connection.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    listener: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    exchange: Option<Exchange>,
    links: Mutex<Links>,
    accepted: AtomicUsize,
}

/// Bytes of requests in the place of which others arrive, as many.
#[derive(Clone, Debug)]
struct Exchange {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Exchange {
    fn apply(&self, chunk: &mut [u8]) {
        let length = self.from.len();
        let mut at = 0;
        while at + length <= chunk.len() {
            if chunk[at..at + length] == self.from {
                chunk[at..at + length].copy_from_slice(&self.to);
            }
            at += 1;
        }
    }
}

#[derive(Debug)]
struct Links {
    next: Link,
    open: Vec<watch::Sender<Link>>,
}

impl Links {
    fn count_open(&mut self) -> usize {
        self.open.retain(|open| !open.is_closed());
        self.open.len()
    }

    fn set_open(&mut self, link: Link) {
        self.open.retain(|open| !open.is_closed());
        for open in &self.open {
            open.send_replace(link);
        }
    }
}

impl Proxy {
    /// Listens on a free port of loopback and forwards to `server`.
    ///
    /// # Errors
    /// When no port can be had.
    ///
    /// # Cancel safety
    /// Safe: nothing is open before it returns.
    pub async fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        Self::forward(listener, server, None)
    }

    /// The same on a listener that is there already, where clients who tell the server their own
    /// address seem to be at another. Both addresses have as many letters, and whoever says one says
    /// it in one piece.
    ///
    /// # Errors
    /// When the listener has no address.
    ///
    /// # Panics
    /// Outside of a runtime, and when one address is longer than the other.
    pub fn start_exchanging(
        listener: TcpListener,
        server: SocketAddr,
        (from, to): (SocketAddr, SocketAddr),
    ) -> io::Result<Self> {
        let (from, to) = (from.to_string().into_bytes(), to.to_string().into_bytes());
        assert_eq!(from.len(), to.len(), "both addresses have as many letters");
        Self::forward(listener, server, Some(Exchange { from, to }))
    }

    fn forward(
        listener: TcpListener,
        server: SocketAddr,
        exchange: Option<Exchange>,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            server,
            exchange,
            links: Mutex::new(Links { next: Link::Pass, open: Vec::new() }),
            accepted: AtomicUsize::new(0),
        });
        let listener = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, listener })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections were accepted so far.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// How many connections are open. One whose client has closed it is until everything that was
    /// held has arrived and the server has closed it too.
    pub fn open(&self) -> usize {
        self.shared.links.lock().expect("no panic").count_open()
    }

    /// How many connections have ended, that is, are not open any more.
    pub fn ended(&self) -> usize {
        // Nobody is accepted while the links are looked at.
        let mut links = self.shared.links.lock().expect("no panic");
        self.accepted() - links.count_open()
    }

    /// Sets the mode of all connections, open and to come, in one step: whoever connects again
    /// because its connection is cut must not get through in between.
    pub fn set(&self, link: Link) {
        let mut links = self.shared.links.lock().expect("no panic");
        links.next = link;
        links.set_open(link);
    }

    /// Sets the mode of the connections that are open now; those to come are not touched, so a
    /// client can connect again and overtake what is held or stalled.
    pub fn set_open(&self, link: Link) {
        self.shared.links.lock().expect("no panic").set_open(link);
    }

    /// Resets the connections that are open now, whatever mode is set afterwards. What lost bytes
    /// must end so: no real network gives the rest of a stream that has a hole.
    pub fn reset_open(&self) {
        let mut links = self.shared.links.lock().expect("no panic");
        for open in links.open.drain(..) {
            open.send_replace(Link::Reset);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
        self.set(Link::Close);
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let mode = {
            let mut links = shared.links.lock().expect("no panic");
            shared.accepted.fetch_add(1, Ordering::SeqCst);
            let (sender, mode) = watch::channel(links.next);
            links.open.push(sender);
            mode
        };
        tokio::spawn(carry(client, Arc::clone(&shared), mode));
    }
}

/// Connects to the server, which may be about to listen.
async fn connect(server: SocketAddr, patience: Duration) -> Option<TcpStream> {
    let start = Moment::now();
    loop {
        match TcpStream::connect(server).await {
            Ok(stream) => return Some(stream),
            Err(_) if Moment::now().since(start) < patience => {
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            Err(_) => return None,
        }
    }
}

/// Carries one connection until both sides have closed or it is cut.
async fn carry(mut client: TcpStream, shared: Arc<Shared>, mut mode: watch::Receiver<Link>) {
    if let Some(cut) = cut_of(*mode.borrow()) {
        return end(&[&client], cut);
    }
    // Servers that reach each other ask again when they are refused, and not when they are cut off.
    let patience = if shared.exchange.is_some() { PATIENCE } else { Duration::ZERO };
    let Some(mut server) = connect(shared.server, patience).await else {
        return end(&[&client], Cut::Close);
    };
    // Requests are small and latency is what is tested.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let cut = {
        let (client_reads, client_writes) = client.split();
        let (server_reads, server_writes) = server.split();
        let exchange = shared.exchange.as_ref();
        let requests =
            pump(client_reads, server_writes, mode.clone(), Direction::Requests, exchange);
        let replies = pump(server_reads, client_writes, mode.clone(), Direction::Replies, None);
        tokio::select! {
            ((), ()) = async { tokio::join!(requests, replies) } => Cut::Close,
            cut = wait_for_cut(&mut mode) => cut,
        }
    };
    end(&[&client, &server], cut);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    Close,
    Reset,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Requests,
    Replies,
}

fn cut_of(link: Link) -> Option<Cut> {
    match link {
        Link::Close => Some(Cut::Close),
        Link::Reset => Some(Cut::Reset),
        _ => None,
    }
}

async fn wait_for_cut(mode: &mut watch::Receiver<Link>) -> Cut {
    match mode.wait_for(|link| cut_of(*link).is_some()).await {
        Ok(link) => cut_of(*link).unwrap_or(Cut::Close),
        // The proxy is gone.
        Err(_) => Cut::Close,
    }
}

fn end(streams: &[&TcpStream], cut: Cut) {
    if cut == Cut::Reset {
        for stream in streams {
            // Closing with no time to linger sends RST; if it cannot be set, it is closed.
            let linger = Some(Duration::ZERO);
            let _ = rustix::net::sockopt::set_socket_linger(stream.as_fd(), linger);
        }
    }
}

/// Carries one direction. Ends when its source has closed and everything has arrived.
async fn pump(
    mut source: ReadHalf<'_>,
    mut sink: WriteHalf<'_>,
    mut mode: watch::Receiver<Link>,
    direction: Direction,
    exchange: Option<&Exchange>,
) {
    let mut under_way: VecDeque<(Moment, Vec<u8>)> = VecDeque::new();
    let mut chunk = vec![0; 16 * 1024];
    let mut ended = false;
    loop {
        let link = *mode.borrow_and_update();
        let holds = link == Link::HoldRequests && direction == Direction::Requests;
        if ended && under_way.is_empty() {
            let _ = sink.shutdown().await;
            return;
        }
        let due = under_way.front().map(|(due, _)| *due).filter(|_| !holds);
        tokio::select! {
            biased;
            changed = mode.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            () = sleep_until(due), if due.is_some() => {
                if let Some((_, bytes)) = under_way.pop_front()
                    && sink.write_all(&bytes).await.is_err()
                {
                    return;
                }
            }
            read = source.read(&mut chunk), if !ended && link != Link::Stall => {
                match read {
                    Ok(0) | Err(_) => ended = true,
                    Ok(length) => {
                        // The mode may have changed while nothing came.
                        let link = *mode.borrow();
                        if let Some(exchange) = exchange {
                            exchange.apply(&mut chunk[..length]);
                        }
                        if let Some(delay) = delay_of(link, direction) {
                            under_way.push_back((Moment::now() + delay, chunk[..length].to_vec()));
                        }
                    }
                }
            }
        }
    }
}

/// How much later bytes are delivered; `None` when they vanish.
fn delay_of(link: Link, direction: Direction) -> Option<Duration> {
    match link {
        Link::HalfOpen => None,
        Link::SwallowReplies if direction == Direction::Replies => None,
        Link::Delay(delay) => Some(delay),
        _ => Some(Duration::ZERO),
    }
}

async fn sleep_until(due: Option<Moment>) {
    let left = due.map(|due| due.remaining(Moment::now()));
    match left {
        Some(Duration::ZERO) => {}
        Some(left) => tokio::time::sleep(left).await,
        None => std::future::pending().await,
    }
}
