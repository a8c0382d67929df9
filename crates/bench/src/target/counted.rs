//! Single pings from the moment their headers are read to the moment their response is handed to the transport.
//! Nothing is allocated for a call whose span nobody wants.

use super::calls::{Calls, Ends, OpenCall};
use crate::ping::METHOD;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tonic::Code;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::server::TcpConnectInfo;
use tower::Service;

/// The Ping service, its method Ping counted.
#[derive(Clone)]
pub struct Counted<S> {
    pub service: S,
    pub calls: Arc<Calls>,
}

impl<S: NamedService> NamedService for Counted<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Counted<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>>,
    S::Future: Unpin,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = UnderWay<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let arrival = self.calls.arrival();
        let is_ping = request.uri().path().strip_prefix('/') == Some(METHOD);
        let call = is_ping.then(|| {
            let ends = if arrival.is_some() { ends(request.extensions()) } else { Ends::default() };
            self.calls.begin(arrival, request.headers(), ends)
        });
        UnderWay { response: self.service.call(request), call }
    }
}

/// The ends of the connection that a request came on.
pub fn ends(extensions: &http::Extensions) -> Ends {
    let connection = extensions.get::<TcpConnectInfo>();
    Ends {
        local: connection.and_then(TcpConnectInfo::local_addr),
        peer: connection.and_then(TcpConnectInfo::remote_addr),
    }
}

/// A response to come, and the call it ends.
pub struct UnderWay<F> {
    response: F,
    call: Option<OpenCall>,
}

impl<F, E> Future for UnderWay<F>
where
    F: Future<Output = Result<http::Response<Body>, E>> + Unpin,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let response = ready!(Pin::new(&mut self.response).poll(cx));
        if let (Some(call), Ok(response)) = (self.call.take(), &response) {
            call.end(status_of(response));
        }
        Poll::Ready(response)
    }
}

/// A failed unary call has its status in the headers; a good one sends it after the message.
fn status_of(response: &http::Response<Body>) -> Code {
    response.headers().get("grpc-status").map_or(Code::Ok, |status| Code::from_bytes(status.as_bytes()))
}
