//! The layer and its service.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::request::Parts;
use http::{Request, Response};
use lockfast_core::{LockName, Result};
use tower_layer::Layer;
use tower_service::Service;

use super::answer::problem;
use super::token;
use super::turnstile::Turnstiles;

/// A gate before a service. A function says which lock guards what a request writes; a request for
/// which it says none passes unchecked.
///
/// While requests with a lower fence are inside the service, one with a higher fence waits for
/// their answers, and further ones with the lower fence are refused. So nothing is written with the
/// lower fence once one with the higher has been let in. That holds for what the service does until
/// it answers, and not for what it leaves to others. Put a time-out inside, so that a request that
/// hangs does not keep the next holder waiting.
///
/// The highest fence of each lock that a request has named stays in memory.
///
/// ```
/// use http::{Request, Response, request::Parts};
/// use lockfast_core::LockName;
/// use lockfast_fence::http::FenceLayer;
/// use tower_layer::Layer as _;
/// use tower_service::Service as _;
/// # #[derive(Clone)]
/// # struct Accounts;
/// # impl tower_service::Service<Request<String>> for Accounts {
/// #     type Response = Response<String>;
/// #     type Error = std::convert::Infallible;
/// #     type Future = std::future::Ready<Result<Response<String>, Self::Error>>;
/// #     fn poll_ready(
/// #         &mut self,
/// #         _: &mut std::task::Context<'_>,
/// #     ) -> std::task::Poll<Result<(), Self::Error>> {
/// #         std::task::Poll::Ready(Ok(()))
/// #     }
/// #     fn call(&mut self, _: Request<String>) -> Self::Future {
/// #         std::future::ready(Ok(Response::new("done".to_owned())))
/// #     }
/// # }
///
/// /// PUT /accounts/7 is guarded by the lock "account/7"; reads need no fence.
/// fn lock_of(request: &Parts) -> lockfast_core::Result<Option<LockName>> {
///     match request.uri.path().strip_prefix("/accounts/") {
///         Some(id) if request.method == "PUT" => LockName::new(format!("account/{id}")).map(Some),
///         _ => Ok(None),
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut service = FenceLayer::new(lock_of).layer(Accounts);
/// let put = |fence: &str| {
///     Request::put("/accounts/7").header("Fencing-Token", fence).body("110".to_owned())
/// };
/// assert_eq!(service.call(put("42")?).await?.status(), 200);
/// assert_eq!(service.call(put("41")?).await?.status(), 409); // stale
/// assert_eq!(service.call(put("none")?).await?.status(), 400);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FenceLayer<F> {
    lock_of: F,
    turnstiles: Option<Arc<Turnstiles>>,
}

impl<F> FenceLayer<F>
where
    F: Fn(&Parts) -> Result<Option<LockName>>,
{
    /// A layer that remembers the fences it has seen; clones of it, and all services that it is put
    /// before, remember together.
    ///
    /// ```
    /// use lockfast_core::LockName;
    /// use lockfast_fence::http::FenceLayer;
    ///
    /// // One lock for the whole service.
    /// let layer = FenceLayer::new(|_| LockName::new("accounts").map(Some));
    /// # drop(layer);
    /// ```
    pub fn new(lock_of: F) -> Self {
        Self { lock_of, turnstiles: Some(Arc::default()) }
    }

    /// A layer that only reads the header and refuses what is no fence. The handler finds the
    /// [`FencingToken`](lockfast_core::FencingToken) in the extensions of the request, and has to
    /// check it where its data is.
    ///
    /// ```
    /// use lockfast_core::LockName;
    /// use lockfast_fence::http::FenceLayer;
    ///
    /// let layer = FenceLayer::reading(|_| LockName::new("accounts").map(Some));
    /// # drop(layer);
    /// ```
    pub fn reading(lock_of: F) -> Self {
        Self { lock_of, turnstiles: None }
    }
}

impl<S, F: Clone> Layer<S> for FenceLayer<F> {
    type Service = FenceService<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        FenceService { inner, layer: self.clone() }
    }
}

/// A service behind a [`FenceLayer`].
///
/// ```
/// use lockfast_core::LockName;
/// use lockfast_fence::http::{FenceLayer, FenceService};
/// use tower_layer::Layer as _;
///
/// let layer = FenceLayer::new(|_| LockName::new("accounts").map(Some));
/// let service: FenceService<&str, _> = layer.layer("any service");
/// # drop(service);
/// ```
#[derive(Clone, Debug)]
pub struct FenceService<S, F> {
    inner: S,
    layer: FenceLayer<F>,
}

impl<S, F, B, R> Service<Request<B>> for FenceService<S, F>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    F: Fn(&Parts) -> Result<Option<LockName>>,
    B: Send + 'static,
    R: From<String>,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // The one that is ready serves this request; its clone will be asked again.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let (mut parts, body) = request.into_parts();
        let token = match (self.layer.lock_of)(&parts) {
            Ok(None) => return Box::pin(inner.call(Request::from_parts(parts, body))),
            Ok(Some(lock)) => token(&parts.headers, &lock),
            Err(error) => Err(error),
        };
        let token = match token {
            Ok(token) => token,
            Err(error) => return Box::pin(async move { Ok(problem(&error)) }),
        };
        parts.extensions.insert(token.clone());
        let request = Request::from_parts(parts, body);
        let Some(turnstiles) = self.layer.turnstiles.clone() else {
            return Box::pin(inner.call(request));
        };
        Box::pin(async move {
            match turnstiles.enter(&token).await {
                Ok(_inside) => inner.call(request).await,
                Err(error) => Ok(problem(&error)),
            }
        })
    }
}
