//! What a gate answers instead of the service.

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use lockfast_core::{Error, ErrorKind};

use super::json;

/// The answer to a request that a gate refused: 409 for a stale fence, 400 for what is no fence of
/// this lock, and 500 for what is not the caller's mistake, whose cause it does not tell.
///
/// ```
/// use lockfast_core::{Error, Fence, FencingToken, LockName};
/// use lockfast_fence::http::problem;
///
/// # fn main() -> lockfast_core::Result<()> {
/// let token = FencingToken { lock: LockName::new("account/7")?, fence: Fence::new(41)? };
/// let refused = Error::stale_fence(&token, Fence::new(42)?);
/// let response = problem::<String>(&refused);
/// assert_eq!(response.status(), 409);
/// assert!(response.body().contains("\"seen\":42"));
/// # Ok(())
/// # }
/// ```
pub fn problem<B: From<String>>(error: &Error) -> Response<B> {
    let (status, code) = match error.kind() {
        ErrorKind::StaleFence => (StatusCode::CONFLICT, "stale_fence"),
        ErrorKind::InvalidToken => (StatusCode::BAD_REQUEST, "invalid_fence"),
        ErrorKind::DifferentLock => (StatusCode::BAD_REQUEST, "different_lock"),
        ErrorKind::InvalidName => (StatusCode::BAD_REQUEST, "invalid_name"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "not_checked"),
    };
    let detail = match status {
        StatusCode::INTERNAL_SERVER_ERROR => "the fence could not be checked".into(),
        _ => error.to_string(),
    };
    let mut body = format!(
        "{{\"type\":\"about:blank\",\"title\":{},\"status\":{},\"detail\":{},\"code\":\"{code}\"",
        json::string(status.canonical_reason().unwrap_or_default()),
        status.as_u16(),
        json::string(&detail)
    );
    if let Some(lock) = error.lock() {
        body.push_str(&format!(",\"lock\":{}", json::string(lock.as_str())));
    }
    if let Some(seen) = error.fence_seen() {
        body.push_str(&format!(",\"seen\":{seen}"));
    }
    body.push('}');
    let mut response = Response::new(B::from(body));
    *response.status_mut() = status;
    let kind = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use lockfast_core::LockName;

    use super::*;

    #[test]
    fn causes_inside_the_service_are_not_told() {
        let error = Error::new(ErrorKind::Internal, "no route to 10.0.0.7")
            .with_lock(&LockName::new("a").unwrap());
        let response = problem::<String>(&error);
        assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        assert!(!response.body().contains("10.0.0.7"));
        let body: serde_json::Value = serde_json::from_str(response.body()).unwrap();
        assert_eq!((&body["status"], &body["lock"]), (&500.into(), &"a".into()));
    }
}
