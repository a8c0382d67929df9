//! Spans as rows of a Parquet file. Attributes are maps of text: other values than text are as JSON, as in [`jaeger`](super::jaeger).

use super::jaeger::plain;
use crate::query::hex;
use bytes::Bytes;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Attribute;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue as Said;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};
use std::io::Write;
use std::sync::Arc;

/// The columns, in the order in which [`Table::flush`] writes them.
const SCHEMA: &str = "message spans {
    required binary trace_id (STRING);
    required binary span_id (STRING);
    optional binary parent_span_id (STRING);
    optional binary service (STRING);
    required binary name (STRING);
    required binary kind (STRING);
    optional int64 start (TIMESTAMP(NANOS,true));
    optional int64 duration_ns (INTEGER(64,true));
    required binary status (STRING);
    optional binary status_message (STRING);
    optional binary trace_state (STRING);
    optional binary scope_name (STRING);
    optional binary scope_version (STRING);
    required group resource_attributes (MAP) {
        repeated group key_value { required binary key (STRING); optional binary value (STRING); }
    }
    required group attributes (MAP) {
        repeated group key_value { required binary key (STRING); optional binary value (STRING); }
    }
    optional binary events (STRING);
    optional binary links (STRING);
}";
/// Size of the values of a row group, which is in memory at once, about; with what each value takes besides.
const GROUP_BYTES: usize = 32 << 20;
const VALUE_BYTES: usize = size_of::<ByteArray>();
/// The level of Parquet's own libraries.
const ZSTD_LEVEL: i32 = 1;
const SERVICE: &str = "service.name";

/// Values with their levels; a column that always has exactly one value has no levels.
#[derive(Debug)]
struct Column<T> {
    values: Vec<T>,
    definition: Vec<i16>,
    repetition: Vec<i16>,
}

impl<T> Default for Column<T> {
    fn default() -> Self {
        Column { values: Vec::new(), definition: Vec::new(), repetition: Vec::new() }
    }
}

impl<T: Clone> Column<T> {
    fn put(&mut self, value: T) {
        self.values.push(value);
    }

    fn put_optional(&mut self, value: Option<T>) {
        self.definition.push(value.is_some() as i16);
        self.values.extend(value);
    }
}

/// Keys and values of attributes.
#[derive(Debug, Default)]
struct Map {
    keys: Column<ByteArray>,
    values: Column<ByteArray>,
}

impl Map {
    fn put<'a>(&mut self, attributes: impl Iterator<Item = &'a (ByteArray, Option<ByteArray>)>) {
        let mut first = true;
        for (key, value) in attributes {
            let repetition = !first as i16;
            self.keys.put(key.clone());
            self.keys.definition.push(1);
            self.values.definition.push(1 + value.is_some() as i16);
            self.values.values.extend(value.clone());
            self.keys.repetition.push(repetition);
            self.values.repetition.push(repetition);
            first = false;
        }
        if first {
            for column in [&mut self.keys, &mut self.values] {
                column.definition.push(0);
                column.repetition.push(0);
            }
        }
    }
}

/// The rows of a row group.
#[derive(Debug, Default)]
struct Rows {
    bytes: usize,
    count: u64,
    trace_id: Column<ByteArray>,
    span_id: Column<ByteArray>,
    parent_span_id: Column<ByteArray>,
    service: Column<ByteArray>,
    name: Column<ByteArray>,
    kind: Column<ByteArray>,
    start: Column<i64>,
    duration_ns: Column<i64>,
    status: Column<ByteArray>,
    status_message: Column<ByteArray>,
    trace_state: Column<ByteArray>,
    scope_name: Column<ByteArray>,
    scope_version: Column<ByteArray>,
    resource_attributes: Map,
    attributes: Map,
    events: Column<ByteArray>,
    links: Column<ByteArray>,
}

/// A Parquet file of spans.
pub struct Table<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    rows: Rows,
    spans: u64,
}

impl<W: Write + Send> std::fmt::Debug for Table<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("spans", &self.spans).finish_non_exhaustive()
    }
}

/// What the rows of a resource have in common.
struct Common<'a> {
    service: Option<ByteArray>,
    attributes: &'a [(ByteArray, Option<ByteArray>)],
    bytes: usize,
    scope: [Option<ByteArray>; 2],
}

