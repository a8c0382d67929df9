//! Syntax of a filter expression.

use std::net::IpAddr;

/// Invalid expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("filter, column {column}: found {found}; expected {expected}")]
pub struct FilterError {
    /// Column, from 1.
    pub column: usize,
    /// Text found there.
    pub found: String,
    /// Text expected there.
    pub expected: &'static str,
}

/// The end of a packet that a condition refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The sender.
    Source,
    /// The receiver.
    Destination,
    /// Either of them.
    Either,
}

/// A tree of conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expression {
    /// IPv4 (4) or IPv6 (6).
    Version(u8),
    /// Carried by IP with this protocol number.
    Protocol(u8),
    /// Address, and the number of relevant bits.
    Net(End, IpAddr, u8),
    /// Ports from the first to the last, of TCP, UDP and SCTP, or only of the given protocol.
    Ports(End, Option<u8>, u16, u16),
    Not(Box<Expression>),
    And(Box<Expression>, Box<Expression>),
    Or(Box<Expression>, Box<Expression>),
}

pub(super) const TCP: u8 = 6;
const UDP: u8 = 17;
/// Maximum nesting of parentheses and `not`.
const MAX_DEPTH: usize = 64;
/// Maximum length of an expression, bytes.
const MAX_LENGTH: usize = 4096;

const CONDITION: &str =
    "tcp, udp, ip, ip6, [src|dst] host ADDRESS, net ADDRESS/BITS, port N, portrange A-B, not or (";

/// Parses an expression; `None` for the empty one.
pub(super) fn parse(text: &str) -> Result<Option<Expression>, FilterError> {
    if text.len() > MAX_LENGTH {
        let found = format!("{} bytes", text.len());
        return Err(FilterError { column: 1, found, expected: "at most 4096 bytes" });
    }
    let mut parser = Parser { words: words(text), at: 0, end: text.len() + 1, depth: 0 };
    if parser.words.is_empty() {
        return Ok(None);
    }
    let expression = parser.any()?;
    match parser.peek() {
        None => Ok(Some(expression)),
        Some(_) => Err(parser.error("and, or, or the end")),
    }
}

/// Words with their columns; parentheses and `!` are separate words.
fn words(text: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let mut start = None;
    for (at, c) in text.char_indices() {
        let alone = matches!(c, '(' | ')' | '!');
        if alone || c.is_whitespace() {
            words.extend(start.take().map(|start: usize| (start + 1, &text[start..at])));
        } else {
            start.get_or_insert(at);
        }
        if alone {
            words.push((at + 1, &text[at..at + c.len_utf8()]));
        }
    }
    words.extend(start.map(|start| (start + 1, &text[start..])));
    words
}

