//! The canonical form for cache keys is made on the thread of the request, for bodies of any size. A value is not copied
//! once per level of nesting.

use gateway_core::cache::canonical_json;

use crate::cost::cost;

#[test]
fn a_deeply_nested_body_is_not_much_more_expensive() {
    let least = |body: &str| {
        let canonical = |bytes: &[u8]| drop(canonical_json(bytes, &[]));
        (0..5).map(|_| cost(canonical, body.as_bytes())).fold(f64::MAX, f64::min)
    };
    let text = "x".repeat(1 << 20);
    let flat = format!(r#"{{"b":"{text}","a":1}}"#);
    let depth = 120;
    let deep = format!(r#"{}"{text}"{}"#, r#"{"b":"#.repeat(depth), r#","a":1}"#.repeat(depth));
    assert!(canonical_json(deep.as_bytes(), &[]).is_ok());
    let (flat, deep) = (least(&flat), least(&deep));
    assert!(deep <= 4.0 * flat, "{deep} ns per byte, but {flat} ns for a flat body");
}
