//! The two text formats that Prometheus reads. They differ in the names of counters and info metrics, in the bounds of
//! buckets, in the end marker, and only OpenMetrics has exemplars.

use std::fmt::{Display, Write as _};

use gateway_core::histogram::HistogramReading;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Prometheus,
    OpenMetrics,
}

impl Format {
    pub fn from_accept(accept: &str) -> Self {
        let is_open = accept.to_ascii_lowercase().contains("application/openmetrics-text");
        if is_open { Self::OpenMetrics } else { Self::Prometheus }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
    Summary,
    /// A gauge of 1 whose labels are the information.
    Info,
}

pub type Labels<'a> = &'a [(&'a str, &'a str)];

/// A request that is an example of a bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exemplar {
    pub trace_id: [u8; 16],
    pub seconds: f64,
    /// Milliseconds since 1970.
    pub at: i64,
}

/// The unit that a histogram is shown in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    Seconds,
    /// Of families from before base units were used.
    Milliseconds,
}

pub struct Exposition {
    format: Format,
    text: String,
}

impl Exposition {
    pub fn new(format: Format) -> Self {
        Self { format, text: String::with_capacity(16 << 10) }
    }

    /// Starts a family. The name of a counter or info metric has no suffix. `help` is one line.
    pub fn family(&mut self, name: &'static str, kind: Kind, help: &str) -> Family<'_> {
        let (suffix, kind_name) = match (kind, self.format) {
            (Kind::Counter, Format::Prometheus) => ("_total", "counter"),
            (Kind::Counter, Format::OpenMetrics) => ("", "counter"),
            (Kind::Info, Format::Prometheus) => ("_info", "gauge"),
            (Kind::Info, Format::OpenMetrics) => ("", "info"),
            (Kind::Gauge, _) => ("", "gauge"),
            (Kind::Histogram, _) => ("", "histogram"),
            (Kind::Summary, _) => ("", "summary"),
        };
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "# HELP {name}{suffix} {help}\n# TYPE {name}{suffix} {kind_name}");
        let suffix = match kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram | Kind::Summary => "",
        };
        Family { format: self.format, text: &mut self.text, name, suffix }
    }

    /// A family with one sample without labels.
    pub fn single(&mut self, name: &'static str, kind: Kind, help: &str, value: impl Display) {
        self.family(name, kind, help).sample(&[], value);
    }

    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }
}

pub struct Family<'a> {
    format: Format,
    text: &'a mut String,
    name: &'static str,
    suffix: &'static str,
}

impl Family<'_> {
    pub fn sample(&mut self, labels: Labels<'_>, value: impl Display) {
        self.line(self.suffix, None, labels, value);
        self.text.push('\n');
    }

    /// A part of a summary: the samples `_sum` and `_count`.
    pub fn part(&mut self, suffix: &str, value: impl Display) {
        self.line(suffix, None, &[], value);
        self.text.push('\n');
    }

    /// The samples of a histogram. `exemplars` are by bucket, and may be fewer.
    pub fn histogram(
        &mut self,
        labels: Labels<'_>,
        reading: &HistogramReading,
        unit: Unit,
        exemplars: &[Option<Exemplar>],
    ) {
        let mut total = 0;
        for (bucket, count) in reading.counts.iter().enumerate() {
            total += count;
            let bound = reading.bounds.get(bucket).map(|bound| unit.of_micros(*bound));
            let bound = match (bound, self.format) {
                (None, _) => "+Inf".to_owned(),
                (Some(bound), Format::Prometheus) => bound.to_string(),
                // OpenMetrics wants a fraction.
                (Some(bound), Format::OpenMetrics) => format!("{bound:?}"),
            };
            self.line("_bucket", Some(&bound), labels, total);
            if self.format == Format::OpenMetrics
                && unit == Unit::Seconds
                && let Some(Exemplar { trace_id, seconds, at }) = exemplars.get(bucket).copied().flatten()
            {
                let (at, part) = (at.div_euclid(1_000), at.rem_euclid(1_000));
                let trace_id = hex::encode(trace_id);
                let _ = write!(self.text, " # {{trace_id=\"{trace_id}\"}} {seconds} {at}.{part:03}");
            }
            self.text.push('\n');
        }
        self.line("_sum", None, labels, unit.of_micros(reading.sum_us));
        self.text.push('\n');
        self.line("_count", None, labels, total);
        self.text.push('\n');
    }

    fn line(&mut self, suffix: &str, bound: Option<&str>, labels: Labels<'_>, value: impl Display) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        let all = bound.map(|bound| ("le", bound)).into_iter().chain(labels.iter().copied());
        let mut separator = '{';
        for (name, value) in all {
            self.text.push(separator);
            self.text.push_str(name);
            self.text.push_str("=\"");
            push_escaped(self.text, value);
            self.text.push('"');
            separator = ',';
        }
        if separator == ',' {
            self.text.push('}');
        }
        let _ = write!(self.text, " {value}");
    }
}

