//! Descriptors from a server: gRPC server reflection v1, and its predecessor v1alpha with the same messages.

use super::imports;
use crate::connection::in_words;
use crate::status::describe;
use http::uri::PathAndQuery;
use prost::Message;
use prost_reflect::prost_types::{FileDescriptorProto, FileDescriptorSet};
use prost_reflect::{DescriptorError, DescriptorPool};
use std::collections::BTreeMap;
use std::error::Error as _;
use std::io;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ErrorResponse, ServerReflectionRequest, ServerReflectionResponse};

const METHODS: [&str; 2] = [
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];
/// Limits on the files and bytes that a server may return: a service with its imports has tens of files.
const MOST_FILES: usize = 4_096;
const MOST_BYTES: usize = 64 << 20;

/// Reason for a missing answer from server reflection.
#[derive(Debug, thiserror::Error)]
pub enum ReflectionError {
    /// No runtime.
    #[error("cannot make a runtime to ask {target} with")]
    Runtime {
        /// The target.
        target: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// No connection.
    #[error("cannot connect to {target} to ask for its services: {why}")]
    Connect {
        /// The target.
        target: String,
        /// Error of the transport.
        why: String,
    },
    /// It has no reflection.
    #[error(
        "{target} has no server reflection (neither grpc.reflection.v1 nor v1alpha): give its descriptors with --descriptor FILE, \
         as protoc --include_imports --descriptor_set_out=FILE writes it, or with --proto FILE"
    )]
    None {
        /// The target.
        target: String,
    },
    /// Too slow.
    #[error("{target} did not list its services within {timeout:?}")]
    TimedOut {
        /// The target.
        target: String,
        /// Time limit.
        timeout: Duration,
    },
    /// It does not know the service.
    #[error("{target} has no service {service} by its reflection: it has {known}")]
    Service {
        /// The target.
        target: String,
        /// Requested service.
        service: String,
        /// Known services.
        known: String,
    },
    /// An unusable answer.
    #[error("the server reflection of {target} failed: {why}")]
    Answer {
        /// The target.
        target: String,
        /// What arrived.
        why: String,
    },
    /// Files that do not fit together.
    #[error("the files returned by the server reflection of {target} do not fit together")]
    Files {
        /// The target.
        target: String,
        /// Error of the decoder.
        source: DescriptorError,
    },
}

/// The file that declares `service`, and all its imports.
///
/// # Errors
/// The server does not provide them.
pub fn pool(target: &str, service: &str, timeout: Duration) -> Result<DescriptorPool, ReflectionError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|source| ReflectionError::Runtime { target: target.into(), source })?;
    runtime.block_on(async {
        let asked = tokio::time::timeout(timeout, ask(target, service)).await;
        asked.unwrap_or_else(|_| Err(ReflectionError::TimedOut { target: target.into(), timeout }))
    })
}

async fn ask(target: &str, service: &str) -> Result<DescriptorPool, ReflectionError> {
    let connect = |error: tonic::transport::Error| ReflectionError::Connect {
        target: target.into(),
        why: in_words(&error),
    };
    let endpoint = Endpoint::from_shared(format!("http://{target}")).map_err(connect)?;
    let channel = endpoint.connect().await.map_err(connect)?;
    for method in METHODS {
        match Dialogue::open(channel.clone(), method).files_of(target, service).await {
            Err(Refusal::Status(status)) if status.code() == Code::Unimplemented => {}
            Err(Refusal::Status(status)) => {
                let mut why = describe(&status);
                // The error of the connection, not a response of the server.
                if status.source().is_some() {
                    why += "; is it a gRPC server, and one without TLS? tank speaks none";
                }
                return Err(ReflectionError::Answer { target: target.into(), why });
            }
            Err(Refusal::Other(error)) => return Err(error),
            Ok(mut files) => {
                let linked = |file| DescriptorPool::from_file_descriptor_set(FileDescriptorSet { file });
                return linked(files.clone()).or_else(|source| {
                    imports::complete(&mut files);
                    // The first error is that of the files as they are.
                    linked(files).map_err(|_| ReflectionError::Files { target: target.into(), source })
                });
            }
        }
    }
    Err(ReflectionError::None { target: target.into() })
}

enum Refusal {
    Status(Status),
    Other(ReflectionError),
}

