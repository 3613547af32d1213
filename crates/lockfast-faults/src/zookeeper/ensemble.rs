//! Three servers that decide together and reach each other through proxies, so that one can be cut
//! off from the others while clients still reach it.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use lockfast_core::Moment;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Runtime};

use super::server::{Setup, ZooKeeper};
use super::session::Session;
use crate::port::Port;
use crate::proxy::{Link, Proxy};
use crate::server::Server as _;
use crate::wait::wait_until;

/// How many servers there are.
pub const MEMBERS: usize = 3;

/// What takes servers to agree on who leads, also on a busy machine.
const SETTLE_TIME_MAX: Duration = Duration::from_secs(60);

/// Members that all serve have connections for votes within this, or do without them.
const VOTE_TIME_MAX: Duration = Duration::from_secs(5);

/// Between two looks at these connections.
const VOTE_PROBE_INTERVAL: Duration = Duration::from_millis(20);

/// Each server has a port for followers and one for votes.
const PURPOSES: usize = 2;

/// A running ensemble. Dropping it kills all and removes their directories.
#[derive(Debug)]
pub struct Ensemble {
    /// The servers.
    pub members: [ZooKeeper; MEMBERS],
    net: Net,
    _ports: [[Port; PURPOSES]; MEMBERS],
}

impl Ensemble {
    /// Three servers as [`ZooKeeper::start`] has one.
    pub fn start() -> Self {
        Self::start_of(Setup::new)
    }

    /// Three servers of this kind; waits until they serve.
    pub fn start_of(setup: impl Fn() -> Setup) -> Self {
        let mut ensemble = Self::prepare(setup);
        wait_until("all vote through the proxies", SETTLE_TIME_MAX, || ensemble.try_start());
        ensemble
    }

    /// Three servers of this kind of which only the first runs, and decides alone: see
    /// [`Self::grow`].
    pub fn start_alone(setup: impl Fn() -> Setup) -> Self {
        let mut ensemble = Self::prepare(setup);
        ensemble.members[0].set_member(None);
        ensemble.members[0].launch();
        ensemble
    }

    /// Starts the server that was alone again as one of three, which lets it lead: it knows more than
    /// the others.
    pub fn grow(&mut self) {
        self.members[0].set_member(Some(number_of(0)));
        self.restart(0);
        self.members[1].spawn();
        // These two are a majority; with the third, they would be one without the first.
        self.members[0].wait_until_it_serves();
        self.members[2].spawn();
        self.wait_until_all_serve();
    }

    fn prepare(setup: impl Fn() -> Setup) -> Self {
        let ports = std::array::from_fn(|_| [Port::take(), Port::take()]);
        let net = Net::new(&ports);
        let members = std::array::from_fn(|place| {
            let lines = net.lines_for(place, &ports);
            let setup = lines.into_iter().fold(setup(), Setup::line);
            setup.member(number_of(place)).prepare()
        });
        Self { members, net, _ports: ports }
    }

    /// Starts all members, again if they run. False when two of them serve without a connection for
    /// votes through a proxy, which happens now and then.
    fn try_start(&mut self) -> bool {
        self.members.iter_mut().for_each(ZooKeeper::kill);
        self.members.iter_mut().for_each(ZooKeeper::spawn);
        self.wait_until_all_serve();
        let start = Moment::now();
        while !self.net.carries_votes() {
            if Moment::now().since(start) > VOTE_TIME_MAX {
                return false;
            }
            std::thread::sleep(VOTE_PROBE_INTERVAL);
        }
        true
    }

    /// The URL by which Lockfast connects, of all of them.
    pub fn url(&self) -> String {
        self.url_of(&self.members.each_ref().map(ZooKeeper::address))
    }

    /// The URL with other addresses.
    pub fn url_of(&self, addresses: &[SocketAddr]) -> String {
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        format!("zookeeper://{}", addresses.join(","))
    }

    /// Who leads, if anybody does.
    pub fn leader(&self) -> Option<usize> {
        let is_leading = |member: &ZooKeeper| member.mode().as_deref() == Some("leader");
        self.members.iter().position(|member| member.is_running() && is_leading(member))
    }

    /// Waits until somebody leads who is none of these, and tells who.
    ///
    /// # Panics
    /// When nobody does in time.
    pub fn wait_for_leader(&self, but: &[usize]) -> usize {
        let mut found = None;
        wait_until("somebody leads", SETTLE_TIME_MAX, || {
            let stopped = |place: &usize| but.contains(place);
            found = (0..MEMBERS)
                .filter(|place| !stopped(place))
                .find(|place| self.members[*place].mode().as_deref() == Some("leader"));
            found.is_some()
        });
        found.expect("just found")
    }

