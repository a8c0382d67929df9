//! Authorisation: tokens and their roles, and protection against cross-site requests.
//!
//! Without tokens, anyone who can reach a port may send spans and read; by default, only this host can.
//! Requests for packets from hosts, and any change, are reserved for this host. With tokens, every request
//! needs one.

use super::places::Peer;
use super::tls::Certified;
use http::header::{AUTHORIZATION, HOST, ORIGIN};
use http::{HeaderMap, Uri};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use subtle::{Choice, ConstantTimeEq};

/// Permission of a token. Change includes capture, and capture includes view; ingest is separate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Send spans.
    Ingest,
    /// Read measurements.
    View,
    /// Request packets and recordings from hosts, and act as such a host.
    Capture,
    /// Change hosts.
    Change,
}

impl Role {
    /// All roles, with their names in a token file.
    pub const ALL: [(Role, &'static str); 4] = [
        (Role::Ingest, "ingest"),
        (Role::View, "view"),
        (Role::Capture, "capture"),
        (Role::Change, "change"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Role::ALL.iter().find(|(role, _)| *role == self).map_or("", |(_, name)| name)
    }

    fn allows(self, asked: Role) -> bool {
        match (self, asked) {
            (Role::Ingest, asked) => asked == Role::Ingest,
            (_, Role::Ingest) => false,
            (has, asked) => has >= asked,
        }
    }
}

/// Why a token file is rejected. No message contains a token.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// A line is neither empty, a comment nor a token.
    #[error("line {0}: expected a role (ingest, view, capture, change), a space and a token")]
    Line(usize),
    /// A token is too short.
    #[error("line {0}: the token has less than {LEAST_TOKEN} characters")]
    Short(usize),
    /// There is no token at all.
    #[error("expected at least one line `ROLE TOKEN`")]
    Empty,
}

/// Minimum length of a token in characters.
pub const LEAST_TOKEN: usize = 16;

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// It carries no token, or an unknown one.
    NoToken(Role),
    /// Its token has another role.
    WrongRole(Role),
    /// It comes from another host, and there are no tokens.
    NotLocal(Role),
    /// It is addressed to another host; a foreign page may have sent it.
    Host(String),
    /// A foreign page sent it.
    Origin(String),
    /// An agent did not present a certificate.
    NoCertificate,
}

/// Reasons of refusals, as labels: those of [`Denied`], in the order of [`Denied::place`], and sign-ins with
/// unknown tokens.
const REASONS: [&str; 7] = ["token", "role", "not_local", "host", "origin", "certificate", "sign_in"];

impl Denied {
    fn place(&self) -> usize {
        match self {
            Denied::NoToken(_) => 0,
            Denied::WrongRole(_) => 1,
            Denied::NotLocal(_) => 2,
            Denied::Host(_) => 3,
            Denied::Origin(_) => 4,
            Denied::NoCertificate => 5,
        }
    }
}

impl std::fmt::Display for Denied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Denied::NoToken(role) => {
                write!(
                    f,
                    "expected the header `authorization: Bearer TOKEN` with a token for {}",
                    role.name()
                )
            }
            Denied::WrongRole(role) => write!(f, "this token is not for {}", role.name()),
            Denied::NotLocal(role) => write!(
                f,
                "without --token-file, only clients on the meter's own host have the role {}; --insecure gives it \
                 to everybody",
                role.name()
            ),
            Denied::Host(host) => write!(
                f,
                "the request is for the host {host:?}: expected an address, localhost, or a name given with --http-host"
            ),
            Denied::Origin(origin) => {
                write!(f, "the request was sent by a page of {origin:?}, another site")
            }
            Denied::NoCertificate => write!(
                f,
                "expected a certificate from an authority in --tls-client-ca; an agent presents one with --tls-cert \
                 and --tls-key"
            ),
        }
    }
}

/// The token that a request brings.
pub fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    headers.get(AUTHORIZATION)?.as_bytes().strip_prefix(b"Bearer ")
}

/// Access rules.
#[derive(Debug, Default)]
pub struct Access {
    tokens: Vec<(Role, String)>,
    hosts: Vec<String>,
    insecure: bool,
    agents_need_certificates: bool,
    /// Requests refused, since the start.
    pub denied: AtomicU64,
    /// These requests by reason.
    by_reason: [AtomicU64; REASONS.len()],
}

impl Access {
    /// Rules without tokens. `hosts` are the host names of pages and API.
    pub fn new(hosts: Vec<String>, insecure: bool) -> Access {
        Access {
            hosts: hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            insecure,
            ..Access::default()
        }
    }

