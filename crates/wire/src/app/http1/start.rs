//! The first line of a message (RFC 9112, 3 and 4).

use crate::app::{Look, Spoken, without_query};

/// Methods that show a request before its line ends: those of RFC 9110, PATCH, and WebDAV's common ones.
const METHODS: [&[u8]; 18] = [
    b"GET",
    b"POST",
    b"PUT",
    b"HEAD",
    b"DELETE",
    b"OPTIONS",
    b"PATCH",
    b"CONNECT",
    b"TRACE",
    b"PROPFIND",
    b"PROPPATCH",
    b"MKCOL",
    b"COPY",
    b"MOVE",
    b"LOCK",
    b"UNLOCK",
    b"REPORT",
    b"SEARCH",
];

/// Maximum length of a method: the longest registered one has 17 characters. What is longer is the end of a body.
const MAX_METHOD_BYTES: usize = 32;

/// Maximum length of a first line.
const MAX_LINE_BYTES: usize = 16 << 10;

/// `GET /path?query HTTP/1.1`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLine<'a> {
    /// Method and target, without the query.
    pub text: &'a [u8],
    /// Only the method.
    pub method: &'a [u8],
    /// The target, with its query.
    pub target: &'a [u8],
    /// Minor version.
    pub minor: u8,
}

impl RequestLine<'_> {
    /// Parses a line without its end.
    pub fn read(line: &[u8]) -> Option<RequestLine<'_>> {
        let (before, minor) = match line {
            [before @ .., b' ', b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ b'0'..=b'9'] => {
                (before, minor - b'0')
            }
            _ => return None,
        };
        let space = memchr::memchr(b' ', before)?;
        let (method, target) = (&before[..space], &before[space + 1..]);
        if method.is_empty()
            || method.len() > MAX_METHOD_BYTES
            || !method.iter().all(|b| b.is_ascii_alphanumeric() || b"-_!#$%&'*+.^`|~".contains(b))
        {
            return None;
        }
        let path = without_query(target);
        Some(RequestLine { text: &before[..space + 1 + path.len()], method, target, minor })
    }

    /// Whether the target consists of visible ASCII characters, as it has to.
    fn has_plain_target(&self) -> bool {
        !self.target.is_empty() && self.target.iter().all(u8::is_ascii_graphic)
    }
}

/// `HTTP/1.1 200 OK`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusLine {
    /// Status code, 100 to 999.
    pub code: u16,
    /// Minor version.
    pub minor: u8,
}

impl StatusLine {
    /// Parses a line without its end.
    pub fn read(line: &[u8]) -> Option<StatusLine> {
        let [b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ b'0'..=b'9', b' ', a, b, c, rest @ ..] = line
        else {
            return None;
        };
        let digits = [a, b, c].iter().all(|digit| digit.is_ascii_digit());
        let code = [a, b, c].iter().fold(0, |sum, digit| sum * 10 + u16::from(digit.wrapping_sub(b'0')));
        (digits && code >= 100 && matches!(rest, [] | [b' ', ..]))
            .then_some(StatusLine { code, minor: minor - b'0' })
    }
}

/// Whether bytes begin with an HTTP/1 request.
pub fn looks_like_request(bytes: &[u8]) -> Look {
    let known = METHODS.iter().any(|method| {
        let both = bytes.len().min(method.len());
        bytes[..both] == method[..both] && bytes.get(both).is_none_or(|after| *after == b' ')
    });
    // Methods are an open set: whatever the first word is, a version at the end of the line shows a request.
    let is_request = |line: RequestLine<'_>| {
        known || line.method.iter().all(|b| matches!(b, b'A'..=b'Z' | b'-')) && line.has_plain_target()
    };
    match line(bytes) {
        Some(line) if RequestLine::read(line).is_some_and(is_request) => Look::Is(Spoken::Http1),
        None if known && bytes.len() <= MAX_LINE_BYTES => Look::More,
        _ => Look::Unknown,
    }
}

/// Whether bytes begin with an HTTP/1 response.
pub fn looks_like_response(bytes: &[u8]) -> Look {
    const VERSION: &[u8] = b"HTTP/1.";
    let both = bytes.len().min(VERSION.len());
    if bytes[..both] != VERSION[..both] {
        return Look::Unknown;
    }
    match (line(bytes), bytes.get(..12)) {
        (Some(line), _) if StatusLine::read(line).is_some() => Look::Is(Spoken::Http1),
        (None, Some(begin)) if StatusLine::read(begin).is_some() => Look::Is(Spoken::Http1),
        (None, None) => Look::More,
        _ => Look::Unknown,
    }
}

/// The first line, without its end; `None` while its end is missing.
fn line(bytes: &[u8]) -> Option<&[u8]> {
    let line = &bytes[..memchr::memchr(b'\n', bytes)?];
    Some(line.strip_suffix(b"\r").unwrap_or(line))
}