impl<W: Write + Send> Table<W> {
    /// An empty file.
    ///
    /// # Errors
    /// When the output fails.
    pub fn new(out: W) -> Result<Table<W>, ParquetError> {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
            // Of each row group; of pages they would be in memory until the end of the file.
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .set_created_by(concat!("spangap ", env!("CARGO_PKG_VERSION")).into())
            .build();
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let writer = SerializedFileWriter::new(out, schema, Arc::new(properties))?;
        Ok(Table { writer, rows: Rows::default(), spans: 0 })
    }

    /// Appends the spans of a resource.
    ///
    /// # Errors
    /// When the output fails.
    pub fn add(&mut self, of_resource: &ResourceSpans) -> Result<(), ParquetError> {
        let of_resource_attributes = of_resource.resource.iter().flat_map(|resource| &resource.attributes);
        let service = of_resource_attributes.clone().find(|one| one.key == SERVICE);
        let service = service.and_then(|one| value(one.value.as_ref()));
        let attributes: Vec<_> = of_resource_attributes.map(attribute).collect();
        for of_scope in &of_resource.scope_spans {
            let scope = of_scope.scope.as_ref();
            let of_scope_text =
                |part: fn(&InstrumentationScope) -> &String| scope.and_then(|scope| text(part(scope)));
            let common = Common {
                service: service.clone(),
                attributes: &attributes,
                bytes: weight(&attributes),
                scope: [of_scope_text(|scope| &scope.name), of_scope_text(|scope| &scope.version)],
            };
            for span in &of_scope.spans {
                self.rows.add(span, &common);
                if self.rows.bytes >= GROUP_BYTES {
                    self.flush()?;
                }
            }
        }
        Ok(())
    }

    /// Puts a sentence into the file's metadata.
    pub fn say(&mut self, key: &str, text: &str) {
        self.writer.append_key_value_metadata(Said::new(key.to_owned(), text.to_owned()));
    }

    /// Writes the rest, and the footer. Returns the number of spans.
    ///
    /// # Errors
    /// When the output fails.
    pub fn finish(mut self) -> Result<u64, ParquetError> {
        if self.rows.count > 0 {
            self.flush()?;
        }
        self.writer.close()?;
        Ok(self.spans)
    }

    fn flush(&mut self) -> Result<(), ParquetError> {
        let rows = std::mem::take(&mut self.rows);
        self.spans += rows.count;
        let mut group = self.writer.next_row_group()?;
        let text = write::<ByteArrayType, W>;
        text(&mut group, rows.trace_id)?;
        text(&mut group, rows.span_id)?;
        text(&mut group, rows.parent_span_id)?;
        text(&mut group, rows.service)?;
        text(&mut group, rows.name)?;
        text(&mut group, rows.kind)?;
        write::<Int64Type, W>(&mut group, rows.start)?;
        write::<Int64Type, W>(&mut group, rows.duration_ns)?;
        text(&mut group, rows.status)?;
        text(&mut group, rows.status_message)?;
        text(&mut group, rows.trace_state)?;
        text(&mut group, rows.scope_name)?;
        text(&mut group, rows.scope_version)?;
        for map in [rows.resource_attributes, rows.attributes] {
            text(&mut group, map.keys)?;
            text(&mut group, map.values)?;
        }
        text(&mut group, rows.events)?;
        text(&mut group, rows.links)?;
        group.close().map(|_| ())
    }
}

fn write<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    column: Column<T::T>,
) -> Result<(), ParquetError> {
    let missing = || ParquetError::General("the schema has fewer columns than a row".into());
    let mut writer = group.next_column()?.ok_or_else(missing)?;
    let levels = |levels: &[i16]| (!levels.is_empty()).then_some(levels).map(<[i16]>::to_vec);
    let (definition, repetition) = (levels(&column.definition), levels(&column.repetition));
    writer.typed::<T>().write_batch(&column.values, definition.as_deref(), repetition.as_deref())?;
    writer.close()
}

