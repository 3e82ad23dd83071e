//! The compiled form of a definition, and the selection of targets for a request.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::check::InvalidModel;
use super::condition::{Query, QueryFacts};
use super::definition::{CacheDefault, Definition, FallbackCause, Mode, NamedCause, Strategy, Target};
use super::{BodyEdits, Selection};
use crate::llm::failure::{AttemptOutcome, Refusal};
use crate::llm::prompt_cache::PromptCache;
use crate::pricing::Price;
use crate::route::{Group, Member, RouteStrategy};

/// A compiled definition.
#[derive(Debug)]
pub struct Model {
    pub description: String,
    pub cache: Option<CacheDefault>,
    pub prompt_cache: Option<PromptCache>,
    pub price: Option<Arc<Price>>,
    pub hidden: bool,
    pub enabled: bool,
    targets: Vec<Arc<ModelTarget>>,
    root: Node,
    /// A condition asks about the body.
    needs_body: bool,
    /// The fields of the body that conditions ask about.
    params: BTreeSet<String>,
    patterns: usize,
    /// The targets of every request, if no condition chooses among them.
    fixed: Option<Arc<Selection>>,
}

/// A provider and model that a named model may be served by.
#[derive(Debug, Clone)]
pub struct ModelTarget {
    pub id: String,
    pub provider: String,
    /// A trailing star stands for what the star of the name matched.
    model: String,
    pub edits: BodyEdits,
    pub retries: Option<u32>,
    pub timeout: Option<Duration>,
    pub first_byte_timeout: Option<Duration>,
    /// Overrides the known price.
    pub price: Option<Arc<Price>>,
    /// It is tried only after this failure.
    pub when: Option<Refusal>,
    /// None: the usual ones.
    causes: Option<Causes>,
}

/// The failures after which the next target is tried.
#[derive(Debug, Clone, PartialEq)]
struct Causes(Vec<FallbackCause>);

#[derive(Debug)]
enum Node {
    Target { index: usize, weight: u32, when: Option<Refusal> },
    Group { choice: Choice, members: Vec<Node>, weight: u32 },
}

/// A query, and the member that it chooses.
type Condition = (Query, usize);
type Conditions = [Condition];
/// The member of the first condition that matches.
type Choose<'f> = dyn Fn(&Conditions) -> Option<usize> + 'f;

#[derive(Debug)]
enum Choice {
    Order(RouteStrategy),
    /// The member of the first condition that matches.
    Conditional {
        conditions: Vec<Condition>,
        default: usize,
    },
}

impl Model {
    /// How many patterns its conditions have. Each is compiled when it is first matched; then it takes up to 100 KiB,
    /// and as much again for each thread that uses it.
    pub fn patterns(&self) -> usize {
        self.patterns
    }

    /// Compiles a definition that was checked when it was saved.
    pub fn compile(definition: &Definition) -> Result<Self, InvalidModel> {
        let price = definition.price.as_ref().map(|price| Arc::new(price.price()));
        let (targets, params) = (Vec::new(), BTreeSet::new());
        let mut compiler = Compiler { definition, price, targets, needs_body: false, params };
        let root = compiler.group(&definition.strategy, &definition.targets, Inherited::default())?;
        let Compiler { price, targets, needs_body, params, .. } = compiler;
        let mut model = Self {
            description: definition.description.clone(),
            cache: definition.cache.clone(),
            prompt_cache: definition.prompt_cache,
            price,
            hidden: definition.hidden,
            enabled: definition.enabled,
            targets,
            patterns: root.patterns(),
            root,
            needs_body,
            params,
            fixed: None,
        };
        if !model.root.has_conditions() {
            model.fixed = Some(Arc::new(model.selection(&|_| None)));
        }
        Ok(model)
    }

    /// What a request asks for that lists targets itself.
    pub fn of_request(targets: Vec<Arc<ModelTarget>>) -> Self {
        let members = Vec::new();
        Self {
            description: String::new(),
            cache: None,
            prompt_cache: None,
            price: None,
            hidden: true,
            enabled: true,
            targets,
            root: Node::Group { choice: Choice::Order(RouteStrategy::Order), members, weight: 1 },
            needs_body: false,
            params: BTreeSet::new(),
            patterns: 0,
            fixed: None,
        }
    }

    /// Whether the selection depends on the body of the request.
    pub fn needs_body(&self) -> bool {
        self.needs_body
    }

    /// The fields of the body that the selection depends on.
    pub fn params(&self) -> impl Iterator<Item = &str> {
        self.params.iter().map(String::as_str)
    }

    /// All targets, whatever the conditions choose.
    pub fn targets(&self) -> &[Arc<ModelTarget>] {
        &self.targets
    }

