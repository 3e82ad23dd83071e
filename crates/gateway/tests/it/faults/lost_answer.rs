//! A commit whose answer is lost: the caller sees an error, but the change is made and in force.

use gateway_store::faults::{DbCall, Fault, Point};
use serde_json::json;

use super::schedule::{Rule, Schedule, Target};
use crate::on_both;

on_both!(a_revocation_whose_commit_has_no_answer_is_in_force_at_once, |app| async move {
    let ada = app.signup("acme").await;
    let key = app.create_key(&ada.token, json!({"name": "k"})).await;
    assert_eq!(app.status_with_key(&key.raw).await, 200, "the key is cached");
    let schedule = Schedule::default();
    schedule.install(&app);
    // Background tasks commit as well.
    let point = Point::Db(DbCall::Commit);
    schedule.add(Rule { target: Target::State, point, skip: 0, times: 1_000, fault: Fault::AnswerLost });
    app.delete(&key.path()).bearer(&ada.token).send().await.expect_error(503, "unavailable");
    schedule.clear();
    assert_eq!(app.status_with_key(&key.raw).await, 401);
});
