//! The example of optimistic locking on a table of one's own ends exactly.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "../examples/stock.rs"]
#[allow(dead_code, reason = "the example has a main of its own")]
mod stock;

#[test]
fn every_piece_is_sold_once() {
    let directory = tempfile::tempdir().unwrap();
    let day = stock::sell_all(&directory.path().join("stock.db"), 500).unwrap();
    assert_eq!(day.left, 0);
    assert_eq!(day.sold.len(), 32);
    assert_eq!(day.sold.iter().sum::<i64>(), 500, "{day:?}");
}
