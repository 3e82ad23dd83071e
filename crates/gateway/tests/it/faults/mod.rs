//! Faults at every place where data can be lost: the disk, the database, the process and the clock. After each run the
//! invariants on rows, counts, money and deliveries are checked.

mod invariants;
mod kill;
mod lost_answer;
mod plan;
mod schedule;
mod seeds;
mod world;
