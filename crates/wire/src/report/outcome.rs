//! How a call ended, in the terms of the wire.

use super::{CallReport, EndingReport};
use crate::exchange::{Ending, Stop};
use spangap_model::Side;
use spangap_model::duration::format_ns;

/// Minimum share of the deadline, counted from the first byte, after which a client cancels: the value that it
/// sends is rounded, by at most a hundredth in the known stacks, and part of it had already passed.
const DEADLINE_SHARE: (u64, u64) = (95, 100);

/// Error code for a stream that is no longer needed.
const CANCEL: u32 = 8;

/// Name of an HTTP/2 error code (RFC 9113, 7); `None` for codes that have none.
fn code_name(code: u32) -> Option<&'static str> {
    const NAMES: [&str; 14] = [
        "NO_ERROR",
        "PROTOCOL_ERROR",
        "INTERNAL_ERROR",
        "FLOW_CONTROL_ERROR",
        "SETTINGS_TIMEOUT",
        "STREAM_CLOSED",
        "FRAME_SIZE_ERROR",
        "REFUSED_STREAM",
        "CANCEL",
        "COMPRESSION_ERROR",
        "CONNECT_ERROR",
        "ENHANCE_YOUR_CALM",
        "INADEQUATE_SECURITY",
        "HTTP_1_1_REQUIRED",
    ];
    NAMES.get(code as usize).copied()
}

impl EndingReport {
    /// The ending of a call that waited for `waited_ns`; `capture` saw it.
    pub(super) fn new(
        ending: &Ending,
        capture: u8,
        unanswered: bool,
        waited_ns: u64,
        deadline_ns: Option<u64>,
    ) -> EndingReport {
        let code = match ending.stop {
            Stop::RstStream(code) | Stop::GoAway(code) => Some(code),
            Stop::Fin | Stop::Rst | Stop::StillOpen => None,
        };
        let (least, of) = DEADLINE_SHARE;
        let elapsed = deadline_ns.is_some_and(|ns| waited_ns.saturating_mul(of) >= ns.saturating_mul(least));
        let mut report = EndingReport {
            by: ending.by,
            how: match ending.stop {
                Stop::RstStream(_) => "rst_stream",
                Stop::GoAway(_) => "goaway",
                Stop::Fin => "fin",
                Stop::Rst => "rst",
                Stop::StillOpen => "still_open",
            },
            code,
            code_name: code.and_then(code_name),
            unanswered,
            at_least: ending.by.is_none(),
            deadline_elapsed: deadline_ns.map(|_| elapsed),
            request_acknowledged: ending.request_acked,
            capture,
            packet: ending.packet,
            time_unix_ns: ending.at_ns,
            words: String::new(),
        };
        report.words = report.in_words(deadline_ns.filter(|_| report.is_deadline()));
        report
    }

    /// The call's status if no response states one.
    pub(super) fn status(&self) -> Option<&'static str> {
        let client = self.by == Some(Side::Client);
        Some(match (self.how, self.code) {
            _ if self.is_deadline() => "deadline",
            ("rst_stream", Some(CANCEL)) if client => "cancelled",
            ("rst_stream", Some(7)) => "refused",
            ("rst_stream", _) => "reset",
            ("goaway", _) => "goaway",
            ("fin", _) => "connection_closed",
            ("rst", _) => "connection_reset",
            _ => return None,
        })
    }

    /// Whether its deadline ended it. Some servers enforce it, too, and act before the client.
    fn is_deadline(&self) -> bool {
        let elapsed = self.deadline_elapsed == Some(true);
        elapsed
            && match (self.how, self.by) {
                ("rst_stream", Some(Side::Server)) => self.code == Some(CANCEL),
                (_, by) => by == Some(Side::Client),
            }
    }

    fn in_words(&self, deadline_ns: Option<u64>) -> String {
        let what = if self.unanswered { "no response" } else { "response incomplete" };
        let who = if self.by == Some(Side::Server) { "server" } else { "client" };
        let code = match (self.code, self.code_name) {
            (Some(code), Some(name)) => format!(" {name}({code})"),
            (Some(code), None) => format!(" with code {code}"),
            (None, _) => String::new(),
        };
        let what = format!(
            "{what}{}",
            if self.request_acknowledged { "" } else { ", the request not acknowledged" }
        );
        let at = deadline_ns.map_or(String::new(), |ns| format!(" at its deadline of {}", format_ns(ns)));
        match self.how {
            "rst_stream" if self.status() == Some("refused") => {
                format!("{what}: refused by the {who} (RST_STREAM{code})")
            }
            "rst_stream" if self.by == Some(Side::Client) => {
                format!("{what}: cancelled by the client{at} (RST_STREAM{code})")
            }
            "rst_stream" => format!("{what}: reset by the {who}{at} (RST_STREAM{code})"),
            "goaway" => format!("{what}: left out by the server's GOAWAY{code}"),
            "fin" => format!("{what}: the {who} closed the connection{at} (FIN)"),
            "rst" => format!("{what}: the {who} reset the connection{at} (RST)"),
            _ => format!("{what} by the end of the capture"),
        }
    }
}

