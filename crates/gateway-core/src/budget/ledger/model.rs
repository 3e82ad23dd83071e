//! Model tests: random operations on ledgers that share a simulated store, compared with a naive list of calls.

use super::*;
use crate::budget::{Period, Scope};
use crate::logs::{first_log_id, log_id_time};
use crate::time::{DAY, HOUR};
use proptest::prelude::*;
use std::collections::BTreeMap;
use uuid::Uuid;

const LIMIT: Amount = 100;
const MAX_AMOUNT: Amount = 30;

#[derive(Clone, Copy, Debug)]
enum Op {
    /// Reserves an amount on a node, asking the store for a lease if needed.
    Reserve {
        node: usize,
        by_key: bool,
        amount: Amount,
    },
    /// Ends one of the running calls at a part of what was reserved for it.
    Commit {
        call: usize,
        share: Amount,
    },
    Release {
        call: usize,
    },
    /// A row that no reservation belongs to, such as one left in the spool by an earlier run.
    ForeignRow {
        node: usize,
        cost: Amount,
        is_in_store: bool,
    },
    WriteStart {
        node: usize,
    },
    /// The store commits the batch, or not, and the node learns about it later, or never.
    WriteCommit {
        node: usize,
    },
    WriteEnd {
        node: usize,
        is_reported: bool,
    },
    ReadBegin {
        node: usize,
    },
    ReadSnapshot {
        node: usize,
    },
    ReadEnd {
        node: usize,
    },
    RecordLeases {
        node: usize,
        is_recalled: bool,
    },
    Advance {
        hours: i64,
    },
}

fn op(nodes: usize) -> impl Strategy<Value = Op> {
    let node = 0..nodes;
    prop_oneof![
        6 => (node.clone(), any::<bool>(), 0..=MAX_AMOUNT)
            .prop_map(|(node, by_key, amount)| Op::Reserve { node, by_key, amount }),
        5 => (0..8_usize, 0..=100_i128).prop_map(|(call, share)| Op::Commit { call, share }),
        2 => (0..8_usize).prop_map(|call| Op::Release { call }),
        1 => (node.clone(), 1..5_i128, any::<bool>())
            .prop_map(|(node, cost, is_in_store)| Op::ForeignRow { node, cost, is_in_store }),
        4 => node.clone().prop_map(|node| Op::WriteStart { node }),
        4 => node.clone().prop_map(|node| Op::WriteCommit { node }),
        4 => (node.clone(), prop::bool::weighted(0.8))
            .prop_map(|(node, is_reported)| Op::WriteEnd { node, is_reported }),
        3 => node.clone().prop_map(|node| Op::ReadBegin { node }),
        3 => node.clone().prop_map(|node| Op::ReadSnapshot { node }),
        3 => node.clone().prop_map(|node| Op::ReadEnd { node }),
        2 => (node, any::<bool>()).prop_map(|(node, is_recalled)| Op::RecordLeases { node, is_recalled }),
        1 => (1..30_i64).prop_map(|hours| Op::Advance { hours }),
    ]
}

/// The naive truth about one row.
#[derive(Clone, Debug)]
struct Entry {
    row: SpendRow,
    node: usize,
    /// Counted by its node: committed there, confirmed as new, or contained in a read.
    is_counted: bool,
}

#[derive(Debug)]
struct RunningCall {
    node: usize,
    id: i64,
    reserved: ReservedAmount,
    period: Timestamp,
}

#[derive(Debug, Default)]
struct Node {
    /// Rows that wait for the writer.
    spool: Vec<i64>,
    /// The rows of the current batch, and those that were new when the store committed it.
    batch: Option<(Vec<i64>, Option<Vec<i64>>)>,
    read: Option<Read>,
}

#[derive(Debug)]
struct Read {
    number: u64,
    /// The store as the read sees it, and the uncertain rows.
    snapshot: Option<(Vec<i64>, Vec<i64>)>,
}

