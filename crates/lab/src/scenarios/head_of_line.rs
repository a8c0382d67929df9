//! Small responses behind a large one on the same connection.

use crate::LabError;
use crate::calls::{Call, Calls, quantile};
use crate::folder;
use crate::hosts::line::{Line, Way};
use crate::scenario::{Case, NearMiss, Page, Parameter, Scenario, Value};
use crate::stage::{Serve, Stage, Tank};
use crate::truth::{Active, Affected, FaultReport};
use spangap_model::{Cause, Culprit, Leg, Legs, Side};
use std::time::Duration;

pub const HEAD_OF_LINE: Scenario = Scenario {
    name: "head-of-line",
    title: "one response in 50 has 2 MB: the small ones that follow it on the connection wait behind its bytes",
    culprit: Culprit::of(Cause::HeadOfLine),
    also_right: &[],
    leg: Some(Legs { first: Leg::ServerHostOut, last: Leg::ResponseWire }),
    parameters: &[
        Parameter { name: "kb", what: "size of a large response, kB", default: Value::Number(2_000) },
        Parameter { name: "every", what: "one response in this many is large", default: Value::Number(50) },
        Parameter { name: "rate", what: "calls per second", default: Value::Number(100) },
        Parameter { name: "line-mb", what: "rate of the line, MB/s", default: Value::Number(20) },
        Parameter { name: "duration", what: "measured time", default: Value::Duration(4_000_000_000) },
    ],
    near_miss: NearMiss {
        title: "as large ones over the same line, but one call at a time, so that none is behind another",
        culprit: Culprit::of(Cause::LargePayload),
        leg: Some(Legs { first: Leg::ServerSend, last: Leg::ResponseWire }),
    },
    page: Page {
        what: "HTTP/2 lets calls share a connection, and TCP delivers its bytes in one order. A server that has a large \
               response writes as much of it as the socket takes; a small response of another call, ready in no time, \
               comes after those bytes. Over a line of 20 MB/s, 2 MB take 100 ms, and whatever comes meanwhile waits \
               until they have been sent. The small calls are slow for a reason that is in none of their spans.",
        real_life: "A channel that is shared by everything a client does: health checks, heartbeats and lookups beside a \
                    snapshot, an export or a backup. The slow calls are the innocent ones, and their slowness comes \
                    and goes with somebody else's use.",
        sources: &[
            (
                "RFC 9113, introduction: TCP head-of-line blocking is not addressed by this protocol",
                "https://www.rfc-editor.org/rfc/rfc9113#section-1",
            ),
            (
                "gRPC: a call is blocked while another one's large message is sent",
                "https://github.com/grpc/grpc/issues/12031",
            ),
            (
                "CockroachDB: heartbeats slow beside other traffic, tried on connections of their own",
                "https://github.com/cockroachdb/cockroach/issues/13722",
            ),
        ],
        made: "The line between the hosts passes 20 MB/s towards the client. The target of the stack rust answers every \
               50th call with 2 MB (`target --large-response`), as much as the client takes without a word of its own, and \
               the others with nothing; the tank makes 100 calls a \
               second on one connection, whether answered or not. Which response is large is known by its number in \
               the order of the server. In the near miss each call begins when the previous one is over.",
        cure: "A connection of its own for what is large; or less at a time: pages, streams of small messages. A smaller \
               send buffer (TCP_NOTSENT_LOWAT) leaves the choice of what comes next to the application for longer.",
    },
    make,
};

/// Minimum extra duration of the small calls next to a large one, by the median.
const COST: Duration = Duration::from_millis(10);
/// Minimum number of large responses, and of small ones next to them.
const LEAST: (f64, f64) = (3.0, 10.0);
/// How precisely the line keeps to its rate.
const EXACT: f64 = 0.95;
/// In the near miss, one in this many is large.
const EVERY_ALONE: u64 = 2;

