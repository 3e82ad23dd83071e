//! The table of routes and the OpenAPI document that is generated from it. A route is a method, a path, a handler and a
//! summary. Parameters, bodies, statuses and the required role come from the handler's signature, so that the document
//! cannot drift from the code.

mod document;
mod operation;
mod routes;

pub use document::{document, llms_txt, yaml};
pub use operation::{Operation, OperationInput, OperationOutput, Schemas};
pub use routes::{Area, Route};
