//! Common output of all file readers: OTLP bytes for the walk, and a record of what was skipped.

use super::otlp_json::JsonError;
use super::scan::Raw;
use super::source::Place;
use super::wire::WalkError;
use crate::report::Skipped;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, TracesData};
use prost::Message;
use serde::Deserialize;

/// Maximum number of records of skipped places per input; further ones are only counted.
pub const SKIPPED_KEPT: usize = 100;
/// Spans translated at a time, so that memory does not grow with the document.
pub(super) const SPANS_AT_ONCE: usize = 4096;
/// Spans held while their resource, or the processes of their trace, are yet to come.
pub(super) const SPANS_HELD: usize = 65_536;
/// Approximate size of a request, chosen to make its fixed cost negligible.
const REQUEST_BYTES: usize = 256 << 10;

/// Processes one OTLP request and returns the number of spans in it.
pub type Sink<'a> = dyn FnMut(&[u8]) -> Result<u64, WalkError> + 'a;

/// Outcome of reading one input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileReport {
    /// Detected format, such as `OTLP JSON, gzip`.
    pub format: String,
    /// Spans delivered.
    pub spans: u64,
    /// Bytes read, after decompression.
    pub bytes: u64,
    /// Skipped places in input order; at most [`SKIPPED_KEPT`].
    pub skipped: Vec<Skipped>,
    /// Number of skipped places, including those without a record.
    pub skipped_places: u64,
    /// Spans known to be lost in them.
    pub skipped_spans: u64,
}

/// What of each span is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// Everything.
    Whole,
    /// At least what [`super::times`] needs.
    Times,
}

/// Batches messages into requests of a useful size and passes them on.
pub struct Delivery<'a> {
    sink: &'a mut Sink<'a>,
    /// What of each span is to be delivered.
    pub(super) detail: Detail,
    file: String,
    /// Whether places refer to the decompressed content; messages then say so.
    pub decompressed: bool,
    request: Vec<u8>,
    request_place: Option<Place>,
    /// The report so far.
    pub report: FileReport,
}

impl<'a> Delivery<'a> {
    /// A delivery for one input, which records of skipped places call `file`.
    pub fn new(file: String, sink: &'a mut Sink<'a>) -> Self {
        Delivery {
            sink,
            detail: Detail::Whole,
            file,
            decompressed: false,
            request: Vec::new(),
            request_place: None,
            report: FileReport::default(),
        }
    }

    /// Delivers translated spans from about `place`.
    pub fn resource_spans(&mut self, spans: ResourceSpans, place: Place) {
        self.request_place.get_or_insert(place);
        // The encoding of a request is the concatenation of the messages of its repeated field.
        let request = TracesData { resource_spans: vec![spans] };
        self.request.reserve(request.encoded_len());
        request.encode_raw(&mut self.request);
        if self.request.len() >= REQUEST_BYTES {
            self.flush();
        }
    }

    /// Delivers a complete request found at `place`.
    pub fn request(&mut self, request: &[u8], place: Place) {
        match (self.sink)(request) {
            Ok(spans) => self.report.spans += spans,
            Err(error) => {
                let place = Place { offset: place.offset + error.offset as u64, line: None };
                self.skip(place, format!("not OTLP protobuf: expected {}", error.expected), None);
            }
        }
    }

    /// Delivers the pending batch.
    pub fn flush(&mut self) {
        if let Some(place) = self.request_place.take() {
            let request = std::mem::take(&mut self.request);
            self.request(&request, place);
            self.request = request;
            self.request.clear();
        }
    }

    /// Records a skipped place; `spans` is the number of lost spans, if known.
    pub fn skip(&mut self, place: Place, reason: impl Into<String>, spans: Option<u64>) {
        let place = format!("{place}{}", if self.decompressed { " (decompressed)" } else { "" });
        self.skip_somewhere(place, reason.into(), spans);
    }

    /// Like [`Delivery::skip`], for a place outside the content.
    pub fn skip_somewhere(&mut self, place: String, reason: String, spans: Option<u64>) {
        self.report.skipped_places += 1;
        self.report.skipped_spans += spans.unwrap_or(0);
        if self.report.skipped.len() < SKIPPED_KEPT {
            self.report.skipped.push(Skipped { file: self.file.clone(), place, reason, spans });
        }
    }
}

/// Parses one value; an invalid one is skipped and the place of the error recorded. `spans` is the number of
/// spans lost with it.
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
