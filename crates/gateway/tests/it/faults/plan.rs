//! The plan of a run: what is done and what fails, derived from a seed.

use std::time::Duration;

use gateway_store::faults::{DbCall, DiskCall, Fault, Point};

use super::schedule::{Rule, Target};
use crate::support::Backend;

const MIN_STEPS: u64 = 12;
const MAX_STEPS: u64 = 28;
/// One run in this many is on PostgreSQL, where a new database takes longer.
const POSTGRES_EVERY: u64 = 8;

#[derive(Debug)]
pub struct Plan {
    pub backend: Backend,
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, Copy)]
pub enum Step {
    Chat,
    FailingChat,
    /// The size of the request body.
    Stream(usize),
    CreateKey,
    RevokeKey,
    StartRun,
    CreateSkill,
    CreateSmallBudget,
    /// The receiver of events fails once.
    FailEvent,
    /// The receiver of log rows fails once.
    FailRows,
    Inject(Rule),
    /// Lets background tasks work.
    Wait(Duration),
    /// Milliseconds, forward or backward.
    MoveClock(i64),
    Restart,
}

impl Plan {
    pub fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let backend =
            if seed % POSTGRES_EVERY == POSTGRES_EVERY - 1 { Backend::Postgres } else { Backend::Sqlite };
        let count = MIN_STEPS + random.below(MAX_STEPS - MIN_STEPS);
        let steps = (0..count).map(|_| random.step()).collect();
        Self { backend, steps }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn size(&mut self, bound: u64) -> usize {
        usize::try_from(self.below(bound)).unwrap()
    }

    fn count(&mut self, bound: u64) -> u32 {
        u32::try_from(self.below(bound)).unwrap()
    }

    fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.size(choices.len() as u64)]
    }

    fn step(&mut self) -> Step {
        match self.below(100) {
            0..18 => Step::Chat,
            18..21 => Step::FailingChat,
            21..29 => Step::Stream(self.one_of(&[10, 1_000, 20_000, 200_000])),
            29..35 => Step::CreateKey,
            35..41 => Step::RevokeKey,
            41..44 => Step::StartRun,
            44 => Step::CreateSkill,
            45..48 => Step::CreateSmallBudget,
            48..50 => Step::FailEvent,
            50..52 => Step::FailRows,
            52..88 => Step::Inject(self.rule()),
            88..92 => Step::Wait(Duration::from_millis(self.below(150))),
            92..97 => Step::MoveClock(self.clock_change()),
            _ => Step::Restart,
        }
    }

    /// Steps of a clock that is corrected, and the hours that a suspended machine misses.
    fn clock_change(&mut self) -> i64 {
        let second = 1_000;
        self.one_of(&[-300, -40, -2, 1, 45, 3_600, 30_000]) * second
    }

    fn rule(&mut self) -> Rule {
        let (target, point, fault) = match self.below(10) {
            0..4 => self.database(Target::Logs),
            4..7 => self.database(Target::State),
            _ => self.disk(),
        };
        let skip = match point {
            Point::Db(DbCall::Statement) if fault == Fault::DiskFull => self.count(4),
            Point::Db(DbCall::Statement) => self.count(25),
            Point::Db(_) => self.count(5),
            Point::Disk(_) => self.count(3),
        };
        let times = if self.below(4) == 0 { 2 + self.count(5) } else { 1 };
        Rule { target, point, skip, times, fault }
    }

    fn database(&mut self, target: Target) -> (Target, Point, Fault) {
        let delay = Fault::Delay(Duration::from_millis(self.below(40)));
        let call = self.one_of(&[
            DbCall::Begin,
            DbCall::Read,
            DbCall::Statement,
            DbCall::Statement,
            DbCall::Statement,
            DbCall::Commit,
            DbCall::Commit,
            DbCall::Commit,
        ]);
        let fault = match call {
            DbCall::Begin | DbCall::Read => self.one_of(&[Fault::LostConnection, delay]),
            DbCall::Statement => {
                self.one_of(&[Fault::LostConnection, Fault::DiskFull, Fault::DiskFull, Fault::IoError, delay])
            }
            DbCall::Commit => self.one_of(&[
                Fault::LostConnection,
                Fault::IoError,
                Fault::AnswerLost,
                Fault::AnswerLost,
                delay,
            ]),
        };
        (target, Point::Db(call), fault)
    }

    fn disk(&mut self) -> (Target, Point, Fault) {
        let delay = Fault::Delay(Duration::from_millis(self.below(20)));
        let (short, torn) = (Fault::ShortWrite(self.size(600)), Fault::TornWrite(self.size(600)));
        let call = self.one_of(&[
            DiskCall::Write,
            DiskCall::Write,
            DiskCall::Write,
            DiskCall::Create,
            DiskCall::Read,
            DiskCall::List,
            DiskCall::Remove,
        ]);
        let fault = match call {
            DiskCall::Write => self.one_of(&[short, torn, torn, Fault::DiskFull, Fault::IoError, delay]),
            DiskCall::Create => self.one_of(&[Fault::DiskFull, Fault::IoError]),
            DiskCall::Read | DiskCall::List | DiskCall::Remove => self.one_of(&[Fault::IoError, delay]),
        };
        (Target::Spool, Point::Disk(call), fault)
    }
}
