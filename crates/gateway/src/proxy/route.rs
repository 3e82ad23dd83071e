//! From target to target: where a request may go, in which order, and what is tried when an attempt fails. Who is at
//! fault and what that means is decided in `core::llm::failure`; this is only the walk.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway_core::breaker::Permit;
use gateway_core::llm;
use gateway_core::llm::failure::{Failure, Fault, classify};
use gateway_core::llm::paths::Operation;
use gateway_core::route::{self, Facts, Route, mix, pause};
use http::request::Parts;
use rust_decimal::Decimal;

use super::Worker;
use super::body::Payload;
use super::call::{Call, Hop, Way};
use super::hold::hold;
use super::record::Record;
use super::target::{self, Target};
use super::upstream::{self, Answered, Failed};
use super::{headers, local, reshape, translate};
use crate::app::App;
use crate::auth::{Identity, Who};
use crate::problem::{Outcome, Problem};
use crate::server::PROVIDER;

const FALLBACK: &str = "x-gateway-fallback";
const AUTO: &str = "auto";
/// A target that wants to be left alone for longer than this is left for the next one, if there is one.
const PATIENCE: Duration = Duration::from_secs(5);
/// A credential that was rejected is not tried for so long.
const REJECTED_MS: i64 = 5 * 60_000;
/// A credential that was limited rests as long as it was told, within bounds.
const LIMITED_MS: i64 = 10_000;
const LONGEST_REST_MS: i64 = 60 * 60_000;

/// Finds out where the request may go.
pub fn plan(app: &App, identity: &Identity, call: &mut Call) -> Outcome<()> {
    let first = if call.provider == AUTO {
        by_model(app, identity, call)?
    } else {
        let target = target::resolve(app, identity, PROVIDER.as_str(), &call.provider)?;
        let model = call.asked_model.clone();
        // Who does not say what it speaks speaks to the provider as it is.
        let way = if call.format_is_set {
            way_there(call, &target, model.as_deref(), PROVIDER.as_str())?
        } else {
            Way::AsItCame
        };
        Hop { target, model, way, weight: 1, named: true }
    };
    call.hops.push(first);
    for step in std::mem::take(&mut call.steps) {
        let target = target::resolve(app, identity, FALLBACK, &step.provider)?;
        let model = step.model.or_else(|| call.hops[0].model.clone());
        let weight = step.weight.unwrap_or(1);
        let known = call.hops.iter_mut().find(|hop| hop.target.name == target.name && hop.model == model);
        if let Some(hop) = known {
            // Named again, as one does to give the first target its weight.
            hop.weight = weight;
            continue;
        }
        let way = way_to(call, &target, model.as_deref(), FALLBACK)?;
        let named = target.name == call.hops[0].target.name && call.hops[0].named;
        call.hops.push(Hop { target, model, way, weight, named });
    }
    Ok(())
}

/// Puts the targets into the order in which they are tried.
pub fn put_in_order(app: &App, identity: &Identity, call: &mut Call, id: i64) {
    if call.hops.len() < 2 || call.route == Route::Order {
        return;
    }
    let (org, now) = (identity.org.id, app.clock.now());
    let facts: Vec<Facts> = call
        .hops
        .iter()
        .map(|hop| Facts {
            price: price(app, hop),
            latency: app.pulses.latency(org, &hop.target.name, hop.model.as_deref(), now),
            weight: hop.weight,
        })
        .collect();
    let mut places = route::order(call.route, &facts, seed(identity, call, id));
    if call.route == Route::Fastest
        && let Some(session) = &call.session
    {
        // What was the fastest changes from one request to the next; a session's prompt cache is at one provider.
        let stays = |place: &usize| {
            let hop = &call.hops[*place];
            !app.pulses.stays(org, session, &hop.target.name, hop.model.as_deref(), now)
        };
        places.sort_by_key(stays);
    }
    let mut hops: Vec<Option<Hop>> = call.hops.drain(..).map(Some).collect();
    call.hops = places.into_iter().filter_map(|place| hops[place].take()).collect();
}

/// Is there anything that can be tried after a failure? Then the body has to be kept.
pub fn has_choice(call: &Call) -> bool {
    call.retries > 0 || call.hops.len() > 1 || call.hops[0].target.credentials.len() > 1
}