    /// The targets for a request.
    pub fn select(&self, facts: &impl QueryFacts) -> Arc<Selection> {
        if let Some(fixed) = &self.fixed {
            return Arc::clone(fixed);
        }
        let choose = |conditions: &Conditions| {
            let matched = conditions.iter().find(|(query, _)| query.matches(facts));
            matched.map(|(_, member)| *member)
        };
        Arc::new(self.selection(&choose))
    }

    fn selection(&self, choose: &Choose<'_>) -> Selection {
        let mut selected = Selected { choose, model: self, targets: Vec::new(), reserved: Vec::new() };
        let member = selected.visit(&self.root);
        let route = match member {
            Some(Member::Group(group)) => group,
            Some(target @ Member::Target { .. }) => {
                Group { strategy: RouteStrategy::Order, weight: 1, members: vec![target] }
            }
            None => Group { strategy: RouteStrategy::Order, weight: 1, members: Vec::new() },
        };
        let Selected { mut targets, reserved, .. } = selected;
        targets.extend(reserved);
        Selection { targets, route }
    }
}

impl Node {
    /// How many patterns its conditions have.
    fn patterns(&self) -> usize {
        let Self::Group { choice, members, .. } = self else { return 0 };
        let own = match choice {
            Choice::Order(_) => 0,
            Choice::Conditional { conditions, .. } => {
                conditions.iter().map(|(query, _)| query.patterns()).sum()
            }
        };
        own + members.iter().map(Self::patterns).sum::<usize>()
    }

    fn has_conditions(&self) -> bool {
        match self {
            Self::Target { .. } => false,
            Self::Group { choice: Choice::Conditional { .. }, .. } => true,
            Self::Group { members, .. } => members.iter().any(Self::has_conditions),
        }
    }
}

/// Collects the targets of a request.
struct Selected<'a> {
    /// The member of the first condition that matches.
    choose: &'a Choose<'a>,
    model: &'a Model,
    targets: Vec<Arc<ModelTarget>>,
    /// Those with `when`.
    reserved: Vec<Arc<ModelTarget>>,
}

impl Selected<'_> {
    /// The node as a member of the route. None if it serves only one kind of failure.
    fn visit(&mut self, node: &Node) -> Option<Member> {
        match node {
            Node::Target { index, weight, when } => {
                let target = Arc::clone(self.model.targets.get(*index)?);
                if when.is_some() {
                    self.reserved.push(target);
                    return None;
                }
                self.targets.push(target);
                Some(Member::Target { index: self.targets.len() - 1, weight: *weight })
            }
            Node::Group { choice: Choice::Conditional { conditions, default }, members, .. } => {
                let chosen = members.get((self.choose)(conditions).unwrap_or(*default))?;
                self.visit(chosen)
            }
            Node::Group { choice: Choice::Order(strategy), members, weight } => {
                let members: Vec<Member> = members.iter().filter_map(|member| self.visit(member)).collect();
                let group = Group { strategy: *strategy, weight: *weight, members };
                (!group.members.is_empty()).then_some(Member::Group(group))
            }
        }
    }
}

/// What a group passes on to its members.
#[derive(Clone, Copy, Default)]
struct Inherited<'a> {
    causes: Option<&'a [FallbackCause]>,
    weight: u32,
    when: Option<Refusal>,
}

struct Compiler<'a> {
    definition: &'a Definition,
    price: Option<Arc<Price>>,
    targets: Vec<Arc<ModelTarget>>,
    needs_body: bool,
    params: BTreeSet<String>,
}

impl<'a> Compiler<'a> {
    fn group(
        &mut self,
        strategy: &'a Strategy,
        targets: &'a [Target],
        inherited: Inherited<'a>,
    ) -> Result<Node, InvalidModel> {
        let causes = strategy.on.as_deref().or(inherited.causes);
        let within = Inherited { causes, ..inherited };
        let members =
            targets.iter().map(|target| self.member(target, within)).collect::<Result<Vec<_>, _>>()?;
        let choice = match strategy.mode {
            Mode::Single | Mode::Order => Choice::Order(RouteStrategy::Order),
            Mode::Weighted => Choice::Order(RouteStrategy::Weighted),
            Mode::Cheapest => Choice::Order(RouteStrategy::Cheapest),
            Mode::Fastest => Choice::Order(RouteStrategy::Fastest),
            Mode::Conditional => self.conditional(strategy, targets)?,
        };
        Ok(Node::Group { choice, members, weight: inherited.weight })
    }

