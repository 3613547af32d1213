//! The master of a service moves; sentinels know where it is. They are asked in turn before each
//! connection, and one of them tells when the master changes. What they say can be out of date,
//! so a server must say itself that it is a master.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use lockfast_core::error::quote;
use lockfast_core::{ErrorKind, Moment, jitter};

use super::connection::{Arrival, Connection};
use super::dial::{Dialer, Login};
use super::{Failure, Pipeline, Reply, failure};
use crate::config::Endpoint;
use crate::topology::Service;

/// How long one sentinel may take, so that one that is silent does not keep us from the others.
const LIMIT: Duration = Duration::from_secs(1);
/// A failover takes a moment, after which the sentinels name another master.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How often a sentinel is asked although it would tell by itself.
const POLL: Duration = Duration::from_secs(10);
const SWITCH_CHANNEL: &str = "+switch-master";

/// Why a sentinel was of no help.
enum Trouble {
    /// It did not answer.
    Silent(Failure),
    /// It does not know the service.
    Unknown,
    /// What it calls the master is a replica.
    Replica(Endpoint),
    /// What it calls the master does not serve us.
    Master(Failure),
}

/// Connects to the master. While only a replica is found a failover is probably under way, which
/// is worth waiting for.
pub(crate) async fn dial_master(dialer: &Dialer, service: &Service) -> Result<Connection, Failure> {
    let end = Moment::now() + dialer.config().request_timeout;
    loop {
        match search(dialer, service).await {
            Err(failure)
                if failure.kind() == ErrorKind::WrongNode
                    && !end.has_passed(Moment::now() + PAUSE) =>
            {
                tokio::time::sleep(PAUSE).await;
            }
            found => return found,
        }
    }
}

/// Asks the sentinels in turn until one names a master that is one.
async fn search(dialer: &Dialer, service: &Service) -> Result<Connection, Failure> {
    let count = service.sentinels.len();
    let first = dialer.first_sentinel.load(Ordering::Relaxed);
    let mut troubles = Vec::new();
    let mut tried = Vec::new();
    for at in (first..first + count).map(|at| at % count) {
        let master = match ask_afresh(dialer, service, &service.sentinels[at]).await {
            Ok(master) => master,
            Err(trouble) => {
                troubles.push(trouble);
                continue;
            }
        };
        if tried.contains(&master) {
            continue;
        }
        match dial_checked(dialer, service, &master).await {
            Ok(connection) => {
                dialer.first_sentinel.store(at, Ordering::Relaxed);
                return Ok(connection);
            }
            Err(trouble) => troubles.push(trouble),
        }
        tried.push(master);
    }
    Err(sum_up(service, troubles))
}

async fn ask_afresh(
    dialer: &Dialer,
    service: &Service,
    sentinel: &Endpoint,
) -> Result<Endpoint, Trouble> {
    let mut connection = dial_sentinel(dialer, service, sentinel).await.map_err(Trouble::Silent)?;
    ask(&mut connection, service).await
}

async fn dial_sentinel(
    dialer: &Dialer,
    service: &Service,
    sentinel: &Endpoint,
) -> Result<Connection, Failure> {
    let login =
        Login { user: service.user.as_deref(), password: service.password.as_ref(), database: 0 };
    let limit = dialer.config().request_timeout.min(LIMIT);
    dialer.dial_to(sentinel, login, limit).await.map_err(|failure| failure::at(sentinel, failure))
}

/// Asks a sentinel where the master is.
async fn ask(connection: &mut Connection, service: &Service) -> Result<Endpoint, Trouble> {
    let mut pipeline = Pipeline::default();
    pipeline.all(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", &service.name]);
    let asked = tokio::time::timeout(LIMIT, connection.ask(pipeline)).await;
    let sentinel = connection.incoming.endpoint();
    let replies = asked
        .unwrap_or_else(|_| Err(failure::of_silence(sentinel, LIMIT)))
        .map_err(|failure| Trouble::Silent(of_refusal(sentinel, failure)))?;
    let fields = replies.into_iter().next().and_then(|reply| reply.into_list().ok());
    let Some(fields) = fields else { return Err(Trouble::Unknown) };
    let master = match fields.as_slice() {
        [host, port] => host.as_text().zip(port.as_text()),
        _ => None,
    };
    master.and_then(|(host, port)| server(service, host, port)).ok_or_else(|| {
        let nonsense = failure::of_nonsense("an address of another form");
        Trouble::Silent(failure::at(sentinel, nonsense))
    })
}

/// What one sentinel says about the service.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Opinion {
    /// Where it sees the master.
    pub(crate) master: String,
    /// How many others it knows.
    pub(crate) others: u32,
}

