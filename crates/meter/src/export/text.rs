//! The two text formats of Prometheus: 0.0.4, and OpenMetrics 1.0 with exemplars.

use super::classic;
use super::exemplar::Exemplar;
use super::family::{Family, Labels, MetricKind, Unit, Value, seconds};
use spangap_model::Histogram;
use std::fmt::Write;
use std::io;

/// The two dialects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// Text format 0.0.4: no exemplars.
    Plain,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

/// Text is passed on in pieces of this size, in bytes.
const PIECE: usize = 64 << 10;

/// Writes all families.
///
/// # Errors
/// Errors of `out`.
pub fn write(families: &[Family], dialect: Dialect, out: &mut dyn io::Write) -> io::Result<()> {
    let mut writer = Writer { out: String::new(), dialect };
    for family in families {
        writer.family(family, out)?;
    }
    if dialect == Dialect::OpenMetrics {
        writer.out.push_str("# EOF\n");
    }
    out.write_all(writer.out.as_bytes())
}

struct Writer {
    out: String,
    dialect: Dialect,
}

impl Writer {
    fn family(&mut self, family: &Family, out: &mut dyn io::Write) -> io::Result<()> {
        let suffix = if family.kind == MetricKind::Counter { "_total" } else { "" };
        // OpenMetrics names a counter's family without the suffix of its samples, the older format with it.
        let title = if self.dialect == Dialect::OpenMetrics { "" } else { suffix };
        let kind = match family.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let name = family.name;
        self.put(format_args!("# HELP {name}{title} {}\n", family.help));
        self.put(format_args!("# TYPE {name}{title} {kind}\n"));
        let unit = match family.unit {
            Unit::Seconds => "seconds",
            Unit::Bytes => "bytes",
            Unit::None => "",
        };
        // OpenMetrics requires the unit at the end of the name.
        if self.dialect == Dialect::OpenMetrics && !unit.is_empty() && name.ends_with(unit) {
            self.put(format_args!("# UNIT {name} {unit}\n"));
        }
        for point in &family.points {
            match &point.value {
                Value::Count(n) => {
                    self.sample(name, suffix, &point.labels, None);
                    self.put(format_args!("{n}\n"));
                }
                Value::Real(v) => {
                    self.sample(name, suffix, &point.labels, None);
                    self.put(format_args!("{v}\n"));
                }
                Value::Distribution { histogram, exemplars } => {
                    self.histogram(name, &point.labels, histogram, exemplars)
                }
            }
            if self.out.len() >= PIECE {
                out.write_all(self.out.as_bytes())?;
                self.out.clear();
            }
        }
        Ok(())
    }

    fn histogram(&mut self, name: &str, labels: &Labels, histogram: &Histogram, exemplars: &[Exemplar]) {
        for bucket in classic::buckets(histogram, exemplars) {
            self.sample(name, "_bucket", labels, Some(bucket.upper_bound_s));
            self.put(format_args!("{}", bucket.cumulative_count));
            if let (Dialect::OpenMetrics, Some(exemplar)) = (self.dialect, bucket.exemplar) {
                self.exemplar(exemplar);
            }
            self.out.push('\n');
        }
        self.sample(name, "_sum", labels, None);
        self.put(format_args!("{}\n", seconds(histogram.sum_ns())));
        self.sample(name, "_count", labels, None);
        self.put(format_args!("{}\n", histogram.count()));
    }

    fn exemplar(&mut self, exemplar: &Exemplar) {
        self.out.push_str(" # {");
        for (i, (name, value)) in exemplar.call.labels.iter().enumerate() {
            self.label(i > 0, name, value);
        }
        let time_ms = exemplar.call.time_unix_ns / 1_000_000;
        let value_s = seconds(exemplar.value_ns as u128);
        self.put(format_args!("}} {value_s} {}.{:03}", time_ms / 1000, time_ms % 1000));
    }

    /// Writes name, labels and the space before the value.
    fn sample(&mut self, name: &str, suffix: &str, labels: &Labels, le: Option<f64>) {
        self.put(format_args!("{name}{suffix}"));
        if !labels.is_empty() || le.is_some() {
            self.out.push('{');
            for (i, (name, value)) in labels.iter().enumerate() {
                self.label(i > 0, name, value);
            }
            if let Some(bound_s) = le {
                self.label(!labels.is_empty(), "le", &bound_text(bound_s));
            }
            self.out.push('}');
        }
        self.out.push(' ');
    }

    fn label(&mut self, comma: bool, name: &str, value: &str) {
        if comma {
            self.out.push(',');
        }
        self.put(format_args!("{name}=\""));
        for c in value.chars() {
            match c {
                '\\' => self.out.push_str("\\\\"),
                '"' => self.out.push_str("\\\""),
                '\n' => self.out.push_str("\\n"),
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    fn put(&mut self, text: std::fmt::Arguments) {
        // Writing to a String does not fail.
        let _ = self.out.write_fmt(text);
    }
}

/// A bucket's bound as OpenMetrics' canonical number. Prometheus itself formats a protobuf bound this way, so
/// the series are the same in every format.
fn bound_text(bound_s: f64) -> String {
    if bound_s == f64::INFINITY {
        return "+Inf".into();
    }
    if bound_s >= 1e-4 {
        let text = bound_s.to_string();
        return if text.contains('.') { text } else { text + ".0" };
    }
    let text = format!("{bound_s:e}");
    match text.split_once("e-") {
        Some((digits, exponent)) => format!("{digits}e-{exponent:0>2}"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_canonical() {
        let bounds = [(2f64.powi(-20), "9.5367431640625e-07"), (2f64.powi(-14), "6.103515625e-05")];
        let larger = [(2f64.powi(-13), "0.0001220703125"), (0.5, "0.5"), (1.0, "1.0"), (64.0, "64.0")];
        for (bound, text) in bounds.into_iter().chain(larger).chain([(f64::INFINITY, "+Inf")]) {
            assert_eq!(bound_text(bound), text);
        }
    }
}