    /// Adds the tokens of a file: lines with a role and a token, and comments.
    ///
    /// # Errors
    /// When a line is neither.
    pub fn with_tokens(mut self, text: &str) -> Result<Access, TokenError> {
        for (line, number) in text.lines().zip(1..) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (role, token) = line.split_once(char::is_whitespace).ok_or(TokenError::Line(number))?;
            let role = Role::ALL.iter().find(|(_, name)| *name == role).ok_or(TokenError::Line(number))?.0;
            let token = token.trim();
            if token.contains(char::is_whitespace) {
                return Err(TokenError::Line(number));
            }
            if token.len() < LEAST_TOKEN {
                return Err(TokenError::Short(number));
            }
            self.tokens.push((role, token.to_owned()));
        }
        if self.tokens.is_empty() { Err(TokenError::Empty) } else { Ok(self) }
    }

    /// Requires a certificate from agents, in addition to the other conditions.
    pub fn with_certified_agents(self) -> Access {
        Access { agents_need_certificates: true, ..self }
    }

    /// Whether a host may be an agent: by the rules of [`Access::may`], and with a certificate if required. A
    /// refusal is counted.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn may_attach(
        &self,
        headers: &HeaderMap,
        peer: Option<Peer>,
        certified: Option<&Certified>,
    ) -> Result<(), Denied> {
        if self.agents_need_certificates && certified.is_none() {
            self.count(Denied::NoCertificate.place());
            return Err(Denied::NoCertificate);
        }
        self.may(Role::Capture, headers, peer)
    }

    /// Counts a refusal decided elsewhere.
    pub fn refuse(&self) {
        self.count(REASONS.len() - 1);
    }

    fn count(&self, reason: usize) {
        self.denied.fetch_add(1, Relaxed);
        self.by_reason[reason].fetch_add(1, Relaxed);
    }

    /// Refusals since the start, by reason.
    pub fn denials(&self) -> impl Iterator<Item = (&'static str, u64)> {
        REASONS.into_iter().zip(&self.by_reason).map(|(reason, count)| (reason, count.load(Relaxed)))
    }

    /// The role of a token; `None` if it is unknown.
    pub fn role_of(&self, token: &str) -> Option<Role> {
        // Compares all tokens, so that the duration does not reveal a partial match.
        self.tokens.iter().fold(None, |found, (role, known)| {
            if bool::from(known.as_bytes().ct_eq(token.as_bytes())) { Some(*role) } else { found }
        })
    }

    /// Whether requests need tokens.
    pub fn has_tokens(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// Whether a request may do what requires `role`. A refusal is counted.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn may(&self, role: Role, headers: &HeaderMap, peer: Option<Peer>) -> Result<(), Denied> {
        let done = self.judge(role, headers, peer);
        done.inspect_err(|denied| self.count(denied.place()))
    }

    fn judge(&self, role: Role, headers: &HeaderMap, peer: Option<Peer>) -> Result<(), Denied> {
        if self.tokens.is_empty() {
            let is_local = peer.is_some_and(Peer::is_loopback);
            return match role {
                Role::Capture | Role::Change if !is_local && !self.insecure => Err(Denied::NotLocal(role)),
                _ => Ok(()),
            };
        }
        let Some(brought) = bearer(headers) else { return Err(Denied::NoToken(role)) };
        // Compares all tokens, each in constant time.
        let (mut known, mut allowed) = (Choice::from(0), Choice::from(0));
        for (has, token) in &self.tokens {
            let is_it = token.as_bytes().ct_eq(brought);
            known |= is_it;
            allowed |= is_it & Choice::from(u8::from(has.allows(role)));
        }
        match (bool::from(known), bool::from(allowed)) {
            (_, true) => Ok(()),
            (true, false) => Err(Denied::WrongRole(role)),
            (false, false) => Err(Denied::NoToken(role)),
        }
    }

    /// Whether the request is addressed to this service, and not sent by a foreign page: anyone can make
    /// their host name resolve to this address, and a browser then treats our answers as theirs. A refusal is
    /// counted.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn is_ours(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Denied> {
        let done = self.judge_origin(uri, headers);
        done.inspect_err(|denied| self.count(denied.place()))
    }

    fn judge_origin(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Denied> {
        let text =
            |name| headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        // HTTP/2 has the host in the request's address. A program may omit it; a browser does not.
        let host = uri.authority().map(|authority| authority.to_string()).or_else(|| text(HOST));
        if let Some(host) = &host
            && !self.is_name_of_ours(host_name(host))
        {
            return Err(Denied::Host(cut(host)));
        }
        let Some(origin) = text(ORIGIN) else { return Ok(()) };
        let of = origin.split_once("://").map(|(_, rest)| rest);
        match (of, &host) {
            (Some(of), Some(host)) if of.eq_ignore_ascii_case(host) => Ok(()),
            _ => Err(Denied::Origin(cut(&origin))),
        }
    }

    fn is_name_of_ours(&self, name: &str) -> bool {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let literal = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(&name);
        name == "localhost"
            || name.ends_with(".localhost")
            || literal.parse::<IpAddr>().is_ok()
            || self.hosts.contains(&name)
    }
}

/// The host without its port.
fn host_name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.is_empty() => name,
        _ => host,
    }
}

