//! Sources of evidence that are missing: values to go by, and the words for people that follow from them.

use serde::{Deserialize, Serialize};
use spangap_model::Side;
use std::fmt;

/// A source that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lack {
    /// What it is, and where.
    pub source: Source,
    /// What it has to include; absent where any such source will do.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub including: Option<Included>,
}

/// A source of evidence at its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Packets at the client.
    ClientCapture,
    /// Packets at the server.
    ServerCapture,
    /// Packets at a proxy and behind it.
    ProxyCaptures,
    /// CLIENT spans.
    ClientSpans,
    /// SERVER spans.
    ServerSpans,
    /// What the client's threads did.
    ClientHost,
    /// What the server's threads did.
    ServerHost,
    /// Counters of the client's host.
    ClientCounters,
    /// Counters of the server's host.
    ServerCounters,
    /// Counters of the server's accept queues.
    AcceptCounters,
}

/// What a source may include or lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Included {
    /// Look-ups of names.
    Dns,
    /// How connections begin.
    Opening,
    /// The wait for a connection of a pool.
    PoolWait,
}

impl Lack {
    /// Any such source.
    pub const fn of(source: Source) -> Lack {
        Lack { source, including: None }
    }

    /// One that includes this.
    pub const fn with(source: Source, included: Included) -> Lack {
        Lack { source, including: Some(included) }
    }
}

impl Source {
    /// A capture at that end.
    pub const fn capture(side: Side) -> Source {
        match side {
            Side::Client => Source::ClientCapture,
            Side::Server => Source::ServerCapture,
        }
    }

    /// Spans of that end.
    pub const fn spans(side: Side) -> Source {
        match side {
            Side::Client => Source::ClientSpans,
            Side::Server => Source::ServerSpans,
        }
    }

    /// A recording of that end's host.
    pub const fn host(side: Side) -> Source {
        match side {
            Side::Client => Source::ClientHost,
            Side::Server => Source::ServerHost,
        }
    }

    /// Counters of that end's host.
    pub const fn counters(side: Side) -> Source {
        match side {
            Side::Client => Source::ClientCounters,
            Side::Server => Source::ServerCounters,
        }
    }

    /// In words, with the verb that is it.
    pub const fn words(self) -> &'static str {
        match self {
            Source::ClientCapture => "a capture at the client (`spangap capture`)",
            Source::ServerCapture => "a capture at the server (`spangap capture`)",
            Source::ProxyCaptures => "a capture at the proxy and one behind it, besides those at both ends",
            Source::ClientSpans => "spans of the client",
            Source::ServerSpans => "spans of the server",
            Source::ClientHost => "a recording of the client's host (`spangap host record --pid`)",
            Source::ServerHost => "a recording of the server's host (`spangap host record --pid`)",
            Source::ClientCounters => "counters of the client's host (`spangap host check`)",
            Source::ServerCounters => "counters of the server's host (`spangap host check`)",
            Source::AcceptCounters => {
                "counters of the server's accept queues, before and after (`spangap host check` on its host)"
            }
        }
    }

    /// The same, for a source that lacks something.
    const fn short(self) -> &'static str {
        match self {
            Source::ClientCapture => "a capture at the client",
            Source::ServerCapture => "a capture at the server",
            other => other.words(),
        }
    }

    const fn is_plural(self) -> bool {
        matches!(self, Source::ClientSpans | Source::ServerSpans)
    }
}

impl Included {
    /// In words that follow "that includes".
    pub const fn words(self) -> &'static str {
        match self {
            Included::Dns => "its DNS traffic",
            Included::Opening => "connections from their start",
            Included::PoolWait => "the wait for a pooled connection",
        }
    }
}

/// A source that includes all of this.
pub fn words(source: Source, including: &[Included]) -> String {
    if including.is_empty() {
        return source.words().to_owned();
    }
    let included: Vec<&str> = including.iter().map(|included| included.words()).collect();
    let verb = if source.is_plural() { "include" } else { "includes" };
    format!("{} that {verb} {}", source.short(), included.join(" and "))
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let including: Vec<Included> = self.including.into_iter().collect();
        f.write_str(&words(self.source, &including))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_in_words_and_as_a_value() {
        let capture = Lack::with(Source::ClientCapture, Included::Dns);
        assert_eq!(capture.to_string(), "a capture at the client that includes its DNS traffic");
        let value = serde_json::to_value(capture).expect("a value");
        assert_eq!(value, serde_json::json!({ "source": "client-capture", "including": "dns" }));
        assert_eq!(serde_json::from_value::<Lack>(value).expect("read back"), capture);
        let spans = Lack::with(Source::ClientSpans, Included::PoolWait);
        assert_eq!(spans.to_string(), "spans of the client that include the wait for a pooled connection");
        let both = words(Source::ClientCapture, &[Included::Dns, Included::Opening]);
        assert_eq!(
            both,
            "a capture at the client that includes its DNS traffic and connections from their start"
        );
    }
}
