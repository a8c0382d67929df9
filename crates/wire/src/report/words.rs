//! Legs, sides and host activity in words.

use spangap_model::evidence::HostPart;
use spangap_model::{Doing, Leg, Legs, Side};

/// A host's activity in a part of a leg, in words: `could run, waited behind stress (pid 812)`.
pub(super) fn part_words(part: &HostPart) -> String {
    let by = |word: &str| part.behind.as_ref().map_or(String::new(), |behind| format!(" {word} {behind}"));
    match part.doing {
        Doing::Running => match part.waited_for {
            Some(reason) => format!("running between waits for {}", reason.words()),
            None => "running".into(),
        },
        Doing::Interrupted => format!("interrupted{}", by("by")),
        Doing::Runnable => format!("could run, waited{}", by("behind")),
        Doing::Throttled => "out of CPU quota".into(),
        Doing::Stopped => "stopped".into(),
        Doing::Blocked => {
            let what =
                part.waited_for.map_or(String::new(), |reason| format!(": waited for {}", reason.words()));
            let waker = part.woken_by.as_ref().map_or(String::new(), |waker| format!(", woken by {waker}"));
            format!("blocked{what}{waker}")
        }
        Doing::SoftirqLate => format!("data at the tap, not yet at the socket{}", by("behind")),
        Doing::Unknown => "not known".into(),
    }
}

/// The name of a leg in words.
pub(super) fn leg_words(legs: Legs) -> String {
    leg_words_from("client", legs)
}

/// The same with another name for the host that calls.
pub(super) fn leg_words_from(client: &str, legs: Legs) -> String {
    if legs.first == legs.last {
        let words = match legs.first {
            Leg::ClientAppOut => return format!("{client}: application to wire"),
            Leg::ClientSend => return format!("{client}: sending the request"),
            Leg::RequestWire => "network: request",
            Leg::ServerHostIn => "server: wire to application",
            Leg::ServerApp => "server: application",
            Leg::ServerHostOut => "server: application to wire",
            Leg::ServerSend => "server: sending the response",
            Leg::ResponseWire => "network: response",
            Leg::ClientAppIn => return format!("{client}: wire to application"),
            Leg::NoResponse => "server: no response",
        };
        return words.into();
    }
    let all = [
        (Leg::ServerHostIn, Leg::ServerHostOut, "server: host and application"),
        (Leg::RequestWire, Leg::ResponseWire, "network and server"),
        (Leg::RequestWire, Leg::ServerHostOut, "network, server, until the response begins"),
        (Leg::RequestWire, Leg::ServerSend, "network and server, until the response is sent"),
    ];
    match all.iter().find(|(first, last, _)| (*first, *last) == (legs.first, legs.last)) {
        Some((.., words)) => (*words).into(),
        None => {
            let [first, last] = [legs.first, legs.last].map(|leg| leg_words_from(client, Legs::one(leg)));
            format!("{first} … {last}")
        }
    }
}

/// ` (client side)`, or nothing.
pub(super) fn at_side(side: Option<Side>) -> String {
    side.map_or(String::new(), |side| format!(", {} side", side.name()))
}