/// Shortens text for a message.
fn cut(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    const HERE: Option<Peer> = Some(Peer::of_v4([127, 0, 0, 1]));
    const THERE: Option<Peer> = Some(Peer::of_v4([10, 0, 0, 1]));

    fn headers(of: &[(http::HeaderName, &str)]) -> HeaderMap {
        of.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap())).collect()
    }

    fn bearer(token: &str) -> HeaderMap {
        headers(&[(AUTHORIZATION, &format!("Bearer {token}"))])
    }

    const VIEW: &str = "view-view-view-view";
    const CAPTURE: &str = "capture-capture-cap";
    const INGEST: &str = "ingest-ingest-ingest";

    fn with_tokens() -> Access {
        let text = format!("# ours\n\nview {VIEW}\ncapture  {CAPTURE}\ningest {INGEST}\n");
        Access::new(Vec::new(), false).with_tokens(&text).unwrap()
    }

    #[test]
    fn a_token_opens_what_its_role_is_for() {
        let access = with_tokens();
        for (token, allowed) in [
            (VIEW, &[Role::View][..]),
            (CAPTURE, &[Role::View, Role::Capture]),
            (INGEST, &[Role::Ingest]),
            ("view-view-view-vie", &[]),
            ("", &[]),
        ] {
            for (role, name) in Role::ALL {
                let done = access.may(role, &bearer(token), HERE);
                assert_eq!(done.is_ok(), allowed.contains(&role), "{token:?} for {name}: {done:?}");
            }
        }
        assert_eq!(access.may(Role::View, &HeaderMap::new(), HERE), Err(Denied::NoToken(Role::View)));
        assert_eq!(access.may(Role::Capture, &bearer(VIEW), HERE), Err(Denied::WrongRole(Role::Capture)));
        assert_eq!(access.denied.load(Relaxed), 4 * 5 - 4 + 2);
        assert!(!format!("{}", Denied::WrongRole(Role::Capture)).contains(VIEW));
    }

    #[test]
    fn without_tokens_packets_are_for_those_on_this_host() {
        let access = Access::new(Vec::new(), false);
        let none = HeaderMap::new();
        for role in [Role::Ingest, Role::View] {
            assert!(access.may(role, &none, THERE).is_ok());
        }
        for role in [Role::Capture, Role::Change] {
            assert!(access.may(role, &none, HERE).is_ok());
            assert_eq!(access.may(role, &none, THERE), Err(Denied::NotLocal(role)));
            assert_eq!(
                access.may(role, &none, None),
                Err(Denied::NotLocal(role)),
                "whoever is not known is not here"
            );
            assert!(Access::new(Vec::new(), true).may(role, &none, THERE).is_ok());
        }
    }

    #[test]
    fn a_token_file_is_accepted_as_a_whole_or_rejected() {
        let read = |text: &str| Access::default().with_tokens(text).map(|_| ()).unwrap_err();
        assert_eq!(read("view"), TokenError::Line(1));
        assert_eq!(read("\nadmin 0123456789abcdef"), TokenError::Line(2));
        assert_eq!(read("view 0123456789abcdef and more"), TokenError::Line(1));
        assert_eq!(read("view 0123456789abcde"), TokenError::Short(1));
        assert_eq!(read("# none\n"), TokenError::Empty);
    }

    #[test]
    fn requests_for_another_host_or_from_a_foreign_page_are_refused() {
        let access = Access::new(vec!["Meter.example".into()], false);
        let uri = Uri::from_static("/api/v1/pairs");
        for (host, origin, ours) in [
            ("127.0.0.1:7070", None, true),
            ("localhost:7070", None, true),
            ("[::1]:7070", Some("http://[::1]:7070"), true),
            ("[::1]", None, true),
            ("10.1.2.3", Some("http://10.1.2.3"), true),
            ("meter.example:7070", Some("https://meter.example:7070"), true),
            ("METER.example.", None, true),
            ("evil.example:7070", None, false),
            ("127.0.0.1.evil.example", None, false),
            ("localhost.evil.example:7070", None, false),
            ("", None, false),
            (":7070", None, false),
            ("127.0.0.1:7070", Some("http://evil.example"), false),
            ("127.0.0.1:7070", Some("http://127.0.0.1:8080"), false),
            ("127.0.0.1:7070", Some("null"), false),
        ] {
            let mut of = headers(&[(HOST, host)]);
            if let Some(origin) = origin {
                of.insert(ORIGIN, HeaderValue::from_str(origin).unwrap());
            }
            let done = access.is_ours(&uri, &of);
            assert_eq!(done.is_ok(), ours, "{host:?} {origin:?}: {done:?}");
        }
        assert!(access.is_ours(&uri, &HeaderMap::new()).is_ok(), "HTTP/1.0 of a script");
        let http2 = Uri::from_static("http://evil.example/api/v1/pairs");
        assert!(access.is_ours(&http2, &HeaderMap::new()).is_err());
    }
}
