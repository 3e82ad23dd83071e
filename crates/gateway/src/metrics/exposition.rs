//! The two text formats that Prometheus accepts. `prometheus-client` writes OpenMetrics. The older text format is
//! derived from it: there a counter's family has the suffix `_total`, bounds of buckets have no `.0`, and there is no
//! end marker.

use std::fmt::Write as _;

use prometheus_client::encoding::text;
use prometheus_client::registry::Registry;

pub const OPEN_METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
pub const PROMETHEUS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The registry in OpenMetrics, followed by families that are encoded already.
pub fn open_metrics(registry: &Registry, encoded: &str) -> String {
    let mut output = String::new();
    // Writing to a string does not fail.
    let _ = text::encode_registry(&mut output, registry);
    output.push_str(encoded);
    let _ = text::encode_eof(&mut output);
    output
}

/// Converts OpenMetrics to the Prometheus text format.
pub fn prometheus_text(open_metrics: &str) -> String {
    let mut output = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(text) = line.strip_prefix("# HELP ") {
            help = text.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|text| text.split_once(' '))
        {
            let suffix = if kind == "counter" { "_total" } else { "" };
            if let Some((_, help)) = help.take() {
                let _ = writeln!(output, "# HELP {name}{suffix} {help}");
            }
            let _ = writeln!(output, "# TYPE {name}{suffix} {kind}");
        } else if line != "# EOF" {
            write_sample(&mut output, line);
        }
    }
    output
}

/// Whole numbers as bounds of buckets are written without a fraction.
fn write_sample(output: &mut String, line: &str) {
    match line.split_once("_bucket{le=\"").and_then(|(name, rest)| Some((name, rest.split_once('"')?))) {
        // Names contain no braces, so this is the bound and not a label chosen by a caller.
        Some((name, (bound, rest))) if !name.contains('{') => {
            let bound = bound.strip_suffix(".0").unwrap_or(bound);
            let _ = writeln!(output, "{name}_bucket{{le=\"{bound}\"{rest}");
        }
        _ => {
            let _ = writeln!(output, "{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::metrics::counter::ConstCounter;

    #[test]
    fn counters_are_named_as_each_format_wants() {
        let mut registry = Registry::default();
        registry.register("gateway_things", "All things", ConstCounter::new(3_u64));
        let open =
            open_metrics(&registry, "# TYPE gateway_parts summary\ngateway_parts{quantile=\"0.5\"} 1\n");
        assert_eq!(
            open,
            "# HELP gateway_things All things.\n# TYPE gateway_things counter\ngateway_things_total 3\n\
             # TYPE gateway_parts summary\ngateway_parts{quantile=\"0.5\"} 1\n# EOF\n"
        );
        assert_eq!(
            prometheus_text(&open),
            "# HELP gateway_things_total All things.\n# TYPE gateway_things_total counter\ngateway_things_total 3\n\
             # TYPE gateway_parts summary\ngateway_parts{quantile=\"0.5\"} 1\n"
        );
    }

    #[test]
    fn only_bounds_of_buckets_are_rewritten() {
        for (open, text) in [
            ("m_bucket{le=\"5.0\",model=\"x\"} 1", "m_bucket{le=\"5\",model=\"x\"} 1"),
            ("m_bucket{le=\"0.5\"} 1", "m_bucket{le=\"0.5\"} 1"),
            ("m_bucket{le=\"+Inf\"} 1", "m_bucket{le=\"+Inf\"} 1"),
            ("m_total{model=\"a_bucket{le=\\\"5.0\\\"\"} 1", "m_total{model=\"a_bucket{le=\\\"5.0\\\"\"} 1"),
        ] {
            assert_eq!(prometheus_text(open), format!("{text}\n"));
        }
    }
}
