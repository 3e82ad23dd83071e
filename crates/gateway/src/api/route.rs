//! The table of routes. A route is a method, a path, a handler and one sentence; everything else that the OpenAPI
//! document says of it (parameters, bodies, statuses, the role it needs) is read off the handler's signature, so the
//! document cannot drift from the code.

use std::sync::Arc;

use axum::extract::State;
use axum::handler::Handler;
use axum::routing::{MethodFilter, MethodRouter, on};
use gateway_core::access::{Entitlement, Role};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use crate::app::App;
use crate::problem::{Outcome, Problem};

/// One area of the API: one name in the URL, the handler file, the store file, the tests and the document.
pub struct Area {
    pub tag: &'static str,
    pub about: &'static str,
    pub routes: Vec<Route>,
}

pub struct Route {
    pub method: &'static str,
    pub path: &'static str,
    pub summary: &'static str,
    pub operation_id: String,
    /// Root routes carry no `/api/v1`.
    pub root: bool,
    pub handler: MethodRouter<Arc<App>>,
    describe: fn(&mut Operation<'_>),
}

impl Route {
    pub fn describe(&self, operation: &mut Operation<'_>) {
        (self.describe)(operation);
    }
}

macro_rules! methods {
    ($($name:ident = $filter:ident),+ $(,)?) => {$(
        #[must_use]
        pub fn $name<H, T>(self, path: &'static str, handler: H, summary: &'static str) -> Self
        where
            H: Handler<T, Arc<App>> + Documented<T>,
            T: 'static,
        {
            self.add(stringify!($name), MethodFilter::$filter, path, handler, summary)
        }
    )+};
}

impl Area {
    pub fn new(tag: &'static str, about: &'static str) -> Self {
        Self { tag, about, routes: Vec::new() }
    }

    methods!(get = GET, post = POST, put = PUT, delete = DELETE);

    /// The routes added so far live at the root, outside `/api`.
    #[must_use]
    pub fn at_root(mut self) -> Self {
        self.routes.iter_mut().for_each(|route| route.root = true);
        self
    }

    fn add<H, T>(
        mut self,
        method: &'static str,
        filter: MethodFilter,
        path: &'static str,
        handler: H,
        summary: &'static str,
    ) -> Self
    where
        H: Handler<T, Arc<App>> + Documented<T>,
        T: 'static,
    {
        let function = std::any::type_name::<H>().rsplit("::").next().unwrap_or_default();
        self.routes.push(Route {
            method,
            path,
            summary,
            operation_id: format!("{}_{function}", self.tag.replace('-', "_")),
            root: false,
            handler: on(filter, handler),
            describe: <H as Documented<T>>::describe,
        });
        self
    }
}

/// What a handler's signature says of its operation.
pub struct Operation<'a> {
    pub schemas: &'a mut Schemas,
    pub parameters: Vec<Value>,
    pub request_body: Option<Value>,
    pub responses: Vec<(u16, Value)>,
    pub role: Option<Role>,
    pub entitlement: Option<Entitlement>,
    /// Something about who may call, beyond role and plan.
    pub notes: Vec<&'static str>,
}

/// Named schemas. What is read and what is written differ in which fields are required, so each has a generator.
pub struct Schemas {
    pub input: SchemaGenerator,
    pub output: SchemaGenerator,
}

impl Default for Schemas {
    fn default() -> Self {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
            })
        };
        Self {
            input: settings().for_deserialize().into_generator(),
            output: settings().for_serialize().into_generator(),
        }
    }
}

impl Operation<'_> {
    pub fn takes_json<T: JsonSchema>(&mut self) {
        let schema = self.schemas.input.subschema_for::<T>();
        self.request_body =
            Some(json!({"required": true, "content": {"application/json": {"schema": schema}}}));
    }

    pub fn gives_json<T: JsonSchema>(&mut self, status: u16) {
        let schema = self.schemas.output.subschema_for::<T>();
        self.responses.push((
            status,
            json!({"description": "Success", "content": {"application/json": {"schema": schema}}}),
        ));
    }

    /// Each property of the object is a query parameter.
    pub fn takes_query<T: JsonSchema>(&mut self) {
        let schema = self.schemas.input.root_schema_for::<T>().to_value();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let mut property = property.clone();
            let description = property.as_object_mut().and_then(|object| object.remove("description"));
            let mut parameter = json!({
                "name": name, "in": "query", "required": required.contains(&json!(name)), "schema": property,
            });
            if let Some(description) = description {
                parameter["description"] = description;
            }
            self.parameters.push(parameter);
        }
    }
}

/// An argument of a handler, as far as the document cares.
pub trait Input {
    fn describe(operation: &mut Operation<'_>);
}

/// What a handler answers.
pub trait Output {
    fn describe(operation: &mut Operation<'_>);
}

impl Input for State<Arc<App>> {
    fn describe(_: &mut Operation<'_>) {}
}

impl<T: Output> Output for Outcome<T> {
    fn describe(operation: &mut Operation<'_>) {
        T::describe(operation);
    }
}

impl Output for Problem {
    fn describe(_: &mut Operation<'_>) {}
}

/// A function whose arguments and answer describe themselves. `T` is the tuple that axum's `Handler` uses.
pub trait Documented<T> {
    fn describe(operation: &mut Operation<'_>);
}

macro_rules! documented {
    ($($argument:ident),*) => {
        impl<F, Fut, M, $($argument,)*> Documented<(M, $($argument,)*)> for F
        where
            F: FnOnce($($argument),*) -> Fut,
            Fut: Future,
            Fut::Output: Output,
            $($argument: Input,)*
        {
            fn describe(operation: &mut Operation<'_>) {
                $($argument::describe(operation);)*
                Fut::Output::describe(operation);
            }
        }
    };
}
documented!(A1);
documented!(A1, A2);
documented!(A1, A2, A3);
documented!(A1, A2, A3, A4);
documented!(A1, A2, A3, A4, A5);
documented!(A1, A2, A3, A4, A5, A6);