/// The duration in words: `40.5 ms`, `at least 5.00 s`.
pub(super) fn duration(call: &CallReport) -> String {
    let at_least = if call.is_at_least() { "at least " } else { "" };
    format!("{at_least}{}", format_ns(call.duration_ns))
}

/// The duration in a column: `40.5 ms`, `≥5.00 s`.
pub(super) fn duration_cell(call: &CallReport) -> String {
    let at_least = if call.is_at_least() { "≥" } else { "" };
    format!("{at_least}{}", format_ns(call.duration_ns))
}

/// How the call ended, in words: its status, or what ended it instead.
pub(super) fn words(call: &CallReport) -> String {
    if let Some(ending) = &call.ending {
        return ending.words.clone();
    }
    match (call.ended, call.status) {
        ("complete", Some(status)) => status_text(call, status),
        ("complete", None) => "complete".into(),
        ("reset", _) => match call.reset_code {
            Some(code) => format!("reset with code {code}"),
            None => "reset".into(),
        },
        ("connection-closed", _) => "connection closed before its end".into(),
        ("cut-by-snap", _) => "its end cut off by the snap length".into(),
        _ => "its end was not seen".into(),
    }
}

/// The outcome in a column.
pub(super) fn cell(call: &CallReport) -> String {
    match &call.ending {
        Some(ending) => {
            call.status.unwrap_or(if ending.at_least { "still open" } else { ending.how }).to_owned()
        }
        None if call.ended == "cut-by-snap" => call.status.unwrap_or("cut by snap").to_owned(),
        None => call.status.map_or("-".into(), |status| status_text(call, status)),
    }
}

/// A status as on the wire: `NOT_FOUND`, `HTTP 404`.
fn status_text(call: &CallReport, status: &str) -> String {
    call.http_status.map_or(status.into(), |code| format!("HTTP {code}"))
}

impl CallReport {
    /// Whether nothing ended it, so that it may have continued.
    pub fn is_at_least(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.at_least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(stop: Stop, by: Option<Side>) -> Ending {
        Ending { at_ns: 5, packet: 7, by, stop, request_acked: true }
    }

    #[test]
    fn every_ending_has_its_status_and_words() {
        use Side::{Client, Server};
        let all = [
            (
                Stop::RstStream(8),
                Some(Client),
                Some("cancelled"),
                "no response: cancelled by the client (RST_STREAM CANCEL(8))",
            ),
            (
                Stop::RstStream(7),
                Some(Server),
                Some("refused"),
                "no response: refused by the server (RST_STREAM REFUSED_STREAM(7))",
            ),
            (
                Stop::RstStream(99),
                Some(Server),
                Some("reset"),
                "no response: reset by the server (RST_STREAM with code 99)",
            ),
            (
                Stop::GoAway(0),
                Some(Server),
                Some("goaway"),
                "no response: left out by the server's GOAWAY NO_ERROR(0)",
            ),
            (
                Stop::Fin,
                Some(Client),
                Some("connection_closed"),
                "no response: the client closed the connection (FIN)",
            ),
            (
                Stop::Rst,
                Some(Server),
                Some("connection_reset"),
                "no response: the server reset the connection (RST)",
            ),
            (Stop::StillOpen, None, None, "no response by the end of the capture"),
        ];
        for (stop, by, status, words) in all {
            let report = EndingReport::new(&ending(stop, by), 0, true, 200_000_000, None);
            assert_eq!((report.status(), report.words.as_str()), (status, words));
        }
    }

    #[test]
    fn a_client_that_gives_up_near_its_deadline_hit_the_deadline() {
        let at = |waited_ns, by| {
            let report =
                EndingReport::new(&ending(Stop::RstStream(8), by), 0, true, waited_ns, Some(200_000_000));
            (report.status(), report.deadline_elapsed)
        };
        assert_eq!(at(199_000_000, Some(Side::Client)), (Some("deadline"), Some(true)));
        assert_eq!(at(150_000_000, Some(Side::Client)), (Some("cancelled"), Some(false)));
        // grpc-go's server resets the stream itself when the deadline has passed.
        assert_eq!(at(199_000_000, Some(Side::Server)), (Some("deadline"), Some(true)));
        assert_eq!(at(150_000_000, Some(Side::Server)), (Some("reset"), Some(false)));
        let report = EndingReport::new(
            &ending(Stop::Fin, Some(Side::Client)),
            0,
            true,
            210_000_000,
            Some(200_000_000),
        );
        assert_eq!(
            report.words,
            "no response: the client closed the connection at its deadline of 200 ms (FIN)"
        );
    }
}