struct World {
    now: Timestamp,
    ledgers: Vec<Ledger>,
    nodes: Vec<Node>,
    calls: Vec<RunningCall>,
    entries: BTreeMap<i64, Entry>,
    /// The ids in the store.
    store: Vec<i64>,
    lease_table: HashMap<(BudgetId, Timestamp, usize), Amount>,
    /// The cost of all calls, by start of the period.
    real_cost: HashMap<Timestamp, Amount>,
    next_id: i64,
}

fn key() -> crate::ids::KeyId {
    Uuid::from_u128(7).into()
}

fn budgets() -> [Budget; 2] {
    [(1, Scope::Org(Uuid::nil().into()), Vec::new()), (2, Scope::Key(key()), vec![key()])].map(
        |(number, scope, keys)| Budget {
            id: Uuid::from_u128(number).into(),
            scope,
            keys,
            period: Period::Daily,
            soft_limit: None,
            hard_limit: Some(LIMIT),
            unpriced: Unpriced::Allow,
            opening: 0,
            created_at: Timestamp(0),
        },
    )
}

impl World {
    fn new(nodes: usize, sharing: Sharing) -> Self {
        let mut world = Self {
            now: "2026-11-18T00:00:00Z".parse().unwrap(),
            ledgers: (0..nodes).map(|_| Ledger::new(sharing)).collect(),
            nodes: (0..nodes).map(|_| Node::default()).collect(),
            calls: Vec::new(),
            entries: BTreeMap::new(),
            store: Vec::new(),
            lease_table: HashMap::new(),
            real_cost: HashMap::new(),
            next_id: 0,
        };
        (0..nodes).for_each(|node| world.read_at_once(node));
        world
    }

    fn period(&self) -> Timestamp {
        Period::Daily.start_of(self.now)
    }