/// Tries one target after the other until one gives an answer, or there is nothing left to try.
pub async fn walk(
    app: &Arc<App>,
    worker: &Worker,
    identity: &Identity,
    call: &mut Call,
    head: &Parts,
    mut payload: Payload,
    record: &mut Record,
) -> Result<Answered, Failed> {
    let mut walk = Walk {
        ends_at: record.started() + app.config.proxy_timeout,
        seed: seed(identity, call, record.id()),
        app,
        worker,
        identity,
        head,
        is_bound: payload.kept().is_some_and(|body| carries_state(call.operation, body)),
    };
    if walk.is_bound {
        let first = call.hops[0].target.name.clone();
        call.hops.retain(|hop| hop.target.name == first);
    }
    let end = call.hops.len() - 1;
    // Those that have been failing come last: never in the way of the others, but better than nothing.
    let mut failing = Vec::new();
    for at in 0..=end {
        call.enter(at);
        if at < end && !walk.is_closed(call) {
            record.passed_over(call.hop(), "passed over: it has been failing (circuit open)");
            failing.push(at);
            continue;
        }
        let is_last = at == end && failing.is_empty();
        match walk.at_target(call, &mut payload, record, is_last).await {
            Err(failed) if !is_last && walk.goes_on(call, &failed) => record.attempt_failed(&failed),
            ended => return ended,
        }
    }
    let last = failing.pop().unwrap_or(end);
    for at in failing {
        call.enter(at);
        match walk.at_target(call, &mut payload, record, false).await {
            Err(failed) if walk.goes_on(call, &failed) => record.attempt_failed(&failed),
            ended => return ended,
        }
    }
    call.enter(last);
    walk.at_target(call, &mut payload, record, true).await
}

/// What stays the same from attempt to attempt.
struct Walk<'a> {
    app: &'a Arc<App>,
    worker: &'a Worker,
    identity: &'a Identity,
    head: &'a Parts,
    ends_at: Instant,
    seed: u64,
    /// The body refers to what one account keeps: no other can answer.
    is_bound: bool,
}

impl Walk<'_> {
    /// One target: its credentials and retries. An error's attempt is left open, for whoever decides what follows.
    async fn at_target(
        &mut self,
        call: &mut Call,
        payload: &mut Payload,
        record: &mut Record,
        is_last: bool,
    ) -> Result<Answered, Failed> {
        let mut tried = Vec::new();
        let mut again = 0;
        call.credential = self.credential(call, &tried);
        loop {
            let more = !is_last || again < call.retries || self.other_credential(call, &tried).is_some();
            record.attempt_begins(call);
            let failed = match self.once(call, payload, record, more).await {
                Ok(answered) => {
                    self.went_well(call, record);
                    return Ok(answered);
                }
                Err(failed) => failed,
            };
            if failed.usage_refused && !call.usage_refused && payload.kept().is_some() {
                record.attempt_failed(&failed);
                call.usage_refused = true;
                continue;
            }
            let judged = self.judge(call, &failed);
            self.went_wrong(call, &failed, judged);
            let limited = failed.status == Some(429);
            let of_credential = judged.fault == Fault::Credential || limited;
            // Asked again: others may have found out meanwhile that a credential cannot be used.
            if let Some(other) = self.other_credential(call, &tried).filter(|_| of_credential)
                && self.time_is_left()
            {
                record.attempt_failed(&failed);
                tried.extend(call.credential);
                call.credential = Some(other);
                continue;
            }
            if !judged.retry || again >= call.retries {
                return Err(failed);
            }
            again += 1;
            let wait = wait(again, &failed, record.id());
            if (wait > PATIENCE && !is_last) || Instant::now() + wait >= self.ends_at {
                return Err(failed);
            }
            record.attempt_failed(&failed);
            drop(failed);
            tokio::time::sleep(wait).await;
            tried.clear();
            call.credential = self.credential(call, &tried);
        }
    }

    fn credential(&self, call: &Call, tried: &[usize]) -> Option<usize> {
        call.target().choose(self.seed, self.app.clock.now().0, tried)
    }

    /// The credential to try when the one of this attempt is not taken.
    fn other_credential(&self, call: &Call, tried: &[usize]) -> Option<usize> {
        if call.target().credentials.len() < 2 || self.is_bound || self.shows_own(call) {
            return None;
        }
        let used: Vec<usize> = tried.iter().chain(&call.credential).copied().collect();
        self.credential(call, &used)
    }

    /// One attempt. While there is more to try, the answer is held back until it is known to be good.
    async fn once(
        &self,
        call: &mut Call,
        payload: &mut Payload,
        record: &Record,
        more: bool,
    ) -> Result<Answered, Failed> {
        let limit = call.timeout.min(self.ends_at.saturating_duration_since(Instant::now()));
        let ends_at = tokio::time::Instant::now() + limit;
        let body = match payload.outbound(call) {
            Ok(Some(body)) => body,
            Ok(None) => return Err(Failed::timeout("the request has been sent already")),
            Err(problem) => return Err(untranslatable(call, problem)),
        };
        let answered = if call.target().is_sandbox() {
            local::answer(call, self.head, body, limit, self.app.clock.now()).await?
        } else {
            upstream::attempt(self.app, self.worker, call, self.head, body, limit).await?
        };
        let answered = if more {
            hold(answered, call.target().shape, call.format().is_some(), ends_at).await?
        } else {
            answered
        };
        if reshape::is_idle(call) {
            return Ok(answered);
        }
        reshape::reshape(call, answered, &record.naming(), ends_at).await
    }

    fn judge(&self, call: &Call, failed: &Failed) -> Failure {
        let stop = Failure { fault: Fault::Caller, retry: false, next: false };
        if failed.callers_fault.is_some() {
            return stop;
        }
        match classify(failed.outcome) {
            // A credential of the caller's own is the caller's affair.
            Some(judged) if judged.fault == Fault::Credential && self.shows_own(call) => stop,
            Some(judged) => judged,
            None => stop,
        }
    }

    fn shows_own(&self, call: &Call) -> bool {
        headers::has_callers_credential(self.app, call, &self.head.headers)
    }

    fn is_closed(&self, call: &Call) -> bool {
        let now = self.app.clock.now();
        self.app.pulses.ask(self.identity.org.id, &call.target().name, call.model(), now) != Permit::Stay
    }

    fn went_well(&self, call: &Call, record: &Record) {
        let (org, now, in_chain) = (self.identity.org.id, self.app.clock.now(), call.hops.len() > 1);
        let took = record.attempt_began().map(|began| began.elapsed()).unwrap_or_default();
        let name = &call.target().name;
        self.app.pulses.answered(org, name, call.model(), now, took, in_chain);
        if call.usage_refused {
            // One refusal is enough: the next stream need not be sent twice.
            call.target().refuses_usage.store(true, std::sync::atomic::Ordering::Relaxed);
        }
        if in_chain
            && call.route == Route::Fastest
            && let Some(session) = &call.session
        {
            self.app.pulses.served(org, session, name, call.model(), now);
        }
    }

    fn went_wrong(&self, call: &Call, failed: &Failed, judged: Failure) {
        let (org, now, name) = (self.identity.org.id, self.app.clock.now(), &call.target().name);
        match judged.fault {
            Fault::Target => self.app.pulses.failed(org, name, call.model(), now),
            // It answered; what was never sent says nothing of it.
            Fault::Caller | Fault::Credential if failed.status.is_some() => {
                self.app.pulses.lives(org, name, call.model(), now);
            }
            Fault::Caller | Fault::Credential => {}
        }
        if judged.fault == Fault::Caller {
            return;
        }
        let Some(credential) = call.credential.and_then(|place| call.target().credentials.get(place)) else {
            return;
        };
        if self.shows_own(call) {
            return;
        }
        if judged.fault == Fault::Credential {
            credential.rest(now.0 + REJECTED_MS);
        } else if failed.status == Some(429) {
            let told = failed.retry_after.and_then(|wait| i64::try_from(wait.as_millis()).ok());
            credential.rest(now.0 + told.unwrap_or(LIMITED_MS).min(LONGEST_REST_MS));
        }
    }

    /// Is it worth while to try another target?
    fn goes_on(&self, call: &Call, failed: &Failed) -> bool {
        self.judge(call, failed).next && self.time_is_left()
    }

    fn time_is_left(&self) -> bool {
        Instant::now() < self.ends_at
    }
}

