//! Work on the runtime that drives a store's connections, for callers on any other.

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::error::{Error, ErrorKind};

/// Work that is done elsewhere, and dropped when nobody waits for it any more.
#[derive(Debug)]
pub struct Task<T>(JoinHandle<T>);

impl<T, E> Task<Result<T, E>>
where
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    /// Starts work.
    pub fn start(
        runtime: &Handle,
        work: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Self {
        Self(runtime.spawn(work))
    }

    /// Waits until it is done.
    ///
    /// # Errors
    /// Those of the work, and [`ErrorKind::Internal`] when its runtime ends first.
    ///
    /// # Cancel safety
    /// The work is dropped too.
    pub async fn finish(mut self) -> Result<T, E> {
        (&mut self.0).await.unwrap_or_else(|error| {
            let message = format!("the keeper's runtime ended: {error}");
            Err(Error::new(ErrorKind::Internal, message).into())
        })
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    /// Work that never ends, and what tells that it was dropped.
    fn start_endless(runtime: &Handle) -> (Task<Result<(), Error>>, oneshot::Receiver<()>) {
        let (alive, dropped) = oneshot::channel::<()>();
        let work = async move {
            let _alive = alive;
            std::future::pending().await
        };
        (Task::start(runtime, work), dropped)
    }

    #[tokio::test]
    async fn work_ends_with_whoever_waits_for_it() {
        let runtime = Handle::current();
        let work = async { Ok::<_, Error>(7) };
        assert_eq!(Task::start(&runtime, work).finish().await.unwrap(), 7);
        let (task, dropped) = start_endless(&runtime);
        drop(task.finish());
        assert!(dropped.await.is_err(), "it was dropped without a word");
    }

    #[tokio::test]
    async fn a_runtime_that_ends_is_told() {
        let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (task, _dropped) = start_endless(other.handle());
        other.shutdown_background();
        assert_eq!(task.finish().await.unwrap_err().kind(), ErrorKind::Internal);
    }
}