    /// Those who follow somebody.
    pub fn followers(&self) -> Vec<usize> {
        let follows = |place: &usize| self.members[*place].mode().as_deref() == Some("follower");
        (0..MEMBERS).filter(follows).collect()
    }

    /// A session with one of them that is independent of what is tested.
    pub fn session(&self, place: usize) -> Session {
        self.members[place].session()
    }

    /// Does this to all that one and the others send each other; clients still reach it.
    pub fn set_links_of(&self, place: usize, link: Link) {
        for proxy in self.net.links_of(place) {
            proxy.set(link);
        }
    }

    /// Cuts one off from the others: nothing that they send arrives, and nobody is told.
    pub fn cut_off(&self, place: usize) {
        self.set_links_of(place, Link::HalfOpen);
    }

    /// Joins one to the others again.
    pub fn join(&self, place: usize) {
        for proxy in self.net.links_of(place) {
            // What has a hole cannot go on.
            proxy.reset_open();
            proxy.set(Link::Pass);
        }
    }

    /// Starts one again with what it had stored, after killing it if it still runs. It does not
    /// answer yet: that may need others.
    pub fn restart(&mut self, place: usize) {
        self.members[place].kill();
        self.members[place].spawn();
    }

    /// Waits until all serve: one leads, the others follow.
    ///
    /// # Panics
    /// When one does not in time, with the last that it said.
    pub fn wait_until_all_serve(&mut self) {
        for member in &mut self.members {
            member.wait_until_it_serves();
        }
    }
}

/// The number by which the members know one.
fn number_of(place: usize) -> u8 {
    u8::try_from(place).unwrap() + 1
}

fn address_of(port: &Port) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port.number()))
}

/// The proxies from each member to each other.
#[derive(Debug)]
struct Net {
    /// By who sends, who receives and the purpose; nobody sends to itself.
    proxies: [[Option<[Proxy; PURPOSES]>; MEMBERS]; MEMBERS],
    // Dropped after what runs on it.
    _runtime: Background,
}

impl Net {
    fn new(ports: &[[Port; PURPOSES]; MEMBERS]) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let within = runtime.enter();
        // All have their addresses before any of them is told another's.
        let mut listeners: [[[Option<TcpListener>; PURPOSES]; MEMBERS]; MEMBERS] =
            std::array::from_fn(|_| std::array::from_fn(|_| [Some(listen()), Some(listen())]));
        let addresses = listeners.each_ref().map(|of| {
            of.each_ref()
                .map(|to| to.each_ref().map(|one| one.as_ref().unwrap().local_addr().unwrap()))
        });
        let proxies = std::array::from_fn(|from| {
            std::array::from_fn(|to| {
                let each = |purpose: usize| {
                    // A member that is called tells the other where it is to be called back.
                    let (own, seen) =
                        (address_of(&ports[from][purpose]), addresses[to][from][purpose]);
                    let listener = listeners[from][to][purpose].take().unwrap();
                    let server = address_of(&ports[to][purpose]);
                    Proxy::start_exchanging(listener, server, (own, seen)).unwrap()
                };
                (from != to).then(|| [0, 1].map(each))
            })
        });
        drop(within);
        Self { proxies, _runtime: Background(Some(runtime)) }
    }

    /// All members, as one of them reaches them.
    fn lines_for(&self, from: usize, ports: &[[Port; PURPOSES]; MEMBERS]) -> Vec<String> {
        let line = |to: usize| {
            let [follow, vote] = match &self.proxies[from][to] {
                Some(proxies) => proxies.each_ref().map(|proxy| proxy.address().port()),
                None => ports[to].each_ref().map(Port::number),
            };
            format!("server.{}=127.0.0.1:{follow}:{vote}", number_of(to))
        };
        (0..MEMBERS).map(line).collect()
    }

    /// Whether every two members have a connection for votes through a proxy, so that none goes
    /// round it: one is enough for both.
    fn carries_votes(&self) -> bool {
        let votes = |from: usize, to: usize| {
            self.proxies[from][to].as_ref().map_or(1, |[_, votes]| votes.open())
        };
        let between = |from: usize, to: usize| votes(from, to) + votes(to, from);
        (0..MEMBERS).all(|from| (0..MEMBERS).all(|to| between(from, to) > 0))
    }

    /// All from and to one.
    fn links_of(&self, place: usize) -> impl Iterator<Item = &Proxy> {
        let to = self.proxies.iter().map(move |of| &of[place]);
        self.proxies[place].iter().chain(to).flatten().flatten()
    }
}

fn listen() -> TcpListener {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    TcpListener::from_std(listener).unwrap()
}

/// A runtime that can be dropped anywhere.
#[derive(Debug)]
struct Background(Option<Runtime>);

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
