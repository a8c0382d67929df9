//! The legs of a call, in order, from the start of its CLIENT span to its end.

use std::fmt;

/// A part of a call. Times are of the tap (the place of the capture) on that side, or of that side's span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Leg {
    /// Start of the CLIENT span -> first request byte at the client's tap.
    ClientAppOut,
    /// First -> last request byte at the client's tap.
    ClientSend,
    /// Last request byte: client's tap -> server's tap.
    RequestWire,
    /// Last request byte at the server's tap -> start of the SERVER span. Zero where the span began before that byte;
    /// below zero where it was over before, since the application did without the rest of the request.
    ServerHostIn,
    /// The SERVER span, from the last request byte at the server's tap on where that came within the span.
    ServerApp,
    /// End of the SERVER span -> first response byte at the server's tap. Below zero where the span goes on while the
    /// response is being sent.
    ServerHostOut,
    /// First -> last response byte at the server's tap.
    ServerSend,
    /// Last response byte: server's tap -> client's tap.
    ResponseWire,
    /// Last response byte at the client's tap -> end of the CLIENT span.
    ClientAppIn,
    /// The request at the last place where it was seen -> the moment at which the call was given up, or the end of the
    /// capture. In place of all legs between, for a call without an answer.
    NoResponse,
}

impl Leg {
    /// All legs in order.
    pub const ALL: [Leg; 10] = [
        Leg::ClientAppOut,
        Leg::ClientSend,
        Leg::RequestWire,
        Leg::ServerHostIn,
        Leg::ServerApp,
        Leg::ServerHostOut,
        Leg::ServerSend,
        Leg::ResponseWire,
        Leg::ClientAppIn,
        Leg::NoResponse,
    ];

    /// The name in JSON, tables and pages.
    pub fn name(self) -> &'static str {
        match self {
            Leg::ClientAppOut => "client_app_out",
            Leg::ClientSend => "client_send",
            Leg::RequestWire => "request_wire",
            Leg::ServerHostIn => "server_host_in",
            Leg::ServerApp => "server_app",
            Leg::ServerHostOut => "server_host_out",
            Leg::ServerSend => "server_send",
            Leg::ResponseWire => "response_wire",
            Leg::ClientAppIn => "client_app_in",
            Leg::NoResponse => "no_response",
        }
    }
}

/// Neighbouring legs that cannot be told apart; one leg when `first` is `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Legs {
    /// The first of them.
    pub first: Leg,
    /// The last of them, not before `first`.
    pub last: Leg,
}

impl Legs {
    /// A leg by itself.
    pub const fn one(leg: Leg) -> Legs {
        Legs { first: leg, last: leg }
    }

    /// Whether `leg` is among them.
    pub fn contains(self, leg: Leg) -> bool {
        (self.first..=self.last).contains(&leg)
    }
}

/// `server_host_in+server_app+server_host_out`
impl fmt::Display for Legs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = Leg::ALL.into_iter().filter(|leg| self.contains(*leg)).map(Leg::name);
        f.write_str(names.next().unwrap_or_default())?;
        names.try_for_each(|name| write!(f, "+{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legs_are_named_by_their_ends() {
        let server = Legs { first: Leg::ServerHostIn, last: Leg::ServerHostOut };
        assert_eq!(server.to_string(), "server_host_in+server_app+server_host_out");
        assert_eq!(Legs::one(Leg::RequestWire).to_string(), "request_wire");
    }
}
