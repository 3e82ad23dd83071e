//! Conformance tests against the reference implementations of two wire formats that this crate writes by hand: OTLP
//! traces (`opentelemetry-proto`) and Amazon event streams (`aws-smithy-eventstream`).

mod oracles {
    mod eventstream;
    mod otlp;
}