/// What cannot be said to the target that the caller named is the caller's affair; what cannot be said to another
/// one leaves that one out.
fn untranslatable(call: &Call, problem: Problem) -> Failed {
    let why = format!("the request cannot be translated: {}", problem.message);
    let failed = Failed::of(llm::failure::Outcome::Untranslatable, why);
    let is_named = call.hop().target.name == call.provider || call.hops.len() == 1;
    Failed { callers_fault: is_named.then(|| Box::new(problem)), ..failed }
}

/// How long to wait before the next attempt at the same target.
fn wait(again: u32, failed: &Failed, id: i64) -> Duration {
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let chance = (mix(id.cast_unsigned() ^ u64::from(again)) >> 11) as f64 / (1u64 << 53) as f64;
    pause(again, chance).max(failed.retry_after.unwrap_or_default())
}

/// The same for all requests of a session, so that they meet the same account and its prompt cache. Answers that can
/// be referred to later (`previous_response_id`) are kept together by the key that made them.
fn seed(identity: &Identity, call: &Call, id: i64) -> u64 {
    let key = || match &identity.who {
        Who::Key(key) => key.id.0.as_u128(),
        Who::User { id, .. } => id.0.as_u128(),
        Who::Org => 0,
    };
    let fold = |text: &str| text.bytes().fold(0, |seed, byte| mix(seed ^ u64::from(byte)));
    let half = |number: u128| u64::try_from(number & u128::from(u64::MAX)).unwrap_or(0);
    match &call.session {
        Some(session) => fold(session) ^ half(identity.org.id.0.as_u128()),
        None if call.operation == Operation::Responses => half(key()) ^ call.user.as_deref().map_or(0, fold),
        None => mix(id.cast_unsigned()),
    }
}