impl Rows {
    fn add(&mut self, span: &Span, common: &Common<'_>) {
        let attributes: Vec<_> = span.attributes.iter().map(attribute).collect();
        let events = span.events.iter().map(|event| {
            json!({"time_unix_nano": event.time_unix_nano, "name": event.name, "attributes": object(&event.attributes)})
        });
        let links = span.links.iter().map(|link| {
            json!({"trace_id": hex(&link.trace_id), "span_id": hex(&link.span_id), "attributes": object(&link.attributes)})
        });
        let (events, links) = (list(events.collect()), list(links.collect()));
        let (kind, status) = (kind(span.kind()), span.status.as_ref());
        let code = match status.map_or(StatusCode::Unset, |status| status.code()) {
            StatusCode::Unset => "unset",
            StatusCode::Ok => "ok",
            StatusCode::Error => "error",
        };
        let times = [span.start_time_unix_nano, span.end_time_unix_nano];
        let duration_ns = i128::from(times[1]) - i128::from(times[0]);
        let json_bytes = [&events, &links].map(|text| text.as_ref().map_or(0, ByteArray::len));
        self.bytes +=
            15 * VALUE_BYTES + span.name.len() + span.trace_state.len() + weight(&attributes) + common.bytes;
        self.bytes += status.map_or(0, |status| status.message.len()) + json_bytes.iter().sum::<usize>();
        self.count += 1;
        self.trace_id.put(ByteArray::from(hex(&span.trace_id).as_str()));
        self.span_id.put(ByteArray::from(hex(&span.span_id).as_str()));
        self.parent_span_id.put_optional(text(&hex(&span.parent_span_id)));
        self.service.put_optional(common.service.clone());
        self.name.put(ByteArray::from(span.name.as_str()));
        self.kind.put(constant(kind));
        self.start.put_optional(i64::try_from(times[0]).ok());
        self.duration_ns.put_optional(i64::try_from(duration_ns).ok());
        self.status.put(constant(code));
        self.status_message.put_optional(status.and_then(|status| text(&status.message)));
        self.trace_state.put_optional(text(&span.trace_state));
        let [name, version] = common.scope.clone();
        self.scope_name.put_optional(name);
        self.scope_version.put_optional(version);
        self.resource_attributes.put(common.attributes.iter());
        self.attributes.put(attributes.iter());
        self.events.put_optional(events);
        self.links.put_optional(links);
    }
}

fn kind(kind: SpanKind) -> &'static str {
    match kind {
        SpanKind::Unspecified => "unspecified",
        SpanKind::Internal => "internal",
        SpanKind::Server => "server",
        SpanKind::Client => "client",
        SpanKind::Producer => "producer",
        SpanKind::Consumer => "consumer",
    }
}

fn constant(text: &'static str) -> ByteArray {
    Bytes::from_static(text.as_bytes()).into()
}

/// Text that says something.
fn text(text: &str) -> Option<ByteArray> {
    (!text.is_empty()).then(|| text.into())
}

fn attribute(attribute: &KeyValue) -> (ByteArray, Option<ByteArray>) {
    (attribute.key.as_str().into(), value(attribute.value.as_ref()))
}

fn value(value: Option<&AnyValue>) -> Option<ByteArray> {
    Some(match value?.value.as_ref()? {
        Attribute::StringValue(text) => text.as_str().into(),
        // JSON has neither infinity nor NaN.
        Attribute::DoubleValue(number) if !number.is_finite() => number.to_string().as_str().into(),
        other => match plain(other) {
            Value::String(text) => text.as_str().into(),
            json => json.to_string().as_str().into(),
        },
    })
}

fn object(attributes: &[KeyValue]) -> Value {
    let of =
        |one: &KeyValue| one.value.as_ref().and_then(|value| value.value.as_ref()).map_or(Value::Null, plain);
    Value::Object(attributes.iter().map(|one| (one.key.clone(), of(one))).collect())
}

fn list(entries: Vec<Value>) -> Option<ByteArray> {
    (!entries.is_empty()).then(|| Value::Array(entries).to_string().as_str().into())
}

fn weight(attributes: &[(ByteArray, Option<ByteArray>)]) -> usize {
    let one = |(key, value): &(ByteArray, Option<ByteArray>)| {
        2 * VALUE_BYTES + key.len() + value.as_ref().map_or(0, ByteArray::len)
    };
    attributes.iter().map(one).sum()
}
