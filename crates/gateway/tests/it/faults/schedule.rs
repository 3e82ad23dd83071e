//! Faults that wait for their call.

use std::sync::{Arc, Mutex};

use gateway_store::faults::{Fault, Injector, Point};

use crate::support::TestApp;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    State,
    Logs,
    Spool,
}

/// Some calls pass, then some fail.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    pub target: Target,
    pub point: Point,
    pub skip: u32,
    pub times: u32,
    pub fault: Fault,
}

/// The faults of a run. They are shared by all databases and spools of its gateways.
#[derive(Clone, Default)]
pub struct Schedule(Arc<Mutex<Vec<Rule>>>);

struct TargetSchedule {
    target: Target,
    schedule: Schedule,
}

impl Schedule {
    pub fn install(&self, app: &TestApp) {
        let injector = |target| -> Option<Arc<dyn Injector>> {
            Some(Arc::new(TargetSchedule { target, schedule: self.clone() }))
        };
        let services = &app.app.services;
        services.db.faults().set(injector(Target::State));
        services.logs.faults().set(injector(Target::Logs));
        services.logs_low_priority.faults().set(injector(Target::Logs));
        app.app.proxy.spool.faults().set(injector(Target::Spool));
    }

    pub fn add(&self, rule: Rule) {
        self.0.lock().unwrap().push(rule);
    }

    /// Ends all faults.
    pub fn clear(&self) {
        self.0.lock().unwrap().clear();
    }
}

impl Injector for TargetSchedule {
    fn fault(&self, point: Point) -> Option<Fault> {
        let mut rules = self.schedule.0.lock().unwrap();
        let mut found = None;
        for rule in rules.iter_mut().filter(|rule| rule.target == self.target && rule.point == point) {
            if rule.skip > 0 {
                rule.skip -= 1;
            } else if found.is_none() {
                rule.times -= 1;
                found = Some(rule.fault);
            }
        }
        rules.retain(|rule| rule.times > 0);
        found
    }
}
