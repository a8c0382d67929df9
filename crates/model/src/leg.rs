//! The legs of a call, in order, from the start of its CLIENT span to its end.

use crate::named::named;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

named! {
    /// A part of a call. Times are of the tap (the place of the capture) on that side, or of that side's span.
    pub enum Leg {
        /// Start of the CLIENT span -> first request byte at the client's tap.
        ClientAppOut = "client_app_out",
        /// First -> last request byte at the client's tap.
        ClientSend = "client_send",
        /// Last request byte: client's tap -> server's tap.
        RequestWire = "request_wire",
        /// Last request byte at the server's tap -> start of the SERVER span. Zero if the span starts before
        /// that byte; negative if it ends before it, because the application did without the rest of the
        /// request.
        ServerHostIn = "server_host_in",
        /// The SERVER span, from the last request byte at the server's tap on if that arrived within the span.
        ServerApp = "server_app",
        /// End of the SERVER span -> first response byte at the server's tap. Negative if the span continues
        /// while the response is being sent.
        ServerHostOut = "server_host_out",
        /// First -> last response byte at the server's tap.
        ServerSend = "server_send",
        /// Last response byte: server's tap -> client's tap.
        ResponseWire = "response_wire",
        /// Last response byte at the client's tap -> end of the CLIENT span.
        ClientAppIn = "client_app_in",
        /// The request at the last place where it was observed -> the moment at which the call was abandoned,
        /// or the end of the capture. Replaces all legs in between for a call without a response.
        NoResponse = "no_response",
    }
}

/// Adjacent legs that cannot be distinguished; one leg if `first` is `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Legs {
    /// First leg.
    pub first: Leg,
    /// Last leg, not before `first`.
    pub last: Leg,
}

impl Legs {
    /// A single leg.
    pub const fn one(leg: Leg) -> Legs {
        Legs { first: leg, last: leg }
    }

    /// Whether it includes `leg`.
    pub fn contains(self, leg: Leg) -> bool {
        (self.first..=self.last).contains(&leg)
    }

    /// The location as a phrase: `in the server's application`; for several legs, all possible places: `on the
    /// way to the server, at the server or on the way back`.
    pub fn in_words(self) -> String {
        if self.first == self.last {
            return one_in_words(self.first).to_owned();
        }
        let at_server = [Leg::ServerHostIn, Leg::ServerApp, Leg::ServerHostOut, Leg::ServerSend];
        let server = Leg::ALL.into_iter().filter(|leg| self.contains(*leg) && at_server.contains(leg));
        let server: Vec<Leg> = server.collect();
        let mut places: Vec<&str> = Vec::new();
        if self.first <= Leg::ClientSend {
            places.push("at the client");
        }
        if self.contains(Leg::RequestWire) {
            places.push("on the way to the server");
        }
        match server[..] {
            [] => {}
            [one] => places.push(one_in_words(one)),
            [Leg::ServerHostOut, Leg::ServerSend] => places.push("at the server, after its application"),
            _ => places.push("at the server"),
        }
        if self.contains(Leg::ResponseWire) {
            places.push("on the way back");
        }
        if self.contains(Leg::ClientAppIn) && self.first > Leg::ClientSend {
            places.push("at the client");
        }
        let last = places.pop().unwrap_or("somewhere");
        if places.is_empty() { last.to_owned() } else { format!("{} or {last}", places.join(", ")) }
    }
}

fn one_in_words(leg: Leg) -> &'static str {
    match leg {
        Leg::ClientAppOut => "in the client, before the request left it",
        Leg::ClientSend => "while the client sent the request",
        Leg::RequestWire => "on the way to the server",
        Leg::ServerHostIn => "in the server's host, before its application began",
        Leg::ServerApp => "in the server's application",
        Leg::ServerHostOut => "in the server's host, after its application had ended",
        Leg::ServerSend => "while the server sent the response",
        Leg::ResponseWire => "on the way back",
        Leg::ClientAppIn => "in the client, after the response had come",
        Leg::NoResponse => "while no response came",
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

/// A text that names neither a leg nor adjacent legs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseLegsError(String);

impl fmt::Display for ParseLegsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?}; expected a leg such as \"server_app\", or neighbours in order, joined by `+`",
            self.0
        )
    }
}

impl std::error::Error for ParseLegsError {}

impl FromStr for Legs {
    type Err = ParseLegsError;
    fn from_str(text: &str) -> Result<Legs, ParseLegsError> {
        let wrong = || ParseLegsError(text.to_owned());
        let named: Option<Vec<Leg>> = text.split('+').map(Leg::of_name).collect();
        let named = named.ok_or_else(wrong)?;
        let (Some(first), Some(last)) = (named.first(), named.last()) else { return Err(wrong()) };
        let legs = Legs { first: *first, last: *last };
        // All legs between the two, each once.
        if legs.to_string() == text { Ok(legs) } else { Err(wrong()) }
    }
}

impl Serialize for Legs {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Legs {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Legs, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_names_its_legs_or_is_refused() {
        for first in Leg::ALL {
            for last in Leg::ALL.into_iter().filter(|last| *last >= first) {
                let legs = Legs { first, last };
                assert_eq!(legs.to_string().parse(), Ok(legs));
            }
        }
        for wrong in ["", "server", "server_app+server_host_in", "client_send+server_app", "client_send+"] {
            assert!(wrong.parse::<Legs>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn several_legs_are_worded_as_possible_places() {
        for (first, last, words) in [
            (Leg::ServerApp, Leg::ServerApp, "in the server's application"),
            (
                Leg::RequestWire,
                Leg::ResponseWire,
                "on the way to the server, at the server or on the way back",
            ),
            (
                Leg::RequestWire,
                Leg::ServerHostIn,
                "on the way to the server or in the server's host, before its application began",
            ),
            (Leg::ServerHostIn, Leg::ServerSend, "at the server"),
            (Leg::ServerHostIn, Leg::ServerHostOut, "at the server"),
            (
                Leg::ClientAppOut,
                Leg::ClientAppIn,
                "at the client, on the way to the server, at the server or on the way back",
            ),
            (Leg::ResponseWire, Leg::ClientAppIn, "on the way back or at the client"),
        ] {
            assert_eq!(Legs { first, last }.in_words(), words);
        }
        for first in Leg::ALL {
            for last in Leg::ALL.into_iter().filter(|last| *last >= first) {
                let words = Legs { first, last }.in_words();
                assert!(
                    !words.contains(['_', '+']) && !words.contains("somewhere"),
                    "{first}..{last}: {words}"
                );
            }
        }
    }

    #[test]
    fn legs_are_named_by_their_ends() {
        let server = Legs { first: Leg::ServerHostIn, last: Leg::ServerHostOut };
        assert_eq!(server.to_string(), "server_host_in+server_app+server_host_out");
        assert_eq!(Legs::one(Leg::RequestWire).to_string(), "request_wire");
    }
}
