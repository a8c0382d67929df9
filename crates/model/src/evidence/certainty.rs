//! Certainty of a finding, and what would increase it.

use crate::Side;
use crate::named::named;
use serde::{Deserialize, Serialize};

/// Certainty of an instrument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Shape", into = "Shape")]
pub enum Certainty {
    /// Its own proofs exist and its look-alikes are excluded.
    Shown,
    /// The evidence fits, but what would distinguish it from its look-alikes is missing.
    Possible(Missing),
}

impl Certainty {
    /// Whether the look-alikes are excluded.
    pub fn is_shown(self) -> bool {
        self == Certainty::Shown
    }

    /// What is missing to exclude them.
    pub fn missing(self) -> Option<Missing> {
        match self {
            Certainty::Shown => None,
            Certainty::Possible(missing) => Some(missing),
        }
    }
}

/// `{"certainty": "possible", "missing": "the server's span", "lacks": "server-span"}`: words for people, a
/// name for programs.
#[derive(Serialize, Deserialize)]
struct Shape {
    certainty: Word,
    #[serde(skip_serializing_if = "Option::is_none", default, skip_deserializing)]
    missing: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    lacks: Option<Missing>,
}

named! {
    /// [`Certainty`] without what is missing.
    pub enum Word {
        /// See [`Certainty::Shown`].
        Shown = "shown",
        /// See [`Certainty::Possible`].
        Possible = "possible",
    }
}

impl From<Certainty> for Shape {
    fn from(certainty: Certainty) -> Shape {
        let lacks = certainty.missing();
        let word = if lacks.is_some() { Word::Possible } else { Word::Shown };
        Shape { certainty: word, missing: lacks.map(Missing::words), lacks }
    }
}

impl From<Shape> for Certainty {
    fn from(shape: Shape) -> Certainty {
        match (shape.certainty, shape.lacks) {
            (Word::Shown, _) => Certainty::Shown,
            (Word::Possible, lacks) => Certainty::Possible(lacks.unwrap_or(Missing::Unnamed)),
        }
    }
}

named! {
    /// Missing evidence that would distinguish a cause from its look-alikes.
    pub enum Missing {
        /// When the CLIENT span began.
        ClientSpanStart = "client-span-start",
        /// The server's span of the call.
        ServerSpan = "server-span",
        /// When the server had the response ready.
        ResponseReady = "response-ready",
        /// Whether calls waited in the client.
        CallsWaiting = "calls-waiting",
        /// The server's capture, to distinguish its side from the path.
        ServerCapture = "server-capture",
        /// The server's capture, to tell whether a response was sent.
        ResponseSent = "response-sent",
        /// The server's capture, to tell whether the request arrived.
        RequestArrived = "request-arrived",
        /// A capture at the server, to distinguish a lost SYN from a full accept queue.
        SynArrived = "syn-arrived",
        /// Whether a segment was retransmitted or overtaken on the path.
        SentTwice = "sent-twice",
        /// Whether the client sent bytes once that came twice.
        SentOnce = "sent-once",
        /// Whether the server's host dropped the first copy of bytes behind its tap, or the path lost it.
        DroppedByServer = "dropped-by-server",
        /// Whether the client's host dropped the first copy of bytes behind its tap, or the path lost it.
        DroppedByClient = "dropped-by-client",
        /// Whether bytes that came late were first sent in segments too large for the path.
        FirstSize = "first-size",
        /// Activity of the server's host.
        ServerHost = "server-host",
        /// Activity of the client's host.
        ClientHost = "client-host",
        /// The counters of the server's accept queues.
        ListenCounters = "listen-counters",
        /// Whether the receiver had the bytes, which it would have acknowledged a little later.
        EndsEarly = "ends-early",
        /// Whether the receiver had the bytes, which it cannot report.
        ReceiverSilent = "receiver-silent",
        /// Whether the sender had more to send, its next bytes having come late.
        SentLate = "sent-late",
        /// Whether the sender had more to send.
        MoreToSend = "more-to-send",
        /// Whether the sender had the bytes all along.
        BytesReady = "bytes-ready",
        /// The window scale of the connection: its handshake is not in the capture, so that the window in bytes is unknown.
        WindowScale = "window-scale",
        /// Delay of the path.
        RoundTrip = "round-trip",
        /// Why a segment was retransmitted.
        ResendReason = "resend-reason",
        /// Whether a connection was opened for the call.
        OpenedForCall = "opened-for-call",
        /// Whether a proxy waited for another host.
        ProxyBackend = "proxy-backend",
        /// Whether the application set the socket option, or the library.
        SocketOption = "socket-option",
        /// Whether these calls encountered the trap.
        MetByCalls = "met-by-calls",
        /// Missing evidence that the writer of the document did not name.
        Unnamed = "unnamed",
    }
}

