//! The page at `/`: one self-contained file, embedded in the binary.

mod trace_url;

pub use trace_url::TraceUrl;

use axum::extract::{Extension, Request};
use axum::http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG,
    IF_NONE_MATCH, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use flate2::write::GzEncoder;
use serde::Serialize;
use spangap_meter::serve::answer::{Coding, negotiate};
use spangap_meter::serve::{Addresses, parameters};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::LazyLock;

const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/dist/index.html"));
/// Allows only the page's own script and style, by their hashes.
const POLICY: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/dist/csp.txt"));

static TAG: LazyLock<String> = LazyLock::new(|| {
    let mut hasher = DefaultHasher::new();
    (PAGE, POLICY).hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
});

/// The compressed page, a third of the size, for slow links.
static COMPRESSED: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut gzip = GzEncoder::new(Vec::new(), flate2::Compression::best());
    // Writing to memory cannot fail.
    let _ = gzip.write_all(PAGE.as_bytes());
    gzip.finish().unwrap_or_default()
});

/// Settings that the page needs before its first request.
#[derive(Clone, Debug, Serialize)]
struct PageSettings {
    /// URL template of the user's trace UI, with `{trace_id}`; `null` if not configured.
    trace_url: Option<String>,
    listens: Listens,
}

/// Where the meter listens, for the commands that the page shows.
#[derive(Clone, Copy, Debug, Serialize)]
struct Listens {
    otlp_grpc: SocketAddr,
    otlp_http: SocketAddr,
    http: SocketAddr,
    tls: bool,
}

/// The routes `/` and `/api/v1/page`, to be merged into the meter's HTTP server, which gives each request its [`Addresses`].
pub fn router(trace_url: Option<&TraceUrl>) -> Router {
    let trace_url = trace_url.map(|url| url.as_str().to_owned());
    let settings = async move |Extension(at): Extension<Addresses>| {
        let Addresses { otlp_grpc, otlp_http, http, tls } = at;
        Json(PageSettings { trace_url, listens: Listens { otlp_grpc, otlp_http, http, tls } })
    };
    let settings = Router::new().route("/api/v1/page", get(settings)).route_layer(from_fn(parameters::none));
    Router::new().route("/", get(page)).merge(settings)
}

async fn page(request: Request) -> Response {
    let mut headers = HeaderMap::new();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    if let Ok(tag) = HeaderValue::from_str(&TAG) {
        headers.insert(ETAG, tag);
    }
    if names_tag(request.headers(), &TAG) {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    let accepted = request.headers().get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let accepted: Vec<&str> = accepted.collect();
    // The page exists in one coding.
    if negotiate(&format!("zstd;q=0,{}", accepted.join(","))) != Coding::Gzip {
        return (headers, PAGE).into_response();
    }
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    (headers, COMPRESSED.as_slice()).into_response()
}

/// Whether `If-None-Match` names `tag`, by the weak comparison that the header requires.
fn names_tag(headers: &HeaderMap, tag: &str) -> bool {
    headers.get_all(IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok()).any(|value| {
        value.split(',').map(str::trim).any(|given| given == "*" || given.trim_start_matches("W/") == tag)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use std::io::Read;

    async fn fetch(if_none_match: Option<&str>) -> Response {
        let mut request = Request::new(Body::empty());
        if let Some(tag) = if_none_match {
            request.headers_mut().insert(IF_NONE_MATCH, tag.parse().unwrap());
        }
        page(request).await
    }

    #[tokio::test]
    async fn the_page_comes_with_its_policy() {
        let response = fetch(None).await;
        assert_eq!(response.status(), StatusCode::OK);
        let policy = response.headers()[CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'sha256-"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert!(body.starts_with(b"<!doctype html>"));
    }

    #[tokio::test]
    async fn a_page_that_the_browser_has_is_not_sent_again() {
        let first = fetch(None).await;
        let tag = first.headers()[ETAG].to_str().unwrap();
        for given in [tag.to_string(), format!("W/{tag}"), format!("\"old\", {tag}"), "*".into()] {
            let again = fetch(Some(&given)).await;
            assert_eq!(again.status(), StatusCode::NOT_MODIFIED, "{given}");
            let body = axum::body::to_bytes(again.into_body(), usize::MAX).await.unwrap();
            assert!(body.is_empty());
        }
        assert_eq!(fetch(Some("\"old\"")).await.status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn the_page_is_compressed_for_those_who_take_it() {
        for (accepted, is_compressed) in [
            ("gzip, deflate, br, zstd", true),
            ("gzip", true),
            ("gzip;q=0", false),
            ("zstd", false),
            ("", false),
        ] {
            let mut request = Request::new(Body::empty());
            request.headers_mut().insert(ACCEPT_ENCODING, accepted.parse().unwrap());
            let response = page(request).await;
            assert_eq!(response.headers().contains_key(CONTENT_ENCODING), is_compressed, "{accepted}");
            let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
            let mut plain = String::new();
            match is_compressed {
                true => drop(flate2::read::GzDecoder::new(&body[..]).read_to_string(&mut plain).unwrap()),
                false => plain = String::from_utf8(body.to_vec()).unwrap(),
            }
            assert!(plain == PAGE, "{accepted}");
            assert_eq!(body.len() < PAGE.len() / 2, is_compressed, "{accepted}");
        }
    }

    /// The page is self-contained.
    #[test]
    fn the_page_asks_no_other_host() {
        for needle in ["src=\"http", "href=\"http", "url(http", "@import", "//cdn"] {
            assert!(!PAGE.contains(needle), "{needle}");
        }
    }
}
