//! What runs in the background beside requests. Each job is a task that is started with the app and ends with it; what it
//! has to do is kept in the store and taken under a lease, so that several nodes share the work and a dead one's is taken over.

pub mod deliver_export;
pub mod deliver_webhook;