/// Source of missing evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Need {
    /// Spans of that side.
    Spans(Side),
    /// A capture at that side.
    Capture(Side),
    /// A recording of that side's host.
    HostRecording(Side),
    /// Counters or sockets of that side's host.
    HostCheck(Side),
    /// A capture that starts before the connection, or ends after it.
    LongerCapture,
    /// No instrument can supply it.
    Nothing,
}

impl Missing {
    /// In words that follow "not known:".
    pub const fn words(self) -> &'static str {
        match self {
            Missing::ClientSpanStart => "client span start",
            Missing::ServerSpan => "the server's span",
            Missing::ResponseReady => {
                "when the server had this response ready: its span would tell whether it waited behind the other one"
            }
            Missing::CallsWaiting => {
                "whether calls waited in the client at the time: its spans, or a second connection, would tell"
            }
            Missing::ServerCapture => "the server's capture: this time includes the path",
            Missing::ResponseSent => "the server's capture: a response may have been lost on its way",
            Missing::RequestArrived => "the server's capture: no packet shows that the request arrived",
            Missing::SynArrived => {
                "whether the SYN reached the server's host: a capture there tells loss on the way from a full accept queue"
            }
            Missing::SentTwice => {
                "whether it was retransmitted, or overtaken on the path: a capture at the sender's end, IP \
                 identification or TCP timestamps would tell"
            }
            Missing::SentOnce => {
                "the client's capture: it tells bytes sent again, because the first copy was dropped behind the server's \
                 tap, from bytes sent once that the path delivered twice"
            }
            Missing::DroppedByServer => {
                "the server's capture: it has the first copy if the server's host dropped it behind its tap, and lacks it if \
                 the path lost it"
            }
            Missing::DroppedByClient => {
                "the client's capture: it has the first copy if the client's host dropped it behind its tap, and lacks it if \
                 the path lost it"
            }
            Missing::FirstSize => {
                "the sender's capture: it tells whether the first copies were too large for the path"
            }
            Missing::ServerHost => "a record of the server's host: run queue, softirq, accept queue",
            Missing::ClientHost => "a record of the client's host",
            Missing::ListenCounters => {
                "ListenOverflows and ListenDrops of the server's host (/proc/net/netstat)"
            }
            Missing::EndsEarly => {
                "whether the receiver already had them: it would have said so a little later, but the connection or \
                 the capture ends here"
            }
            Missing::ReceiverSilent => {
                "whether the receiver got the first copy: without SACK and TCP timestamps it does not say when \
                 bytes arrive twice"
            }
            Missing::SentLate => {
                "whether the sender had more to send: no probe was seen, and its next bytes came later than the update"
            }
            Missing::MoreToSend => "whether the sender had more to send",
            Missing::BytesReady => {
                "whether the sender had the bytes all along: its application may have written them late"
            }
            Missing::WindowScale => {
                "the window scale, which only the SYN shows: the peer's window may have been too small"
            }
            Missing::RoundTrip => {
                "how long the path takes: without that, an ordinary acknowledgement may look delayed"
            }
            Missing::ResendReason => {
                "why it was retransmitted: no acknowledgements of later bytes were seen, and the usual timer of 200 \
                 ms had not expired"
            }
            Missing::OpenedForCall => {
                "whether the connection was opened for this call: it was idle before it or stayed open after it"
            }
            Missing::ProxyBackend => {
                "whether the proxy waited for another host: at the time it called one for no call that is known, or \
                 tried to connect"
            }
            Missing::SocketOption => {
                "whether the program ever sends a message in pieces: packets would show that"
            }
            Missing::MetByCalls => {
                "whether it affected calls: packets, or a recording from that time, would show \
            that"
            }
            Missing::Unnamed => "something not named here",
        }
    }

    /// Source that would supply it.
    pub const fn need(self) -> Need {
        match self {
            Missing::ClientSpanStart | Missing::CallsWaiting => Need::Spans(Side::Client),
            Missing::ServerSpan | Missing::ResponseReady => Need::Spans(Side::Server),
            Missing::ServerCapture
            | Missing::ResponseSent
            | Missing::RequestArrived
            | Missing::SynArrived
            | Missing::SentTwice
            | Missing::DroppedByServer
            | Missing::FirstSize => Need::Capture(Side::Server),
            Missing::ServerHost => Need::HostRecording(Side::Server),
            Missing::ClientHost => Need::HostRecording(Side::Client),
            Missing::ListenCounters => Need::HostCheck(Side::Server),
            Missing::EndsEarly | Missing::WindowScale | Missing::RoundTrip => Need::LongerCapture,
            Missing::SocketOption | Missing::MetByCalls | Missing::SentOnce | Missing::DroppedByClient => {
                Need::Capture(Side::Client)
            }
            Missing::ReceiverSilent
            | Missing::SentLate
            | Missing::MoreToSend
            | Missing::BytesReady
            | Missing::ResendReason
            | Missing::OpenedForCall
            | Missing::ProxyBackend
            | Missing::Unnamed => Need::Nothing,
        }
    }
}
