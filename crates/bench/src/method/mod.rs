//! Calls to any method of any service: descriptors, JSON, and the file that a client makes the call from.
//!
//! [`prepare`] does all of this before the first run: descriptors from the server's reflection, a descriptor
//! set or `.proto` sources, and JSON to messages by the protobuf JSON mapping.

mod descriptors;
mod imports;
mod message;
mod reflection;

use crate::contract::call_file::{CallFile, Header};
use crate::ping::MAX_MESSAGE_BYTES;
use bytes::Bytes;
use prost::Message;
use prost_reflect::MethodDescriptor;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::TempDir;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, BinaryMetadataKey, MetadataMap};

pub use descriptors::Descriptors;

/// A requested call, in the user's terms.
#[derive(Clone, Debug)]
pub struct MethodRequest {
    /// `HOST:PORT` of the server whose reflection is used.
    pub target: String,
    /// `package.Service/Method`.
    pub name: String,
    /// Request in JSON; a list of messages if the client streams.
    pub json: String,
    /// Origin of the JSON, for errors.
    pub json_from: String,
    /// Source of the descriptors.
    pub descriptors: Descriptors,
    /// `key: value`, as given.
    pub headers: Vec<String>,
    /// Time limit for the server's reflection.
    pub timeout: Duration,
}

/// A method other than the pings, ready to call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherMethod {
    /// `package.Service/Method`. There is one per process, so it is never freed.
    pub name: &'static str,
    /// The client's call file.
    pub call_file: PathBuf,
}

/// An [`OtherMethod`]; its file exists as long as this lives.
#[derive(Debug)]
pub struct PreparedMethod {
    /// The method.
    pub method: OtherMethod,
    _folder: TempDir,
}

/// Reason for a method not to be callable.
#[derive(Debug, thiserror::Error)]
pub enum MethodError {
    /// Not the name of a method.
    #[error("{0:?} is not a method: expected package.Service/Method")]
    Name(String),
    /// Not a header.
    #[error("header {header:?}: {why}")]
    Header {
        /// The header.
        header: String,
        /// What is wrong with it.
        why: String,
    },
    /// The descriptors are unavailable.
    #[error(transparent)]
    Descriptors(#[from] descriptors::DescriptorsError),
    /// Server reflection failed.
    #[error(transparent)]
    Reflection(#[from] reflection::ReflectionError),
    /// No such service.
    #[error("no service {service} in {from}: {known}")]
    Service {
        /// Requested service.
        service: String,
        /// Where it was looked up.
        from: String,
        /// Known services.
        known: String,
    },
    /// No such method.
    #[error("service {service} has no method {method}: it has {known}")]
    Method {
        /// Its service.
        service: String,
        /// Requested method.
        method: String,
        /// Known methods.
        known: String,
    },
    /// The JSON is not a request of this method.
    #[error(transparent)]
    Json(#[from] message::JsonError),
    /// The call file cannot be written.
    #[error("cannot write the client's call file")]
    CallFile(#[source] io::Error),
}

/// Finds the method and encodes its request.
///
/// # Errors
/// Either fails; the error names what was found and what was expected.
pub fn prepare(request: &MethodRequest) -> Result<PreparedMethod, MethodError> {
    let (service, method) = split(&request.name)?;
    let metadata = request.headers.iter().map(|text| header(text)).collect::<Result<Vec<_>, _>>()?;
    let descriptor = find(request, service, method)?;
    let json = message::Json { text: &request.json, from: &request.json_from, most_bytes: MAX_MESSAGE_BYTES };
    let messages = match descriptor.is_client_streaming() {
        true => json.messages(&descriptor.input())?,
        false => vec![json.message(&descriptor.input())?],
    };
    let call = CallFile {
        path: format!("/{service}/{method}"),
        server_streaming: descriptor.is_server_streaming(),
        messages,
        metadata,
    };
    let folder = TempDir::with_prefix("spangap-").map_err(MethodError::CallFile)?;
    let call_file = folder.path().join("call");
    std::fs::write(&call_file, call.encode_to_vec()).map_err(MethodError::CallFile)?;
    let name = String::leak(format!("{service}/{method}"));
    Ok(PreparedMethod { method: OtherMethod { name, call_file }, _folder: folder })
}

/// Service and method of `package.Service/Method` or, as ghz and grpcurl also accept, `package.Service.Method`.
fn split(name: &str) -> Result<(&str, &str), MethodError> {
    let plain = name.strip_prefix('/').unwrap_or(name);
    let parts = plain.split_once('/').or_else(|| plain.rsplit_once('.'));
    let is_name = |text: &str| {
        !text.is_empty() && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "._".contains(letter))
    };
    parts
        .filter(|(service, method)| is_name(service) && is_name(method) && !method.contains('.'))
        .ok_or_else(|| MethodError::Name(name.into()))
}

fn header(text: &str) -> Result<Header, MethodError> {
    let refused = |why: String| MethodError::Header { header: text.into(), why };
    let (key, value) = text.split_once(':').ok_or_else(|| refused("expected KEY: VALUE".into()))?;
    let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
    let invalid = |what: &str| refused(format!("{what} cannot be sent as gRPC metadata"));
    let bytes = match key.ends_with("-bin") {
        true => {
            BinaryMetadataKey::from_bytes(key.as_bytes()).map_err(|_| invalid("this key"))?;
            // As on the wire: base64, padded or not.
            let mut headers = http::HeaderMap::new();
            let name = http::HeaderName::from_bytes(key.as_bytes()).map_err(|_| invalid("this key"))?;
            let wire = http::HeaderValue::from_str(value).map_err(|_| invalid("this value"))?;
            headers.insert(name, wire);
            let metadata = MetadataMap::from_headers(headers);
            let bytes = metadata.get_bin(key.as_str()).and_then(|value| value.to_bytes().ok());
            bytes.ok_or_else(|| refused("expected the value in base64".into()))?
        }
        false => {
            AsciiMetadataKey::from_bytes(key.as_bytes()).map_err(|_| invalid("this key"))?;
            AsciiMetadataValue::try_from(value).map_err(|_| invalid("this value"))?;
            Bytes::copy_from_slice(value.as_bytes())
        }
    };
    if key.starts_with("grpc-") || ["content-type", "te", "user-agent"].contains(&key.as_str()) {
        return Err(refused("gRPC sets this one itself".into()));
    }
    Ok(Header { key, value: bytes })
}

fn find(request: &MethodRequest, service: &str, method: &str) -> Result<MethodDescriptor, MethodError> {
    let (pool, from) = match &request.descriptors {
        Descriptors::Reflection => {
            let pool = reflection::pool(&request.target, service, request.timeout)?;
            (pool, format!("the reflection of {}", request.target))
        }
        files => (files.pool()?, files.to_string()),
    };
    let Some(found) = pool.get_service_by_name(service) else {
        let known = listed(pool.services().map(|service| service.full_name().to_owned()), "it has ");
        return Err(MethodError::Service { service: service.into(), from, known });
    };
    found.methods().find(|one| one.name() == method).ok_or_else(|| MethodError::Method {
        service: service.into(),
        method: method.into(),
        known: listed(found.methods().map(|one| one.name().to_owned()), ""),
    })
}

/// Names in a sentence, or a statement that there are none.
fn listed(names: impl Iterator<Item = String>, before: &str) -> String {
    let names: Vec<String> = names.collect();
    if names.is_empty() { format!("{before}none") } else { format!("{before}{}", names.join(", ")) }
}

#[cfg(test)]
mod tests;