struct Parser<'a> {
    words: Vec<(usize, &'a str)>,
    at: usize,
    end: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).map(|(_, word)| *word)
    }

    fn take(&mut self, any_of: &[&str]) -> bool {
        let found = self.peek().is_some_and(|word| any_of.contains(&word));
        self.at += usize::from(found);
        found
    }

    fn error(&self, expected: &'static str) -> FilterError {
        match self.words.get(self.at) {
            Some((column, word)) => FilterError { column: *column, found: format!("{word:?}"), expected },
            None => FilterError { column: self.end, found: "the end".into(), expected },
        }
    }

    /// As in pcap-filter(7), `and` and `or` have equal precedence and associate to the left.
    fn any(&mut self) -> Result<Expression, FilterError> {
        let mut left = self.one()?;
        loop {
            if self.take(&["and", "&&"]) {
                left = Expression::And(Box::new(left), Box::new(self.one()?));
            } else if self.take(&["or", "||"]) {
                left = Expression::Or(Box::new(left), Box::new(self.one()?));
            } else {
                return Ok(left);
            }
        }
    }

    fn one(&mut self) -> Result<Expression, FilterError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error("at most 64 nested conditions"));
        }
        let result = if self.take(&["not", "!"]) {
            Ok(Expression::Not(Box::new(self.one()?)))
        } else if self.take(&["("]) {
            let inner = self.any()?;
            match self.take(&[")"]) {
                true => Ok(inner),
                false => Err(self.error("and, or, or )")),
            }
        } else {
            self.condition()
        };
        self.depth -= 1;
        result
    }

    fn condition(&mut self) -> Result<Expression, FilterError> {
        let protocol = match self.peek() {
            Some("tcp") => Some(Expression::Protocol(TCP)),
            Some("udp") => Some(Expression::Protocol(UDP)),
            Some("ip") => Some(Expression::Version(4)),
            Some("ip6") => Some(Expression::Version(6)),
            _ => None,
        };
        self.at += usize::from(protocol.is_some());
        let end = match self.peek() {
            Some("src") => Some(End::Source),
            Some("dst") => Some(End::Destination),
            _ => None,
        };
        self.at += usize::from(end.is_some());
        let either = end.unwrap_or(End::Either);
        let condition = match self.peek() {
            Some("host") => self.host(either)?,
            Some("net") => self.net(either)?,
            Some("port" | "portrange") => {
                let carrier = match protocol {
                    Some(Expression::Protocol(number)) => Some(number),
                    _ => None,
                };
                let ports = self.ports(either, carrier)?;
                if carrier.is_some() {
                    return Ok(ports);
                }
                ports
            }
            _ if end.is_some() => return Err(self.error("host, net, port or portrange after src or dst")),
            _ => return protocol.ok_or_else(|| self.error(CONDITION)),
        };
        Ok(match protocol {
            Some(protocol) => Expression::And(Box::new(protocol), Box::new(condition)),
            None => condition,
        })
    }

    fn argument<T>(
        &mut self,
        expected: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<T, FilterError> {
        self.at += 1;
        let value = self.peek().and_then(parse).ok_or_else(|| self.error(expected))?;
        self.at += 1;
        Ok(value)
    }

    fn host(&mut self, end: End) -> Result<Expression, FilterError> {
        let address: IpAddr =
            self.argument("an IPv4 or IPv6 address (names are not looked up)", |word| word.parse().ok())?;
        Ok(Expression::Net(end, address, if address.is_ipv4() { 32 } else { 128 }))
    }

    fn net(&mut self, end: End) -> Result<Expression, FilterError> {
        let (address, bits) = self.argument("a network such as 10.0.0.0/8 or fd00::/8", |word| {
            let (address, bits) = word.split_once('/')?;
            let (address, bits): (IpAddr, u8) = (address.parse().ok()?, bits.parse().ok()?);
            (bits <= if address.is_ipv4() { 32 } else { 128 }).then_some((address, bits))
        })?;
        Ok(Expression::Net(end, address, bits))
    }

    fn ports(&mut self, end: End, carrier: Option<u8>) -> Result<Expression, FilterError> {
        let (first, last) = if self.peek() == Some("port") {
            let port = self.argument("a port number", |word| word.parse::<u16>().ok())?;
            (port, port)
        } else {
            self.argument("two port numbers such as 8000-8099", |word| {
                let (first, last) = word.split_once('-')?;
                let (first, last) = (first.parse::<u16>().ok()?, last.parse().ok()?);
                (first <= last).then_some((first, last))
            })?
        };
        Ok(Expression::Ports(end, carrier, first, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_words_are_parsed() {
        assert_eq!(parse("  "), Ok(None));
        assert_eq!(
            parse("tcp port 50051").unwrap(),
            Some(Expression::Ports(End::Either, Some(TCP), 50051, 50051))
        );
        let tree = parse("host 10.0.0.1 and not (port 22 or dst portrange 1-9)").unwrap().unwrap();
        let Expression::And(host, not) = tree else { panic!("{tree:?}") };
        assert_eq!(*host, Expression::Net(End::Either, "10.0.0.1".parse().unwrap(), 32));
        assert!(matches!(*not, Expression::Not(inner) if matches!(*inner, Expression::Or(..))));
    }

    #[test]
    fn errors_name_column_and_expectation() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(error("tcp and"), format!("filter, column 8: found the end; expected {CONDITION}"));
        assert_eq!(error("port http"), "filter, column 6: found \"http\"; expected a port number");
        assert_eq!(error("(tcp"), "filter, column 5: found the end; expected and, or, or )");
        assert!(error("host example").contains("names are not looked up"));
        assert!(error("tcp 50051").contains("expected and, or, or the end"));
        assert!(error("src tcp").contains("host, net, port or portrange"));
        assert!(error("net 10.0.0.0/33").contains("10.0.0.0/8"));
        assert!(error(&"(".repeat(100)).contains("64 nested"));
        assert!(error(&"a".repeat(5000)).contains("4096"));
    }
}