/// Does the body refer to something that only the account that made it has?
fn carries_state(operation: Operation, body: &[u8]) -> bool {
    let begins_text = |after: &[u8]| {
        let value = after.trim_ascii_start().strip_prefix(b":").map(<[u8]>::trim_ascii_start);
        value.is_some_and(|value| value.starts_with(b"\""))
    };
    let has = |key: &[u8]| {
        memchr::memmem::find_iter(body, key).any(|at| body.get(at + key.len()..).is_some_and(begins_text))
    };
    operation == Operation::Responses && (has(b"\"previous_response_id\"") || has(b"\"encrypted_content\""))
}

/// What the same tokens cost here against elsewhere: most calls read about three times what they write.
fn price(app: &App, hop: &Hop) -> Option<Decimal> {
    let price = app.prices.find(hop.target.kind.name, hop.model.as_deref()?)?;
    Some(price.input_per_mtok? * Decimal::from(3) + price.output_per_mtok?)
}

/// How a request that came for the first target looks at this one.
fn way_to(call: &Call, target: &Target, model: Option<&str>, header: &str) -> Outcome<Way> {
    let first = &call.hops[0];
    let same_kind = target.kind.name == first.target.kind.name;
    let same_model = model == call.asked_model.as_deref();
    if same_kind && first.way == Way::AsItCame && (!call.model_in_path || same_model) {
        return Ok(Way::AsItCame);
    }
    way_there(call, target, model, header)
}

/// How a request looks at a target that the caller need not have had in mind.
fn way_there(call: &Call, target: &Target, model: Option<&str>, header: &str) -> Outcome<Way> {
    if translate::is_needed(call, target) {
        return if translate::is_possible(call, target) {
            Ok(Way::Translated)
        } else {
            Err(no_way(target, header))
        };
    }
    if matches!(call.operation, Operation::Other | Operation::Models) {
        return Ok(Way::AsItCame);
    }
    if !call.caller_is_known && call.hops.first().is_some_and(|first| first.target.shape != target.shape) {
        return Err(no_way(target, header));
    }
    let path = target.kind.path_for(call.operation, model, call.stream);
    path.map(Way::At).ok_or_else(|| no_way(target, header))
}

fn no_way(target: &Target, header: &str) -> Problem {
    Problem::field(header, format!("{} has no endpoint that takes this request", target.name))
}

/// `X-Gateway-Provider: auto`: the provider that the model belongs to.
fn by_model(app: &App, identity: &Identity, call: &Call) -> Outcome<Hop> {
    let wrong = |why: String| Problem::field(PROVIDER.as_str(), why);
    let Some(asked) = &call.asked_model else {
        return Err(wrong("'auto' needs a request that names a model".into()));
    };
    let prefixed = asked
        .split_once('/')
        .filter(|(name, model)| !model.is_empty() && target::find(app, identity, name).is_some());
    let (name, model, named) = match prefixed {
        Some((name, model)) => (name, model, true),
        None => (one_for(app, identity, asked)?, asked.as_str(), false),
    };
    let target = target::resolve(app, identity, PROVIDER.as_str(), name)?;
    let way = way_there(call, &target, Some(model), PROVIDER.as_str())?;
    Ok(Hop { target, model: Some(model.to_owned()), way, weight: 1, named })
}

/// The one provider that has this model: among those that the organization says have it, else among those with a
/// price for it; with a stored credential rather than without.
fn one_for<'a>(app: &'a App, identity: &'a Identity, model: &str) -> Outcome<&'a str> {
    let own = identity.org.providers.iter();
    let own: Vec<&str> = own
        .filter(|(_, target)| target.models.iter().any(|has| has == model))
        .map(|(name, _)| name.as_str())
        .collect();
    let mut found = if own.is_empty() { app.prices.providers_for_model(model) } else { own };
    // Without an address, or with a path that only its user can tell, it is no candidate.
    found.retain(|name| {
        target::find(app, identity, name)
            .is_some_and(|target| target.base.is_some() && !target.kind.chat_path.contains("{project}"))
    });
    let ready =
        |name: &&str| target::find(app, identity, name).is_some_and(|target| !target.credentials.is_empty());
    if found.iter().filter(|name| ready(name)).count() == 1 {
        found.retain(ready);
    }
    let shown: String = model.chars().take(100).collect();
    match *found {
        [one] => Ok(one),
        [] => Err(Problem::field(
            PROVIDER.as_str(),
            format!("'auto' knows no provider of the model '{shown}'; name one, or ask for provider/model"),
        )),
        _ => Err(Problem::field(
            PROVIDER.as_str(),
            format!(
                "'auto' finds the model '{shown}' at several providers: {}; name one, or ask for provider/model",
                found.join(", ")
            ),
        )),
    }
}
