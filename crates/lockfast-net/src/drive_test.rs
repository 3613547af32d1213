//! Who drives a connection, and how often.

use std::net::TcpListener;
use std::sync::Weak;
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;

use super::*;

/// Nobody gathers.
struct Nobody;

impl Gather for Nobody {
    fn is_gathering(&self) -> bool {
        false
    }
}

/// Reads until the end and waits for ever then, as one who makes no other connection does.
fn reader(
    mut socket: Socket,
    total: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
) -> BoxFuture<'static, ()> {
    Box::pin(std::future::poll_fn(move |context| {
        let mut bytes = [0; 1024];
        while !ended.load(Ordering::SeqCst) {
            let mut buffer = ReadBuf::new(&mut bytes);
            let polled = std::pin::Pin::new(&mut socket).poll_read(context, &mut buffer);
            match (polled, buffer.filled().len()) {
                (std::task::Poll::Pending, _) => break,
                (_, 0) => ended.store(true, Ordering::SeqCst),
                (_, count) => drop(total.fetch_add(count as u64, Ordering::SeqCst)),
            }
        }
        std::task::Poll::Pending
    }))
}

/// B131: the ear was woken for ever by a connection that the other side has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_connection_is_heard_once() {
    let keeper = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let keeper = keeper.unwrap();
    let drive = Drive::new(keeper.handle().clone());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let raw = Raw::Tcp(stream.into_std().unwrap());
    let plug = {
        let _keeper = keeper.enter();
        Arc::new(Plug::new(raw).unwrap())
    };
    drive.set_plug(Some(Arc::clone(&plug)));
    let (total, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let work = reader(Socket(plug), Arc::clone(&total), Arc::clone(&ended));
    let keeping = keeper.spawn(Arc::clone(&drive).run(work));
    let nobody: Arc<dyn Gather> = Arc::new(Nobody);
    let asked: Weak<dyn Gather> = Arc::downgrade(&nobody);
    drive.attend(&asked);
    tokio::time::sleep(Duration::from_millis(300)).await;
    std::io::Write::write_all(&mut server, &[7; 5000]).unwrap();
    drop(server);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(ended.load(Ordering::SeqCst), "the end is read");
    assert_eq!(total.load(Ordering::SeqCst), 5000);
    let before = drive.beats.load(Ordering::SeqCst);
    assert!(before > 0, "there is an ear");
    tokio::time::sleep(Duration::from_millis(300)).await;
    let beats = drive.beats.load(Ordering::SeqCst) - before;
    assert!(beats < 20, "the ear was woken {beats} times, and nothing happened");
    keeping.abort();
    keeper.shutdown_background();
}
