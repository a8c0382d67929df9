//! `/metrics`: negotiates the format with the scraper and encodes the response.

use super::catalog::families;
use super::snapshot::Snapshot;
use super::text::Dialect;
use super::{protobuf, text};
use std::io;

/// Formats of `/metrics`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Length-delimited `io.prometheus.client.MetricFamily`: native histograms, exemplars.
    Protobuf,
    /// OpenMetrics 1.0: classic buckets, exemplars.
    OpenMetrics,
    /// Text format 0.0.4: classic buckets.
    Text,
}

impl Format {
    /// The `Content-Type` of a response.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The format for an `Accept` header: of the supported ones the one with the highest weight, the first of
/// equals; the text format when the header is empty or lists no supported format.
pub fn negotiate(accept: &str) -> Format {
    let mut best = (0, Format::Text);
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or_default().to_ascii_lowercase();
        let parameters: Vec<(String, &str)> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().trim_matches('"')))
            .collect();
        let parameter = |name: &str| parameters.iter().find(|(n, _)| n == name).map(|(_, value)| *value);
        let format = match media.as_str() {
            "application/vnd.google.protobuf"
                if parameter("proto") == Some("io.prometheus.client.MetricFamily")
                    && parameter("encoding") == Some("delimited") =>
            {
                Format::Protobuf
            }
            "application/openmetrics-text" if matches!(parameter("version"), None | Some("1.0.0")) => {
                Format::OpenMetrics
            }
            "text/plain" if matches!(parameter("version"), None | Some("0.0.4")) => Format::Text,
            "text/*" | "*/*" => Format::Text,
            _ => continue,
        };
        // Weights have at most three decimals; an invalid weight counts as absent.
        let weight = parameter("q").and_then(|q| q.parse::<f64>().ok()).unwrap_or(1.0);
        let weight = (weight.clamp(0.0, 1.0) * 1000.0) as u32;
        if weight > best.0 {
            best = (weight, format);
        }
    }
    best.1
}

/// Writes the figures in this format, piece by piece.
///
/// # Errors
/// Errors of `out`.
pub fn write(snapshot: &Snapshot, format: Format, out: &mut dyn io::Write) -> io::Result<()> {
    let families = families(snapshot);
    match format {
        Format::Protobuf => protobuf::write(&families, out),
        Format::OpenMetrics => text::write(&families, Dialect::OpenMetrics, out),
        Format::Text => text::write(&families, Dialect::Plain, out),
    }
}

/// The figures in this format, in one piece.
pub fn encode(snapshot: &Snapshot, format: Format) -> Vec<u8> {
    let mut out = Vec::new();
    // Writing to a Vec does not fail.
    let _ = write(snapshot, format, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scrapers_get_the_requested_format() {
        // Prometheus 2.42 with native histograms, and without; Prometheus 3; a browser; curl.
        let native = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let classic = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let three = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.2,*/*;q=0.1";
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8";
        assert_eq!(negotiate(native), Format::Protobuf);
        assert_eq!(negotiate(classic), Format::OpenMetrics);
        assert_eq!(negotiate(three), Format::OpenMetrics);
        assert_eq!(negotiate(browser), Format::Text);
        assert_eq!(negotiate("*/*"), Format::Text);
        assert_eq!(negotiate(""), Format::Text);
    }

    #[test]
    fn weights_and_parameters_follow_http() {
        assert_eq!(
            negotiate("text/plain;q=0.2, application/openmetrics-text ; Version=\"1.0.0\" ; q=0.3"),
            Format::OpenMetrics
        );
        assert_eq!(negotiate("application/openmetrics-text;q=0"), Format::Text, "a weight of 0 refuses");
        assert_eq!(negotiate("application/openmetrics-text;version=2.0.0"), Format::Text);
        assert_eq!(
            negotiate(
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text"
            ),
            Format::Text
        );
        assert_eq!(
            negotiate("text/plain, application/openmetrics-text"),
            Format::Text,
            "the first of equals"
        );
    }
}