/// A stream of requests and responses.
struct Dialogue {
    channel: Channel,
    method: &'static str,
    open: Option<(mpsc::Sender<ServerReflectionRequest>, Streaming<ServerReflectionResponse>)>,
}

impl Dialogue {
    fn open(channel: Channel, method: &'static str) -> Self {
        Dialogue { channel, method, open: None }
    }

    async fn ask(&mut self, question: MessageRequest) -> Result<MessageResponse, Status> {
        let question = ServerReflectionRequest { host: String::new(), message_request: Some(question) };
        let answers = match &mut self.open {
            Some((questions, answers)) => {
                let sent = questions.send(question).await;
                sent.map_err(|_| Status::unavailable("the server ended the stream"))?;
                answers
            }
            None => {
                let (questions, outgoing) = mpsc::channel(1);
                questions.try_send(question).expect("an empty queue takes a question");
                let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(MOST_BYTES);
                grpc.ready().await.map_err(|error| Status::unavailable(in_words(&error)))?;
                let codec = ProstCodec::<ServerReflectionRequest, ServerReflectionResponse>::default();
                let request = Request::new(ReceiverStream::new(outgoing));
                let answers = grpc.streaming(request, PathAndQuery::from_static(self.method), codec).await?;
                &mut self.open.insert((questions, answers.into_inner())).1
            }
        };
        let answer = answers.message().await?.and_then(|answer| answer.message_response);
        answer.ok_or_else(|| Status::internal("it answered nothing"))
    }

    /// The file of a service and its imports, each once.
    async fn files_of(&mut self, target: &str, service: &str) -> Result<Vec<FileDescriptorProto>, Refusal> {
        let refused = |why: String| Refusal::Other(ReflectionError::Answer { target: target.into(), why });
        let mut files: BTreeMap<String, FileDescriptorProto> = BTreeMap::new();
        let mut bytes = 0;
        let mut next = Some(MessageRequest::FileContainingSymbol(service.into()));
        while let Some(question) = next.take() {
            let asked_for = format!("{question:?}");
            let answer = match self.ask(question).await {
                // tonic ends the stream where other servers respond with an error.
                Err(status) if status.code() == Code::NotFound && files.is_empty() => {
                    self.open = None;
                    let error_message = status.message().to_owned();
                    MessageResponse::ErrorResponse(ErrorResponse {
                        error_code: Code::NotFound as i32,
                        error_message,
                    })
                }
                answered => answered.map_err(Refusal::Status)?,
            };
            match answer {
                MessageResponse::FileDescriptorResponse(answer) => {
                    let known = files.len();
                    for encoded in answer.file_descriptor_proto {
                        bytes += encoded.len();
                        let file = FileDescriptorProto::decode(encoded.as_slice());
                        let file = file
                            .map_err(|error| refused(format!("a file that is not a descriptor: {error}")))?;
                        files.insert(file.name().to_owned(), file);
                    }
                    if files.len() > MOST_FILES || bytes > MOST_BYTES {
                        return Err(refused(format!("more than {MOST_FILES} files or {MOST_BYTES} bytes")));
                    }
                    if files.len() == known {
                        return Err(refused(format!("no new file for {asked_for}")));
                    }
                }
                MessageResponse::ErrorResponse(error)
                    if Code::from(error.error_code) == Code::NotFound && files.is_empty() =>
                {
                    let known = self.services().await.map_err(Refusal::Status)?;
                    let (target, service) = (target.into(), service.into());
                    return Err(Refusal::Other(ReflectionError::Service { target, service, known }));
                }
                MessageResponse::ErrorResponse(error) => {
                    return Err(refused(format!(
                        "{asked_for}: code {}: {}",
                        error.error_code, error.error_message
                    )));
                }
                other => return Err(refused(format!("an answer to another question: {other:?}"))),
            }
            let missing =
                files.values().flat_map(|file| &file.dependency).find(|name| !files.contains_key(*name));
            next = missing.map(|name| MessageRequest::FileByFilename(name.clone()));
        }
        Ok(files.into_values().collect())
    }

    /// The services that the server lists, in a sentence.
    async fn services(&mut self) -> Result<String, Status> {
        Ok(match self.ask(MessageRequest::ListServices(String::new())).await? {
            MessageResponse::ListServicesResponse(list) => {
                super::listed(list.service.into_iter().map(|one| one.name), "")
            }
            _ => "a list that it does not tell".into(),
        })
    }
}
