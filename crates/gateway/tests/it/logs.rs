//! Log rows over HTTP: lists, filters, single rows, the live stream, and what becomes of rows in the store.

use crate::on_both;
use crate::support::rows::{at, row};

on_both!(a_batch_that_is_sent_twice_is_counted_once, |app| async move {
    let ada = app.signup("acme").await;
    let time = at("2026-11-19T10:00:00Z");
    let rows: Vec<_> = (0..7).map(|n| row(&ada, time.plus(n * 1000))).collect();
    assert_eq!(app.write(&rows[..5]).await, 5);
    assert_eq!(app.write(&rows[..5]).await, 0);
    assert_eq!(app.write(&rows[3..]).await, 2);
    let twice = [rows.clone(), rows.clone()].concat();
    assert_eq!(app.write(&twice).await, 0);
});
