//! A small HTTP client with a limit on every wait, and access to the API through it.

use super::process::{Meter, PATIENCE, until};
use serde::de::DeserializeOwned;
use spangap_meter::report::{ApiError, Coverage, PairRow, PairsReport, SpanCounts};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// An HTTP response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json<T: DeserializeOwned>(&self) -> T {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: status {}, {text}", self.status))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// An open request whose head has been sent.
pub fn open(address: SocketAddr, head: &str) -> TcpStream {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
    stream.set_write_timeout(Some(PATIENCE)).expect("not zero");
    stream.write_all(head.as_bytes()).expect("it reads");
    stream
}

/// A request on a connection of its own.
pub fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    // HTTP/1.0: the answer ends with the connection, and is not chunked.
    let mut head = format!("{method} {path} HTTP/1.0\r\nHost: {address}\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    let mut stream = open(address, &format!("{head}Content-Length: {}\r\n\r\n", body.len()));
    stream.write_all(body).expect("it reads");
    read_answer(stream)
}

/// Reads to the end of the connection.
pub fn read_answer(mut stream: TcpStream) -> Answer {
    let mut response = Vec::new();
    stream.read_to_end(&mut response).expect("an answer");
    let end = response.windows(4).position(|w| w == b"\r\n\r\n").expect("the end of the head");
    let body = response.split_off(end + 4);
    let head = String::from_utf8(response).expect("the head is text");
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|code| code.parse().ok());
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    Answer { status: status.unwrap_or_else(|| panic!("no status in {head:?}")), headers, body }
}

impl Meter {
    pub fn get(&self, path: &str) -> Answer {
        request(self.http, "GET", path, &[], b"")
    }

    /// An answer of the API, which must be a success.
    pub fn api<T: DeserializeOwned>(&self, path: &str) -> T {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {}", String::from_utf8_lossy(&answer.body));
        answer.json()
    }

    /// An error of the API at this path, which must have this status.
    pub fn api_error(&self, path: &str, status: u16) -> String {
        let answer = self.get(path);
        assert_eq!(answer.status, status, "{path}: {}", String::from_utf8_lossy(&answer.body));
        assert_eq!(answer.header("content-type"), Some("application/json"), "{path}");
        answer.json::<ApiError>().error
    }

    /// The coverage, in which every span must be in exactly one class.
    pub fn coverage(&self) -> Coverage {
        let coverage: Coverage = self.api("/api/v1/coverage");
        assert_identity(&coverage.spans);
        coverage
    }

    /// The row of a pair, once it has this many calls, including those with a negative gap.
    pub fn pair(&self, client: &str, server: &str, calls: u64) -> PairRow {
        let mut last = Vec::new();
        let row = until(&format!("{calls} calls of {client} -> {server}"), || {
            last = self.api::<PairsReport>("/api/v1/pairs?window=1h").pairs;
            last.iter()
                .find(|row| row.client == client && row.server == server && row.calls + row.negative >= calls)
                .cloned()
        });
        assert_eq!(row.calls + row.negative, calls, "{last:#?}");
        row
    }
}

pub fn assert_identity(spans: &SpanCounts) {
    assert_eq!(spans.classified(), spans.received, "{spans:?}");
}
