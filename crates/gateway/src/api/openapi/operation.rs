//! Descriptions of operations, collected from the types in a handler's signature.

use std::sync::Arc;

use axum::extract::State;
use gateway_core::access::{Entitlement, Role};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

use super::routes::Route;
use crate::app::App;
use crate::problem::{ApiResult, Problem};

/// What a handler's signature says about its operation.
pub struct Operation<'a> {
    pub schemas: &'a mut Schemas,
    pub parameters: Vec<Value>,
    pub request_body: Option<Value>,
    pub responses: Vec<(u16, Value)>,
    pub role: Option<Role>,
    pub entitlement: Option<Entitlement>,
    /// Whether it writes an audit entry.
    pub audited: bool,
    /// Requirements on the caller beyond role and plan.
    pub notes: Vec<&'static str>,
}

/// Named schemas. Requests and responses differ in which fields are required, so each has its own generator.
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

impl<'a> Operation<'a> {
    /// The description of a route.
    pub fn of(route: &Route, schemas: &'a mut Schemas) -> Self {
        let mut operation = Self {
            schemas,
            parameters: Vec::new(),
            request_body: None,
            responses: Vec::new(),
            role: None,
            entitlement: None,
            audited: false,
            notes: Vec::new(),
        };
        route.describe(&mut operation);
        operation
    }
}

impl Operation<'_> {
    /// Sets a JSON request body.
    pub fn json_body<T: JsonSchema>(&mut self) {
        let schema = self.schemas.input.subschema_for::<T>();
        self.request_body =
            Some(json!({"required": true, "content": {"application/json": {"schema": schema}}}));
    }

    /// Adds a JSON response.
    pub fn json_response<T: JsonSchema>(&mut self, status: u16) {
        let schema = self.schemas.output.subschema_for::<T>();
        self.responses.push((
            status,
            json!({"description": "Success", "content": {"application/json": {"schema": schema}}}),
        ));
    }

    /// Adds each property of the object as a query parameter.
    pub fn query_params<T: JsonSchema>(&mut self) {
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

/// An argument of a handler, which describes itself.
pub trait OperationInput {
    fn describe(operation: &mut Operation<'_>);
}

/// The return value of a handler, which describes itself.
pub trait OperationOutput {
    fn describe(operation: &mut Operation<'_>);
}

impl OperationInput for State<Arc<App>> {
    fn describe(_: &mut Operation<'_>) {}
}

impl<T: OperationOutput> OperationOutput for ApiResult<T> {
    fn describe(operation: &mut Operation<'_>) {
        T::describe(operation);
    }
}

impl OperationOutput for Problem {
    fn describe(_: &mut Operation<'_>) {}
}

/// A handler whose arguments and return value describe themselves. `T` is the tuple of axum's `Handler`.
pub trait Documented<T> {
    fn describe(operation: &mut Operation<'_>);
}

macro_rules! documented {
    ($($argument:ident),*) => {
        impl<F, Fut, M, $($argument,)*> Documented<(M, $($argument,)*)> for F
        where
            F: FnOnce($($argument),*) -> Fut,
            Fut: Future,
            Fut::Output: OperationOutput,
            $($argument: OperationInput,)*
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