/// Asks each sentinel for what it knows.
pub(crate) async fn survey(
    dialer: &Dialer,
    service: &Service,
) -> Vec<(Endpoint, Result<Opinion, Failure>)> {
    let mut opinions = Vec::new();
    for sentinel in &service.sentinels {
        let opinion = async {
            let mut connection = dial_sentinel(dialer, service, sentinel).await?;
            let mut pipeline = Pipeline::default();
            pipeline.all(&["SENTINEL", "MASTER", &service.name]);
            let asked = tokio::time::timeout(LIMIT, connection.ask(pipeline)).await;
            let replies = asked
                .unwrap_or_else(|_| Err(failure::of_silence(sentinel, LIMIT)))
                .map_err(|failure| of_refusal(sentinel, failure))?;
            read_opinion(replies).ok_or_else(|| failure::of_nonsense("a master of another form"))
        };
        opinions.push((sentinel.clone(), opinion.await));
    }
    opinions
}

fn read_opinion(replies: Vec<Reply>) -> Option<Opinion> {
    let fields = replies.into_iter().next()?.into_pairs();
    let field = |name: &str| {
        let found = fields.iter().find(|(key, _)| key.as_text() == Some(name));
        found.and_then(|(_, value)| value.as_text())
    };
    let master = format!("{}:{}", field("ip")?, field("port")?);
    Some(Opinion { master, others: field("num-other-sentinels")?.parse().ok()? })
}

/// A server that keeps data does not know what is asked of sentinels.
fn of_refusal(sentinel: &Endpoint, failure: Failure) -> Failure {
    if failure.message().to_ascii_lowercase().contains("unknown command") {
        let message = format!("the server at {sentinel} is not a sentinel");
        return Failure::new(ErrorKind::InvalidConfig, message);
    }
    failure::at(sentinel, failure)
}

fn server(service: &Service, host: &str, port: &str) -> Option<Endpoint> {
    let port = port.parse().ok()?;
    Some(Endpoint::Tcp { host: host.to_owned(), port, tls: service.tls.clone() })
}

/// Connects to what is called the master, and lets it say so itself.
async fn dial_checked(
    dialer: &Dialer,
    service: &Service,
    master: &Endpoint,
) -> Result<Connection, Trouble> {
    let failed = |failed: Failure| {
        let service = quote(&service.name);
        let message = format!("the master of service {service}: {}", failed.message());
        Trouble::Master(failure::at(master, failed.with_message(message)))
    };
    let limit = dialer.config().request_timeout;
    let mut connection = dialer.dial_to(master, dialer.login(), limit).await.map_err(failed)?;
    let mut pipeline = Pipeline::default();
    pipeline.all(&["ROLE"]);
    let asked = tokio::time::timeout(limit, connection.ask(pipeline)).await;
    let replies =
        asked.unwrap_or_else(|_| Err(failure::of_silence(master, limit))).map_err(failed)?;
    let role = replies.into_iter().next().and_then(|reply| reply.into_list().ok());
    match role.as_ref().and_then(|role| role.first()).and_then(Reply::as_text) {
        Some("master") => Ok(connection),
        _ => Err(Trouble::Replica(master.clone())),
    }
}

