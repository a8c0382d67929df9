//! Converts JSON to messages by the protobuf JSON mapping. Errors name the field and the place.

use bytes::Bytes;
use prost::Message;
use prost_reflect::{DynamicMessage, MessageDescriptor};
use serde::de::{DeserializeSeed, Deserializer, SeqAccess, Visitor};
use std::fmt;

/// A request in JSON.
pub struct Json<'a> {
    /// The text.
    pub text: &'a str,
    /// Origin of the JSON, such as `--data` or a file name.
    pub from: &'a str,
    /// Maximum size of the resulting message.
    pub most_bytes: usize,
}

/// Reason for JSON not to be a request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// It does not match the message type.
    #[error("{from} is not a {expected}: {why} at byte {offset} (line {line}, column {column}), in {field}")]
    Field {
        /// Origin of the JSON.
        from: String,
        /// Full name of the message.
        expected: String,
        /// Error of the parser.
        why: String,
        /// Byte offset in the text.
        offset: usize,
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// Such as `items[2].name`.
        field: String,
    },
    /// A list where a single message is expected, or vice versa.
    #[error("{from}: expected {expected}, found {found}")]
    Shape {
        /// Origin of the JSON.
        from: String,
        /// Expected form.
        expected: String,
        /// Form found.
        found: &'static str,
    },
    /// A message above the size limit.
    #[error("{from} makes a message of {bytes} bytes: expected at most {most}")]
    TooLarge {
        /// Origin of the JSON.
        from: String,
        /// Size of the message.
        bytes: usize,
        /// Limit.
        most: usize,
    },
}

impl Json<'_> {
    /// Encodes one message.
    ///
    /// # Errors
    /// The JSON is not a message of this type.
    pub fn message(&self, expected: &MessageDescriptor) -> Result<Bytes, JsonError> {
        if self.text.trim_start().starts_with('[') && !is_list(expected) {
            let expected = format!("one {}", expected.full_name());
            return Err(JsonError::Shape { from: self.from.into(), expected, found: "a list" });
        }
        self.encode(&self.parse(expected.clone(), expected)?)
    }

    /// Encodes a list of messages, or a single one.
    ///
    /// # Errors
    /// One of them is not of this type.
    pub fn messages(&self, expected: &MessageDescriptor) -> Result<Vec<Bytes>, JsonError> {
        match self.text.trim_start().starts_with('[') {
            true => {
                self.parse(List(expected), expected)?.iter().map(|message| self.encode(message)).collect()
            }
            false => Ok(vec![self.message(expected)?]),
        }
    }

    fn parse<'de, T>(
        &'de self,
        seed: impl DeserializeSeed<'de, Value = T>,
        expected: &MessageDescriptor,
    ) -> Result<T, JsonError> {
        let mut json = serde_json::Deserializer::from_str(self.text);
        let mut track = serde_path_to_error::Track::new();
        let parsed = seed.deserialize(serde_path_to_error::Deserializer::new(&mut json, &mut track));
        let parsed = parsed.and_then(|value| json.end().map(|()| value));
        parsed.map_err(|error| self.error(&error, &track.path().to_string(), expected))
    }

    fn encode(&self, message: &DynamicMessage) -> Result<Bytes, JsonError> {
        let bytes = message.encoded_len();
        match bytes > self.most_bytes {
            true => Err(JsonError::TooLarge { from: self.from.into(), bytes, most: self.most_bytes }),
            false => Ok(message.encode_to_vec().into()),
        }
    }

    fn error(&self, error: &serde_json::Error, path: &str, expected: &MessageDescriptor) -> JsonError {
        let (line, column) = (error.line().max(1), error.column().max(1));
        let before: usize = self.text.split_inclusive('\n').take(line - 1).map(str::len).sum();
        // Serde's error text ends with the place, which the error states separately.
        let why = error.to_string();
        let why = why.rsplit_once(" at line ").map_or(why.as_str(), |(why, _)| why);
        JsonError::Field {
            from: self.from.into(),
            expected: expected.full_name().into(),
            why: why.into(),
            offset: (before + column - 1).min(self.text.len()),
            line,
            column,
            field: if path == "." { "the message itself".into() } else { format!("field {path}") },
        }
    }
}

/// A list of messages of one type.
struct List<'a>(&'a MessageDescriptor);

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = Vec<DynamicMessage>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = Vec<DynamicMessage>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of {}", self.0.full_name())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut messages = Vec::new();
        while let Some(message) = items.next_element_seed(self.0.clone())? {
            messages.push(message);
        }
        Ok(messages)
    }
}

/// Whether the JSON of this type is a list.
fn is_list(message: &MessageDescriptor) -> bool {
    ["google.protobuf.ListValue", "google.protobuf.Value"].contains(&message.full_name())
}