impl Unit {
    #[expect(clippy::cast_precision_loss, reason = "a duration")]
    fn of_micros(self, micros: u64) -> f64 {
        match self {
            Self::Seconds => micros as f64 / 1_000_000.0,
            Self::Milliseconds => micros as f64 / 1_000.0,
        }
    }
}

fn push_escaped(text: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gateway_core::histogram::Histogram;

    use super::*;

    fn things(format: Format) -> String {
        let mut out = Exposition::new(format);
        out.family("gateway_things", Kind::Counter, "All things.").sample(&[("kind", "a\"b\\c\nd")], 3);
        out.family("gateway_build", Kind::Info, "The build.").sample(&[("version", "1")], 1);
        let latency = Histogram::new(&[5_000, 1_000_000]);
        latency.observe(Duration::from_millis(2));
        latency.observe(Duration::from_secs(2));
        let exemplar = Exemplar { trace_id: [0xab; 16], seconds: 0.002, at: 1_005 };
        let mut family = out.family("gateway_latency_seconds", Kind::Histogram, "Latency.");
        family.histogram(&[("kind", "x")], &latency.read(), Unit::Seconds, &[Some(exemplar)]);
        out.finish()
    }

    #[test]
    fn prometheus_text_names_counters_with_their_suffix() {
        assert_eq!(
            things(Format::Prometheus),
            "# HELP gateway_things_total All things.\n# TYPE gateway_things_total counter\n\
             gateway_things_total{kind=\"a\\\"b\\\\c\\nd\"} 3\n\
             # HELP gateway_build_info The build.\n# TYPE gateway_build_info gauge\n\
             gateway_build_info{version=\"1\"} 1\n\
             # HELP gateway_latency_seconds Latency.\n# TYPE gateway_latency_seconds histogram\n\
             gateway_latency_seconds_bucket{le=\"0.005\",kind=\"x\"} 1\n\
             gateway_latency_seconds_bucket{le=\"1\",kind=\"x\"} 1\n\
             gateway_latency_seconds_bucket{le=\"+Inf\",kind=\"x\"} 2\n\
             gateway_latency_seconds_sum{kind=\"x\"} 2.002\ngateway_latency_seconds_count{kind=\"x\"} 2\n"
        );
    }

    #[test]
    fn open_metrics_has_exemplars_and_an_end() {
        let trace_id = "ab".repeat(16);
        assert_eq!(
            things(Format::OpenMetrics),
            format!(
                "# HELP gateway_things All things.\n# TYPE gateway_things counter\n\
                 gateway_things_total{{kind=\"a\\\"b\\\\c\\nd\"}} 3\n\
                 # HELP gateway_build The build.\n# TYPE gateway_build info\n\
                 gateway_build_info{{version=\"1\"}} 1\n\
                 # HELP gateway_latency_seconds Latency.\n# TYPE gateway_latency_seconds histogram\n\
                 gateway_latency_seconds_bucket{{le=\"0.005\",kind=\"x\"}} 1 # {{trace_id=\"{trace_id}\"}} 0.002 1.005\n\
                 gateway_latency_seconds_bucket{{le=\"1.0\",kind=\"x\"}} 1\n\
                 gateway_latency_seconds_bucket{{le=\"+Inf\",kind=\"x\"}} 2\n\
                 gateway_latency_seconds_sum{{kind=\"x\"}} 2.002\ngateway_latency_seconds_count{{kind=\"x\"}} 2\n# EOF\n"
            )
        );
    }

    #[test]
    fn the_format_is_the_one_that_prometheus_asks_for() {
        let open = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.4";
        assert_eq!(Format::from_accept(open), Format::OpenMetrics);
        assert_eq!(Format::from_accept("text/plain;version=0.0.4"), Format::Prometheus);
        assert_eq!(Format::from_accept("*/*"), Format::Prometheus);
    }
}