    fn new_id(&mut self) -> i64 {
        self.next_id += 1;
        first_log_id(self.now) + self.next_id
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Reserve { node, by_key, amount } => self.reserve(node, by_key, amount),
            Op::Commit { call, share } => self.commit(call, share),
            Op::Release { call } => {
                if call < self.calls.len() {
                    let mut call = self.calls.swap_remove(call);
                    self.ledgers[call.node].release(&mut call.reserved);
                }
            }
            Op::ForeignRow { node, cost, is_in_store } => self.foreign_row(node, cost, is_in_store),
            Op::WriteStart { node } => self.write_start(node),
            Op::WriteCommit { node } => self.write_commit(node),
            Op::WriteEnd { node, is_reported } => self.write_end(node, is_reported),
            Op::ReadBegin { node } => {
                let number = self.ledgers[node].begin_read();
                self.nodes[node].read = Some(Read { number, snapshot: None });
            }
            Op::ReadSnapshot { node } => {
                let uncertain = self.ledgers[node].uncertain_rows();
                if let Some(read) = &mut self.nodes[node].read
                    && read.snapshot.is_none()
                {
                    read.snapshot = Some((self.store.clone(), uncertain));
                }
            }
            Op::ReadEnd { node } => self.read_end(node),
            Op::RecordLeases { node, is_recalled } => self.record_leases(node, is_recalled),
            Op::Advance { hours } => self.now = self.now.plus(hours * HOUR),
        }
    }

    fn reserve(&mut self, node: usize, by_key: bool, amount: Amount) {
        let spender = Spender { key: by_key.then(key), ..Spender::default() };
        let mut result = self.ledgers[node].reserve(spender, Charge::priced(amount), self.now);
        if matches!(result, Err(Denied::LeaseTooSmall)) {
            self.read_at_once(node);
            let others = self.other_nodes(node);
            let Ok(leases) =
                self.ledgers[node].plan_leases(spender, Charge::priced(amount), &others, self.now)
            else {
                return;
            };
            for lease in &leases {
                self.lease_table.insert((lease.budget, lease.starts_at, node), lease.amount);
            }
            self.ledgers[node].lease_granted(&leases);
            result = self.ledgers[node].reserve(spender, Charge::priced(amount), self.now);
            assert!(result.is_ok(), "a lease that was just granted covers the call: {result:?}");
        }
        if let Ok(Some(reserved)) = result {
            let (id, period) = (self.new_id(), self.period());
            self.calls.push(RunningCall { node, id, reserved, period });
        }
    }

    fn other_nodes(&self, node: usize) -> OtherNodes {
        let mut leased = LeasedAmounts::new();
        for ((budget, starts_at, owner), amount) in &self.lease_table {
            if *owner != node {
                *leased.entry((*budget, *starts_at)).or_default() += amount;
            }
        }
        OtherNodes { leased, alive: self.nodes.len() as u64 }
    }

    fn commit(&mut self, call: usize, share: Amount) {
        if call >= self.calls.len() {
            return;
        }
        let RunningCall { node, id, mut reserved, period } = self.calls.swap_remove(call);
        let (cost, spender) = (reserved.charge.cost * share / 100, reserved.spender);
        self.ledgers[node].commit(&mut reserved, id, Charge::priced(cost), self.now);
        self.entries.insert(
            id,
            Entry { row: SpendRow { id, spender, charge: Charge::priced(cost) }, node, is_counted: true },
        );
        self.nodes[node].spool.push(id);
        *self.real_cost.entry(period).or_default() += cost;
    }

    fn foreign_row(&mut self, node: usize, cost: Amount, is_in_store: bool) {
        let id = self.new_id();
        let row = SpendRow { id, spender: Spender::default(), charge: Charge::priced(cost) };
        self.entries.insert(id, Entry { row, node, is_counted: false });
        self.nodes[node].spool.push(id);
        if is_in_store {
            // As after a restart: every read of this run contains the row.
            self.store.push(id);
            (0..self.nodes.len()).for_each(|node| self.read_at_once(node));
        }
    }

    fn write_start(&mut self, node: usize) {
        if self.nodes[node].batch.is_some() || self.nodes[node].spool.is_empty() {
            return;
        }
        let batch = self.nodes[node].spool.clone();
        for id in &batch {
            self.ledgers[node].write_started(&self.entries[id].row);
        }
        self.nodes[node].batch = Some((batch, None));
    }

    fn write_commit(&mut self, node: usize) {
        if let Some((batch, committed @ None)) = &mut self.nodes[node].batch {
            let new: Vec<i64> = batch.iter().copied().filter(|id| !self.store.contains(id)).collect();
            self.store.extend(&new);
            *committed = Some(new);
        }
    }

    fn write_end(&mut self, node: usize, is_reported: bool) {
        let Some((batch, committed)) = self.nodes[node].batch.take() else { return };
        // A batch that failed stays in the spool and is written again.
        let Some(new) = committed.filter(|_| is_reported) else { return };
        self.nodes[node].spool.retain(|id| !batch.contains(id));
        for id in batch {
            let is_new = new.contains(&id);
            let entry = self.entries.get_mut(&id).unwrap();
            self.ledgers[node].stored(&entry.row, is_new, self.now);
            entry.is_counted |= is_new;
        }
        if self.ledgers[node].is_stale() {
            self.read_at_once(node);
        }
    }

    fn read_at_once(&mut self, node: usize) {
        let number = self.ledgers[node].begin_read();
        let snapshot = Some((self.store.clone(), self.ledgers[node].uncertain_rows()));
        self.nodes[node].read = Some(Read { number, snapshot });
        self.read_end(node);
    }

    fn read_end(&mut self, node: usize) {
        let Some(Read { number, snapshot: Some((seen, uncertain)) }) = self.nodes[node].read.take() else {
            return;
        };
        let period = self.period();
        let readings = budgets().map(|budget| {
            let rows = seen.iter().map(|id| &self.entries[id].row);
            let counted = rows.filter(|row| {
                Period::Daily.start_of(log_id_time(row.id)) == period && budget.covers(&row.spender)
            });
            BudgetReading { stored: counted.map(|row| row.charge.cost).sum(), notified: Vec::new(), budget }
        });
        let included = uncertain.into_iter().filter(|id| seen.contains(id)).collect();
        self.ledgers[node].reload(Reading { number, budgets: readings.into(), included }, self.now);
        for id in seen {
            let entry = self.entries.get_mut(&id).unwrap();
            entry.is_counted |= entry.node == node;
        }
    }

    fn record_leases(&mut self, node: usize, is_recalled: bool) {
        if is_recalled {
            self.ledgers[node].recall();
        }
        for lease in self.ledgers[node].take_lease_changes(self.now) {
            self.lease_table.insert((lease.budget, lease.starts_at, node), lease.amount);
        }
    }

    /// A single node knows exactly what was spent, and reserves exactly what its running calls have reserved.
    fn check_amounts(&mut self) {
        let (now, period) = (self.now, self.period());
        for budget in budgets() {
            let counts = |row: &SpendRow| {
                Period::Daily.start_of(log_id_time(row.id)) == period && budget.covers(&row.spender)
            };
            let counted = self.entries.values().filter(|entry| entry.is_counted && counts(&entry.row));
            let expected: Amount = counted.map(|entry| entry.row.charge.cost).sum();
            assert_eq!(self.ledgers[0].spent(budget.id, now).unwrap().1, expected);
            let running = self
                .calls
                .iter()
                .filter(|call| call.period == period && budget.covers(&call.reserved.spender));
            let reserved: Amount = running.map(|call| call.reserved.charge.cost).sum();
            let state = self.ledgers[0].budgets.iter().find(|state| state.budget.id == budget.id).unwrap();
            assert_eq!(state.reserved, reserved);
        }
    }

    /// All calls of a period, running or ended, stay below the limit plus one call.
    fn check_limit(&self) {
        let mut committed = self.real_cost.clone();
        for call in &self.calls {
            *committed.entry(call.period).or_default() += call.reserved.charge.cost;
        }
        for (period, cost) in committed {
            assert!(cost < LIMIT + MAX_AMOUNT, "{cost} in the period that starts at {period}");
        }
    }

    /// The recorded leases cover what is outstanding on every node.
    fn check_leases(&mut self) {
        let period = self.period();
        for (node, ledger) in self.ledgers.iter_mut().enumerate() {
            ledger.roll_over(self.now);
            for state in &ledger.budgets {
                let outstanding = state.unstored + state.reserved;
                let key = (state.budget.id, period, node);
                let recorded = self.lease_table.get(&key).copied().unwrap_or(0);
                assert!(
                    outstanding <= state.leased && state.leased <= recorded,
                    "{state:?}, recorded {recorded}"
                );
            }
        }
    }
}

