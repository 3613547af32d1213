//! The ZooKeeper servers of the fault kit are set up, broken and ended as asked.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a panic is how a test fails"
)]

use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use lockfast_faults::certificate::{Authority, Flaw};
use lockfast_faults::program;
use lockfast_faults::server::Server as _;
use lockfast_faults::wait::wait_until;
use lockfast_faults::zookeeper::{
    Access, Ensemble, Kind, MEMBERS, Session, Setup, ZooKeeper, codes,
};

const BOUND: Duration = Duration::from_secs(60);

#[test]
fn a_server_keeps_what_was_stored_when_it_is_killed() {
    let mut server = Setup::new().durable().start();
    assert_eq!(server.mode().as_deref(), Some("standalone"));
    server.session().create("/kept", b"7");
    server.kill();
    assert!(server.mode().is_none());
    server.restart();
    assert_eq!(server.session().try_read("/kept").unwrap(), b"7");
    server.shut_down();
    server.restart();
    assert_eq!(server.session().try_read("/kept").unwrap(), b"7");
    server.restart_empty();
    assert_eq!(server.session().try_read("/kept"), Err(codes::NO_NODE));
    let address = server.address();
    server.pause();
    drop(server);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn sessions_nodes_and_access_lists() {
    let server = ZooKeeper::start();
    let mut session = server.session();
    for (asked, granted) in [(1, 1_000), (3_000, 3_000), (99_000, 10_000)] {
        let other = Session::open(server.address(), Duration::from_millis(asked));
        assert_eq!(other.timeout(), Duration::from_millis(granted));
    }
    session.create("/queue", b"");
    let mut other = server.session();
    let kind = Kind::EphemeralSequential;
    let first = other.try_create("/queue/a-", b"x", kind, &[]).unwrap();
    let second = other.try_create("/queue/a-", b"y", kind, &[]).unwrap();
    assert_eq!([first.as_str(), &second], ["/queue/a-0000000000", "/queue/a-0000000001"]);
    let (one, two) = (session.stat(&first).unwrap(), session.stat(&second).unwrap());
    assert!(one.czxid < two.czxid && one.owner == other.id());
    assert_eq!(session.stat("/queue").unwrap().children, 2);
    drop(other);
    assert_eq!(session.children("/queue"), Vec::<String>::new(), "they go with their session");
    let mine = Access { rights: "cdrwa", scheme: "auth", id: "" };
    let mut owner = server.session();
    owner.introduce("app:word");
    owner.try_create("/mine", b"", Kind::Persistent, &[mine]).unwrap();
    assert_eq!(session.try_create("/mine/x", b"", Kind::Persistent, &[]), Err(codes::NO_AUTH));
    session.introduce("app:word");
    session.try_create("/mine/x", b"", Kind::Persistent, &[]).unwrap();
    session.delete_all("/mine");
    assert!(session.stat("/mine").is_none());
    assert!(server.count("zk_znode_count") > 0);
}

/// What OpenSSL makes of a server.
fn handshake(address: SocketAddr, authority: &Authority) -> bool {
    let mut command = Command::new(program::find("openssl"));
    command.args(["s_client", "-verify_return_error", "-connect", &address.to_string()]);
    command.arg("-CAfile").arg(authority.certificate()).stdin(Stdio::null());
    program::try_run(&mut command).0
}

#[test]
fn a_server_encrypts() {
    let authority = Authority::new();
    let certificate = authority.sign_server(Flaw::None);
    let server = Setup::new().tls(&authority, certificate, false).start();
    assert!(handshake(server.secure_address(), &authority));
    assert!(!handshake(server.secure_address(), &Authority::new()));
    server.session().create("/plain", b"");
}

#[test]
fn an_ensemble_outlives_its_leader_and_a_member_that_is_cut_off() {
    let mut ensemble = Ensemble::start();
    assert_eq!(ensemble.followers().len(), MEMBERS - 1);
    // The one with the greatest number leads whenever it may vote and has all that the others have.
    let last = MEMBERS - 1;
    let first = ensemble.leader().unwrap();
    ensemble.session(first).create("/kept", b"1");
    if first != last {
        ensemble.members[first].kill();
        assert_eq!(ensemble.wait_for_leader(&[first]), last);
        ensemble.restart(first);
        ensemble.wait_until_all_serve();
    }
    // Neither votes nor changes go round a cut.
    ensemble.cut_off(last);
    let second = ensemble.wait_for_leader(&[last]);
    ensemble.session(second).create("/more", b"2");
    wait_until("who is cut off serves nobody", BOUND, || ensemble.members[last].mode().is_none());
    ensemble.join(last);
    ensemble.wait_until_all_serve();
    assert_eq!(ensemble.leader(), Some(second));
    let mut session = ensemble.session(last);
    session.sync();
    assert_eq!(session.try_read("/more").unwrap(), b"2");

    ensemble.members[second].kill();
    let third = ensemble.wait_for_leader(&[second]);
    assert_eq!(ensemble.session(third).try_read("/kept").unwrap(), b"1");
    ensemble.restart(second);
    ensemble.wait_until_all_serve();
    assert_eq!(ensemble.leader(), Some(third));

    // Without a majority nobody serves.
    let other = (0..MEMBERS).find(|place| ![second, third].contains(place)).unwrap();
    ensemble.members[second].pause();
    ensemble.members[other].shut_down();
    wait_until("nobody serves", BOUND, || ensemble.members[third].mode().is_none());
    ensemble.members[second].resume();
    ensemble.restart(other);
    ensemble.wait_until_all_serve();
}
