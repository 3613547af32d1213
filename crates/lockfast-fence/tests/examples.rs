//! The examples do what they are there to show.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../examples/fenced_service.rs"]
#[allow(dead_code, reason = "the example has a main of its own")]
mod fenced_service;

#[tokio::test]
async fn a_service_refuses_a_late_client() {
    let [written, refused, read] = fenced_service::write_late().await.unwrap();
    assert!(written.starts_with("HTTP/1.1 204 "), "{written}");
    assert!(refused.starts_with("HTTP/1.1 409 "), "{refused}");
    assert!(refused.contains("\"code\":\"stale_fence\""), "{refused}");
    assert!(read.ends_with("\r\n\r\n150"), "{read}");
}