/// The one thing that is worth telling, nearest to the goal first.
fn sum_up(service: &Service, troubles: Vec<Trouble>) -> Failure {
    let (mut silent, mut replica, mut is_unknown) = (Vec::new(), None, false);
    for trouble in troubles {
        match trouble {
            Trouble::Master(failure) => return failure,
            Trouble::Replica(endpoint) => replica = Some(endpoint),
            Trouble::Unknown => is_unknown = true,
            Trouble::Silent(failure) => silent.push(failure),
        }
    }
    let service = quote(&service.name);
    if let Some(replica) = replica {
        return Failure::new(
            ErrorKind::WrongNode,
            format!(
                "the sentinels name only {replica} for service {service}, which is a replica; a \
                 failover may be under way"
            ),
        );
    }
    let mut causes = silent.iter().map(|failure| failure.message()).collect::<Vec<_>>();
    if is_unknown {
        let mut message = format!(
            "no sentinel knows a service {service}; it is the name in \"sentinel monitor NAME …\""
        );
        causes.iter().for_each(|cause| message.extend(["; ", cause]));
        return Failure::new(ErrorKind::InvalidConfig, message);
    }
    let kind = match silent.first() {
        Some(first) if silent.iter().all(|failure| failure.kind() == first.kind()) => first.kind(),
        _ => ErrorKind::Unreachable,
    };
    if silent.iter().any(|failure| failure.kind() == ErrorKind::Permission) {
        causes.push("what sentinels ask for goes into sentinel_user and sentinel_password");
    }
    Failure::new(kind, format!("no sentinel can be asked: {}", causes.join("; ")))
}

/// Listens to one sentinel after the other, for ever; `moved` is told where the master is when
/// that may be news.
pub(crate) async fn follow(dialer: Arc<Dialer>, service: Service, moved: impl Fn(&Endpoint)) {
    let count = service.sentinels.len();
    let mut at = dialer.first_sentinel.load(Ordering::Relaxed);
    let mut pause = PAUSE;
    loop {
        let start = Moment::now();
        let failure = listen(&dialer, &service, &service.sentinels[at % count], &moved).await;
        tracing::debug!(failure = failure.message(), "a sentinel cannot be listened to");
        at += 1;
        if Moment::now().since(start) > POLL {
            pause = PAUSE;
        }
        tokio::time::sleep(pause.mul_f64(0.5 + jitter())).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Listens to a sentinel until that is not possible any more.
async fn listen(
    dialer: &Dialer,
    service: &Service,
    sentinel: &Endpoint,
    moved: &impl Fn(&Endpoint),
) -> Failure {
    let mut connection = match dial_sentinel(dialer, service, sentinel).await {
        Ok(connection) => connection,
        Err(failure) => return failure,
    };
    let mut pipeline = Pipeline::default();
    pipeline.all(&["SUBSCRIBE", SWITCH_CHANNEL]);
    if let Err(failure) = connection.ask(pipeline).await {
        return failure;
    }
    // A change from before the subscription is news too.
    let mut known = None;
    loop {
        let master = match ask(&mut connection, service).await {
            Ok(master) => master,
            Err(Trouble::Silent(failure) | Trouble::Master(failure)) => return failure,
            Err(Trouble::Unknown | Trouble::Replica(_)) => return sum_up(service, vec![]),
        };
        // A sentinel that is cut off repeats what was true once; that is no news.
        if known.as_ref() != Some(&master) {
            moved(&master);
            known = Some(master);
        }
        if let Err(failure) = wait_for_switch(&mut connection, service).await {
            return failure;
        }
    }
}

/// Waits until the sentinel says that the master is another, or for so long that it should be
/// asked again.
async fn wait_for_switch(connection: &mut Connection, service: &Service) -> Result<(), Failure> {
    let end = Moment::now() + POLL;
    loop {
        let left = end.remaining(Moment::now());
        let Ok(arrival) = tokio::time::timeout(left, connection.arrival()).await else {
            return Ok(());
        };
        if let Arrival::Push(payload) = arrival? {
            let is_ours = std::str::from_utf8(&payload).is_ok_and(|text| {
                // The name, then the old address and the new one.
                text.rsplitn(5, ' ').nth(4) == Some(service.name.as_str())
            });
            if is_ours {
                return Ok(());
            }
        }
    }
}