proptest! {
    #[test]
    fn a_single_node_counts_every_row_once_and_keeps_the_limit(ops in prop::collection::vec(op(1), 1..120)) {
        let mut world = World::new(1, Sharing::SingleNode);
        for op in ops {
            world.apply(op);
            world.check_amounts();
            world.check_limit();
        }
        for call in &mut world.calls {
            world.ledgers[0].release(&mut call.reserved);
        }
        world.calls.clear();
        world.check_amounts();
    }

    #[test]
    fn several_nodes_keep_the_limit_together(ops in prop::collection::vec(op(3), 1..200)) {
        let mut world = World::new(3, Sharing::Leased);
        for op in ops {
            world.apply(op);
            world.check_limit();
            world.check_leases();
        }
    }
}

#[test]
fn the_model_covers_a_period_change() {
    let mut world = World::new(1, Sharing::SingleNode);
    for op in [
        Op::Reserve { node: 0, by_key: true, amount: 20 },
        Op::Advance { hours: DAY / HOUR },
        Op::Commit { call: 0, share: 100 },
        Op::WriteStart { node: 0 },
        Op::ReadBegin { node: 0 },
        Op::WriteCommit { node: 0 },
        Op::ReadSnapshot { node: 0 },
        Op::WriteEnd { node: 0, is_reported: true },
        Op::ReadEnd { node: 0 },
    ] {
        world.apply(op);
        world.check_amounts();
    }
}
