//! How messages of the server reach us: by a connection that listens, of which there is one for
//! each process; where a pooler or a failure is in the way, by reading a table, often while
//! somebody waits and not at all otherwise.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use lockfast_core::{ErrorKind, Moment, jitter};
use tokio::sync::oneshot;

use crate::config::Config;
use crate::failure::{self, Failure};
use crate::store::{Presence, Store};
use crate::wire::{Dialer, Push, Session, get, random};

/// How often a connection that nothing comes from is tried.
const PING_EVERY: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(300);
/// How often the mail is read while somebody waits: soon after something happened, then less.
const MAIL_MIN: Duration = Duration::from_millis(4);
const MAIL_MAX: Duration = Duration::from_millis(100);
/// For how long it is read after nobody waits any more: what was just granted may be taken away again.
const MAIL_LINGER: Duration = Duration::from_secs(1);

/// Makes the connection that listens, unless messages must come by mail.
pub(crate) async fn connect(store: &Store, is_direct: bool) -> Result<Option<Session>, Failure> {
    let config = store.config();
    if !is_direct && config.listen.is_none() {
        return Ok(None);
    }
    let session = dial(store).await?;
    if !session.is_direct {
        return Err(Failure::new(
            ErrorKind::InvalidConfig,
            "the URL in option listen leads to a pooler; give that of the server itself",
        ));
    }
    Ok(Some(session))
}

/// Where to listen.
fn place(config: &Config) -> Config {
    match &config.listen {
        Some(listen) => (**listen).clone(),
        None => config.clone(),
    }
}

async fn dial(store: &Store) -> Result<Session, Failure> {
    let session = Dialer::new(place(store.config()))?.dial().await?;
    if session.is_direct {
        let presence = make_presence()?;
        let mut script = greet(&presence);
        if !store.feeds.is_empty() {
            script.push_str(&listen_to_events(store));
        }
        session.execute(&script, store.config().request_timeout).await?;
        store.set_presence(presence);
    }
    Ok(session)
}

/// Nobody else knows where we listen, so that nobody else can send there. The key is another one
/// each time: those who see it in the server's list of locks may take it, but too late.
fn make_presence() -> Result<Presence, Failure> {
    let channel = format!("lockfast:{:016x}{:016x}", random()?, random()?);
    Ok(Presence { channel, key: random()? })
}

/// The lock tells others that we are still there.
fn greet(Presence { channel, key }: &Presence) -> String {
    format!("LISTEN \"{channel}\"; SELECT pg_advisory_lock({key});")
}

fn listen_to_events(store: &Store) -> String {
    format!("LISTEN \"{}\"", store.events())
}

/// Checks that what is sent where the commands go arrives where we listen.
pub(crate) async fn check(
    store: &Store,
    commands: &Session,
    listener: &mut Session,
) -> Result<(), Failure> {
    let limit = store.config().request_timeout;
    let channel = store.presence().map(|presence| presence.channel).unwrap_or_default();
    let script = format!("SELECT pg_notify('{channel}', 'P')");
    commands.execute(&script, limit).await?;
    match tokio::time::timeout(limit, listener.messages.recv()).await {
        Ok(Some(_)) => Ok(()),
        _ => Err(Failure::new(
            ErrorKind::InvalidConfig,
            "the URL in option listen leads to another database",
        )),
    }
}

/// Listens for ever; while it cannot, the mail is read.
pub(crate) async fn run(store: Arc<Store>, mut session: Session) {
    loop {
        let failure = listen(&store, &mut session).await;
        tracing::debug!(failure = failure.message(), "the connection that listens broke");
        drop(session);
        store.set_by_mail(true);
        session = loop {
            match dial(&store).await {
                Ok(session) if session.is_direct => break session,
                _ => tokio::time::sleep(PAUSE.mul_f64(0.5 + jitter())).await,
            }
        };
        store.set_by_mail(false);
        // Whatever was pushed meanwhile is lost.
        store.feeds.miss();
        store.lobby.rouse();
        store.ask_for_losses();
    }
}

async fn listen(store: &Store, session: &mut Session) -> Failure {
    let mut heard = Moment::now();
    loop {
        let quiet = (heard + PING_EVERY).remaining(Moment::now());
        match tokio::time::timeout(quiet, next(store, session)).await {
            Ok(Event::Push(push)) if push.channel == store.events() => {
                store.feeds.tell(&push.payload);
            }
            Ok(Event::Push(push)) => store.hear(&push.payload),
            Ok(Event::Watch(ready)) => {
                let script = listen_to_events(store);
                match session.execute(&script, store.config().request_timeout).await {
                    Ok(()) => drop(ready.send(())),
                    Err(failure) => return failure,
                }
            }
            Ok(Event::End) => return failure::of_end(&session.endpoint),
            Err(_) => {
                if let Err(failure) = session.execute("", store.config().request_timeout).await {
                    return failure;
                }
                heard = Moment::now();
                continue;
            }
        }
        heard = Moment::now();
    }
}

enum Event {
    Push(Push),
    Watch(oneshot::Sender<()>),
    End,
}

async fn next(store: &Store, session: &mut Session) -> Event {
    let mut wanted = pin!(store.feeds.wanted());
    poll_fn(|context| {
        if let Poll::Ready(message) = session.messages.poll_recv(context) {
            return Poll::Ready(message.map_or(Event::End, Event::Push));
        }
        let wanted: Pin<&mut _> = wanted.as_mut();
        wanted.poll(context).map(Event::Watch)
    })
    .await
}

/// Reads the mail for ever, when and as long as that is how messages come.
pub(crate) async fn read_mail(store: Arc<Store>) {
    let mut pause = MAIL_MIN;
    let mut wanted = Moment::now();
    loop {
        if !store.lobby.is_empty() || !store.feeds.is_empty() {
            wanted = Moment::now();
        }
        if (wanted + MAIL_LINGER).has_passed(Moment::now()) || !store.is_by_mail() {
            store.expects_mail.notified().await;
            pause = MAIL_MIN;
            wanted = Moment::now();
            continue;
        }
        let values = vec![store.client_value(), crate::batch::Value::Number(store.link())];
        let rows = store.ask("SELECT * FROM {schema}.collect($1, $2)", values).await;
        let rows = rows.unwrap_or_default();
        pause = if rows.is_empty() { pause.mul_f64(1.3).min(MAIL_MAX) } else { MAIL_MIN };
        for row in &rows {
            let Ok(message) = get::<String>(row, 0) else { continue };
            match message.strip_prefix("E\t") {
                Some(event) => store.feeds.tell(event),
                None => store.hear(&message),
            }
        }
        // Whoever begins to wait is looked after soon.
        if tokio::time::timeout(pause, store.expects_mail.notified()).await.is_ok() {
            pause = MAIL_MIN;
        }
    }
}
