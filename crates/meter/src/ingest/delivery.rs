//! Where all readers of files hand over what they made: OTLP bytes to the walk, and a record of what was skipped.

use super::otlp_json::JsonError;
use super::scan::Raw;
use super::source::Place;
use super::wire::WalkError;
use crate::report::Skipped;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, TracesData};
use prost::Message;
use serde::Deserialize;

/// How many records of skipped places are kept for one input; the rest is counted.
pub const SKIPPED_KEPT: usize = 100;
/// Spans translated at once, so that memory does not grow with the document.
pub(super) const SPANS_AT_ONCE: usize = 4096;
/// Spans held while the resource they belong to, or the processes of their trace, have not come yet.
pub(super) const SPANS_HELD: usize = 65_536;
/// Requests are made about this large, so that their fixed cost does not count.
const REQUEST_BYTES: usize = 256 << 10;

/// Takes one OTLP request and says how many spans were in it.
pub type Sink<'a> = dyn FnMut(&[u8]) -> Result<u64, WalkError> + 'a;

/// What came out of one input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileReport {
    /// What the input turned out to be, such as `OTLP JSON, gzip`.
    pub format: String,
    /// Spans handed over.
    pub spans: u64,
    /// Bytes read, after decompression.
    pub bytes: u64,
    /// What was skipped, in the input's order; at most [`SKIPPED_KEPT`].
    pub skipped: Vec<Skipped>,
    /// Places that were skipped, those without a record too.
    pub skipped_places: u64,
    /// Spans known to be lost that way.
    pub skipped_spans: u64,
}

/// Collects messages into requests of a useful size and passes them on.
pub struct Delivery<'a> {
    sink: &'a mut Sink<'a>,
    file: String,
    /// Places are those of the decompressed content, and say so.
    pub decompressed: bool,
    request: Vec<u8>,
    request_place: Option<Place>,
    /// So far.
    pub report: FileReport,
}

impl<'a> Delivery<'a> {
    /// For one input, called `file` in records of what was skipped.
    pub fn new(file: String, sink: &'a mut Sink<'a>) -> Self {
        Delivery {
            sink,
            file,
            decompressed: false,
            request: Vec::new(),
            request_place: None,
            report: FileReport::default(),
        }
    }

    /// Hands over translated spans that came from about `place`.
    pub fn resource_spans(&mut self, spans: ResourceSpans, place: Place) {
        self.request_place.get_or_insert(place);
        // One message of a repeated field after the other is the request's own encoding.
        let request = TracesData { resource_spans: vec![spans] };
        self.request.reserve(request.encoded_len());
        request.encode_raw(&mut self.request);
        if self.request.len() >= REQUEST_BYTES {
            self.flush();
        }
    }

    /// Hands over a whole request as it was found at `place`.
    pub fn request(&mut self, request: &[u8], place: Place) {
        match (self.sink)(request) {
            Ok(spans) => self.report.spans += spans,
            Err(error) => {
                let place = Place { offset: place.offset + error.offset as u64, line: None };
                self.skip(place, format!("not OTLP protobuf: expected {}", error.expected), None);
            }
        }
    }

    /// Hands over whatever has been collected.
    pub fn flush(&mut self) {
        if let Some(place) = self.request_place.take() {
            let request = std::mem::take(&mut self.request);
            self.request(&request, place);
            self.request = request;
            self.request.clear();
        }
    }

    /// Notes that something was skipped; `spans` is how many are lost, where that can be told.
    pub fn skip(&mut self, place: Place, reason: impl Into<String>, spans: Option<u64>) {
        let place = format!("{place}{}", if self.decompressed { " (decompressed)" } else { "" });
        self.skip_somewhere(place, reason.into(), spans);
    }

    /// The same where the place is not one of the content.
    pub fn skip_somewhere(&mut self, place: String, reason: String, spans: Option<u64>) {
        self.report.skipped_places += 1;
        self.report.skipped_spans += spans.unwrap_or(0);
        if self.report.skipped.len() < SKIPPED_KEPT {
            self.report.skipped.push(Skipped { file: self.file.clone(), place, reason, spans });
        }
    }
}

/// Reads one value; what cannot be read is skipped with the place of the mistake. `spans` is how many are
/// lost by it.
pub(super) fn value<'s, T: Deserialize<'s>>(
    raw: Raw<'s>,
    delivery: &mut Delivery<'_>,
    spans: Option<u64>,
) -> Option<T> {
    match serde_json::from_slice(raw.json) {
        Ok(value) => Some(value),
        Err(error) => {
            let error = JsonError::from(error);
            let before = error.offset_in(raw.json);
            let place = Place {
                offset: raw.place.offset + before as u64,
                line: raw.place.line.map(|line| line + error.line.saturating_sub(1) as u64),
            };
            delivery.skip(place, error.reason, spans);
            None
        }
    }
}