fn make(stage: &mut Stage<'_>, case: &Case<'_>) -> Result<FaultReport, LabError> {
    let bytes = case.number("kb") * 1_000;
    let bytes_per_s = case.number("line-mb").max(1) * 1_000_000;
    let large_ns = bytes * 1_000_000_000 / bytes_per_s;
    let every = if case.near_miss { EVERY_ALONE } else { case.number("every").max(1) };
    let to_client = Way { rate_bytes_per_s: Some(bytes_per_s), queue_bytes: 4 * bytes, ..Way::default() };
    stage.line(&Line { to_client, seed: stage.seed(), ..Line::default() })?;
    stage.serve(&Serve::stack("rust").with(&["--large-response", &format!("{bytes}/{every}")]))?;
    let tank = Tank::stack("rust", case.duration("duration"));
    stage.call(&match case.near_miss {
        true => tank.in_flight(1),
        false => tank.rate(case.number("rate")),
    })?;
    let measured = stage.end()?;
    stage.end_line()?;

    let [client, server] = [Side::Client, Side::Server].map(|side| stage.file(folder::spans(side)));
    // Warm-up calls count in the order, too.
    let sorted = CallsBySize::of(Calls::read(&client, &server, 0)?, every);
    let from = measured.all.first().map_or(0, |call| call.start_unix_ns);
    let (beside, apart) = sorted.small_from(from);
    let p50 = |calls: &[&Call]| quantile(calls.iter().map(|call| call.duration_ns()).collect(), 0.5) as f64;
    let mut acted = FaultReport::default();
    let failed = measured.all.iter().filter(|call| !call.ok).count();
    acted.at_most("calls that failed", failed as f64, 0.0);
    acted.at_least("large responses", sorted.large.len() as f64, LEAST.0);
    let large: Vec<&Call> = sorted.large.iter().collect();
    // No small response can take this long, which is much less than the line needs for a large one.
    let shortest = large.iter().map(|call| call.duration_ns()).min().unwrap_or(0);
    acted.at_least("shortest call with one, ns", shortest as f64, large_ns as f64 * EXACT);
    let small = p50(&apart);
    acted.at_most("median of the small calls with none under way, ns", small, large_ns as f64 / 2.0);
    let count = beside.len() as f64;
    if case.near_miss {
        acted.at_most("small calls with a large response under way", count, 0.0);
        acted.affected_rule = "those with a large response".into();
        let affected = large.iter().filter(|call| call.start_unix_ns >= from);
        let affected = affected.map(|call| (call.trace_id.clone(), Some(large_ns)));
        acted.affected = affected.map(|(trace_id, cost_ns)| Affected { trace_id, cost_ns }).collect();
    } else {
        acted.at_least("small calls with a large response under way", count, LEAST.1);
        let longer = p50(&beside) - small;
        acted.at_least("how much longer these take, by the median, ns", longer, COST.as_nanos() as f64);
        acted.affected_rule =
            "small calls whose response was made while the bytes of a large one were under way \
                               before them"
                .into();
        let affected = beside.iter().map(|call| call.trace_id.clone());
        acted.affected = affected.map(|trace_id| Affected { trace_id, cost_ns: None }).collect();
    }
    acted.active = sorted.under_way().filter(|active| active.to_unix_ns >= from).collect();
    Ok(acted)
}

/// Calls by the size of their responses.
struct CallsBySize {
    small: Vec<Call>,
    large: Vec<Call>,
}

impl CallsBySize {
    /// The target has counted its responses in the order in which it took the calls; the last of every
    /// `every` is large.
    fn of(calls: Calls, every: u64) -> CallsBySize {
        let mut all = calls.all;
        all.retain(|call| !call.server.is_empty());
        all.sort_unstable_by_key(|call| call.server[0]);
        let (mut small, mut large) = (Vec::new(), Vec::new());
        for (number, call) in (1..).zip(all) {
            if number % every == 0 { large.push(call) } else { small.push(call) }
        }
        CallsBySize { small, large }
    }

    /// When a large response was in progress.
    fn under_way(&self) -> impl Iterator<Item = Active> {
        let made = |call: &Call| call.server.last().map_or(call.start_unix_ns, |(_, end)| *end);
        self.large.iter().map(move |call| Active { from_unix_ns: made(call), to_unix_ns: call.end_unix_ns })
    }

    /// Small calls from a time on: those whose response was made while a large one was in progress, and those
    /// unrelated to any.
    fn small_from(&self, from_unix_ns: u64) -> (Vec<&Call>, Vec<&Call>) {
        let within = |call: &Call, active: &Active| {
            let made = call.server.last().map_or(0, |(_, end)| *end);
            (active.from_unix_ns..active.to_unix_ns).contains(&made)
        };
        let touches =
            |call: &Call, active: &Active| active.overlap_ns(call.start_unix_ns, call.end_unix_ns) > 0;
        let small: Vec<_> = self.small.iter().filter(|call| call.start_unix_ns >= from_unix_ns).collect();
        let beside = small.iter().filter(|call| self.under_way().any(|active| within(call, &active)));
        let apart = small.iter().filter(|call| !self.under_way().any(|active| touches(call, &active)));
        (beside.copied().collect(), apart.copied().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(start_unix_ns: u64, end_unix_ns: u64, server: (u64, u64)) -> Call {
        Call { start_unix_ns, end_unix_ns, server: vec![server], ..Call::default() }
    }

    #[test]
    fn calls_behind_a_large_response() {
        let all = vec![
            call(0, 10, (4, 5)),
            call(12, 100, (14, 15)),
            call(13, 101, (16, 17)),
            call(200, 210, (203, 204)),
        ];
        let sorted = CallsBySize::of(Calls { all: all.clone(), server_only: 0 }, 2);
        assert_eq!(
            sorted.large,
            [all[1].clone(), all[3].clone()],
            "every second, in the order of the server"
        );
        assert_eq!(sorted.small_from(0), (vec![&all[2]], vec![&all[0]]));
        assert_eq!(sorted.small_from(13), (vec![&all[2]], vec![]));
    }
}
