//! URL of a trace in the user's own trace UI: a template with a placeholder for the id.

use axum::http::Uri;
use serde::Deserialize;
use std::str::FromStr;

/// An http:// or https:// URL with `{trace_id}` and, optionally, `{span_id}`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct TraceUrl(String);

impl TraceUrl {
    /// The template.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for TraceUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<TraceUrl, String> {
        let expected = |what: &str| {
            format!(
                "{text:?} is not the address of a trace: expected {what}, such as https://jaeger.example/trace/{{trace_id}}"
            )
        };
        let lower = text.to_ascii_lowercase();
        if !lower.starts_with("http://") && !lower.starts_with("https://") {
            return Err(expected("one that begins with http:// or https://"));
        }
        if !text.contains("{trace_id}") {
            return Err(expected("{trace_id} where the trace's id belongs"));
        }
        let filled = text.replace("{trace_id}", "0").replace("{span_id}", "0");
        // The part after # never leaves the browser.
        let sent = filled.split('#').next().unwrap_or_default();
        let host = sent.parse::<Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
        let in_host = text.split('/').nth(2).is_some_and(|authority| authority.contains('{'));
        match host {
            Some(host) if !host.is_empty() && !in_host => Ok(TraceUrl(text.to_owned())),
            _ => Err(expected("a host, and ids after it")),
        }
    }
}

impl TryFrom<String> for TraceUrl {
    type Error = String;

    fn try_from(text: String) -> Result<TraceUrl, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_with_a_place_for_the_id_are_taken() {
        for good in [
            "https://jaeger/trace/{trace_id}",
            "http://127.0.0.1:3000/explore?left={trace_id}&span={span_id}",
            "HTTPS://tempo.example/#/trace/{trace_id}",
        ] {
            assert_eq!(good.parse::<TraceUrl>().unwrap().as_str(), good);
        }
        for bad in [
            "",
            "javascript:alert('{trace_id}')",
            "data:text/html,{trace_id}",
            "jaeger/{trace_id}",
            "https://jaeger/",
            "https:///{trace_id}",
            "https://{trace_id}.example/",
        ] {
            let said = bad.parse::<TraceUrl>().unwrap_err();
            assert!(said.contains("https://jaeger.example/trace/{trace_id}"), "{bad}: {said}");
        }
    }
}