    fn conditional(&mut self, strategy: &Strategy, targets: &[Target]) -> Result<Choice, InvalidModel> {
        let place = |id: &str| targets.iter().position(|target| target.id() == id).unwrap_or(0);
        let mut conditions = Vec::new();
        for condition in strategy.conditions.iter().flatten() {
            let query = Query::parse_checked(&condition.query).map_err(|(field, message)| InvalidModel {
                field,
                message,
                severity: super::Severity::Unroutable,
            })?;
            let mut fields = BTreeSet::new();
            query.collect_fields(&mut fields);
            self.needs_body |= fields.iter().any(|field| field.needs_body());
            self.params.extend(fields.iter().filter_map(|field| field.param()).map(ToOwned::to_owned));
            conditions.push((query, place(&condition.then)));
        }
        Ok(Choice::Conditional {
            conditions,
            default: place(strategy.default.as_deref().unwrap_or_default()),
        })
    }

    fn member(&mut self, target: &'a Target, inherited: Inherited<'a>) -> Result<Node, InvalidModel> {
        let weight = target.weight.unwrap_or(1);
        let when = target.when.or(inherited.when);
        if let Some(members) = &target.targets {
            static ORDER: Strategy =
                Strategy { mode: Mode::Order, on: None, conditions: None, default: None };
            let strategy = target.strategy.as_ref().unwrap_or(&ORDER);
            return self.group(strategy, members, Inherited { weight, when, ..inherited });
        }
        let milliseconds = |given: Option<u64>| given.map(Duration::from_millis);
        self.targets.push(Arc::new(ModelTarget {
            id: target.id().to_owned(),
            provider: target.provider.clone().unwrap_or_default(),
            model: target.model.clone().unwrap_or_default(),
            edits: BodyEdits::new(target.params.as_ref(), target.defaults.as_ref()),
            retries: target.retries.or(self.definition.retries),
            timeout: milliseconds(target.timeout_ms.or(self.definition.timeout_ms)),
            first_byte_timeout: milliseconds(self.definition.first_byte_timeout_ms),
            price: self.price.clone(),
            when,
            causes: inherited.causes.map(|causes| Causes(causes.to_vec())),
        }));
        Ok(Node::Target { index: self.targets.len() - 1, weight, when })
    }
}

impl ModelTarget {
    /// A target that a request names itself.
    pub fn direct(provider: impl Into<String>, model: impl Into<String>) -> Self {
        Self {
            id: "1".to_owned(),
            provider: provider.into(),
            model: model.into(),
            edits: BodyEdits::default(),
            retries: None,
            timeout: None,
            first_byte_timeout: None,
            price: None,
            when: None,
            causes: None,
        }
    }

    /// Sets fields of the body.
    #[must_use]
    pub fn with_params(self, params: &Map<String, Value>) -> Self {
        Self { edits: BodyEdits::new(Some(params), None), ..self }
    }

    /// Puts what the star of the name matched into the place of its own star.
    pub fn fill_star(&mut self, star: Option<&str>) {
        self.model = self.model(star);
    }

    /// The model still has a star.
    pub fn has_star(&self) -> bool {
        self.model.ends_with('*')
    }

    /// The provider's name of the model. `star` is what the star of the name matched.
    pub fn model(&self, star: Option<&str>) -> String {
        match (self.model.strip_suffix('*'), star) {
            (Some(prefix), Some(star)) => format!("{prefix}{star}"),
            _ => self.model.clone(),
        }
    }

    /// Whether what follows depends on why the provider refused the input.
    pub fn watches_refusals(&self) -> bool {
        let watched = [Refusal::Context, Refusal::ContentFilter];
        self.when.is_some()
            || watched
                .iter()
                .any(|refusal| self.falls_back_after(AttemptOutcome::Refused(*refusal)) == Some(true))
    }

    /// Whether another target may be tried after this one failed. None: as the kind of failure has it.
    pub fn falls_back_after(&self, outcome: AttemptOutcome) -> Option<bool> {
        let causes = &self.causes.as_ref()?.0;
        let names = |cause: NamedCause| causes.contains(&FallbackCause::Named(cause));
        Some(match outcome {
            AttemptOutcome::Status { code } => {
                causes.contains(&FallbackCause::Status(code))
                    || (code >= 500 && names(NamedCause::ServerError))
                    || (code == 408 && names(NamedCause::Timeout))
            }
            AttemptOutcome::Timeout => names(NamedCause::Timeout),
            AttemptOutcome::Connect | AttemptOutcome::Reset => names(NamedCause::Connect),
            AttemptOutcome::InvalidResponse | AttemptOutcome::StreamError => {
                names(NamedCause::Connect) || names(NamedCause::ServerError)
            }
            AttemptOutcome::Refused(Refusal::Context) => names(NamedCause::Context),
            AttemptOutcome::Refused(Refusal::ContentFilter) => names(NamedCause::ContentFilter),
            // The target was never called: another format may express the request.
            AttemptOutcome::Untranslatable => true,
        })
    }
}
