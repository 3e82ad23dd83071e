//! Events of alerts as a sentence for people, which chats show.

use serde_json::Value;

/// One sentence on an alert by the type and data of its event: its name, what was measured, threshold, window and query.
/// `None` for events of another type.
pub fn message(kind: &str, data: &Value) -> Option<String> {
    let is_resolved = match kind {
        "alert.fired" => false,
        "alert.resolved" => true,
        _ => return None,
    };
    let text = |field: &str| data[field].as_str().map(one_line).unwrap_or_default();
    let name = format!("\"{}\"", text("name"));
    let beginning = match (data["test"] == true, is_resolved) {
        (true, _) => format!("Test of alert {name}"),
        (false, true) => format!("Alert {name} is resolved"),
        (false, false) => format!("Alert {name}"),
    };
    let measure = data["measure"].as_str().unwrap_or_default();
    let (label, unit) = label_and_unit(measure);
    let shown = |value: &Value| value.as_f64().map(|value| format!("{}{unit}", rounded(measure, value)));
    let value = shown(&data["value"]).unwrap_or_else(|| "not measured".into());
    let threshold = shown(&data["above"]).unwrap_or_default();
    let window = window(data["window_minutes"].as_u64().unwrap_or(0));
    let mut message = format!("{beginning}: {label} {value} over the last {window} (threshold {threshold}).");
    let query = text("query");
    if !query.trim().is_empty() {
        message = format!("{message} Query: {query}");
    }
    if data["partial"] == true {
        let since = text("scanned_to");
        message = format!("{message} (partial: there were too many rows, only those since {since} count)");
    }
    Some(message)
}

fn label_and_unit(measure: &str) -> (&str, &'static str) {
    match measure {
        "error_rate" => ("error rate", " %"),
        "p95_ms" => ("95th percentile of the latency", " ms"),
        "cost_usd" => ("cost", " USD"),
        other => (other, ""),
    }
}

/// Without digits that say nothing: 12.5 instead of 12.500000000000002.
fn rounded(measure: &str, value: f64) -> String {
    let shown = match measure {
        "error_rate" => format!("{:.4}", value * 100.0),
        "cost_usd" => format!("{value:.6}"),
        _ => format!("{value:.2}"),
    };
    shown.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn window(minutes: u64) -> String {
    if minutes >= 60 && minutes.is_multiple_of(60) {
        format!("{} h", minutes / 60)
    } else {
        format!("{minutes} min")
    }
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn with(changes: &Value) -> Value {
        let mut data = json!({
            "alert_id": "1", "name": "checkout errors", "query": "status:error app:checkout", "measure": "error_rate",
            "above": 0.05, "value": 0.125, "requests": 80, "partial": false, "scanned_to": null,
            "window_minutes": 5, "test": false,
        });
        for (field, value) in changes.as_object().unwrap() {
            data[field] = value.clone();
        }
        data
    }

    #[test]
    fn an_alert_is_told_in_a_sentence_with_units() {
        let end = "Query: status:error app:checkout";
        for (kind, changes, expected) in [
            (
                "alert.fired",
                json!({}),
                r#"Alert "checkout errors": error rate 12.5 % over the last 5 min (threshold 5 %). Query: status:error app:checkout"#,
            ),
            (
                "alert.resolved",
                json!({"value": null, "window_minutes": 120, "query": ""}),
                r#"Alert "checkout errors" is resolved: error rate not measured over the last 2 h (threshold 5 %)."#,
            ),
            (
                "alert.fired",
                json!({"test": true, "measure": "p95_ms", "value": 2300.0, "above": 1500, "window_minutes": 90}),
                &format!(
                    r#"Test of alert "checkout errors": 95th percentile of the latency 2300 ms over the last 90 min (threshold 1500 ms). {end}"#
                ),
            ),
            (
                "alert.fired",
                json!({"measure": "cost_usd", "value": 1.234_567_89, "above": 1}),
                &format!(
                    r#"Alert "checkout errors": cost 1.234568 USD over the last 5 min (threshold 1 USD). {end}"#
                ),
            ),
            (
                "alert.fired",
                json!({"name": "a\nb", "measure": "requests", "value": 10.0, "above": 0}),
                &format!(r#"Alert "a b": requests 10 over the last 5 min (threshold 0). {end}"#),
            ),
            (
                "alert.fired",
                json!({"partial": true, "scanned_to": "2026-11-18T20:00:00.000Z"}),
                &format!(
                    r#"Alert "checkout errors": error rate 12.5 % over the last 5 min (threshold 5 %). {end} (partial: there were too many rows, only those since 2026-11-18T20:00:00.000Z count)"#
                ),
            ),
        ] {
            assert_eq!(message(kind, &with(&changes)).unwrap(), expected);
        }
        assert_eq!(message("key.create", &json!({"name": "a"})), None);
    }
}
