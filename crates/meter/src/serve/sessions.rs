//! Browser sign-in: a token is exchanged for a cookie, so that links and downloads work, too. No page can read the
//! cookie, and only the meter's own page can make a browser change anything with it.

use super::access::{Access, Role};
use super::api::Problem;
use super::parameters;
use axum::extract::State;
use axum::middleware::from_fn;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::header::{AUTHORIZATION, CACHE_CONTROL, COOKIE, ORIGIN, SET_COOKIE};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where browsers sign in and out.
pub const PATH: &str = "/api/v1/session";

const COOKIE_NAME: &str = "spangap_session";
/// How long somebody stays signed in.
const LASTS: Duration = Duration::from_secs(12 * 3600);
/// Sessions at most; the oldest makes room.
const MOST: usize = 1_000;

/// Who is signed in.
#[derive(Debug)]
pub struct Sessions {
    open: Mutex<VecDeque<Session>>,
    /// The cookie is for TLS alone.
    secure: bool,
}

struct Session {
    /// Of its number: the time that a lookup takes reveals nothing about the number.
    hash: [u8; 32],
    token: String,
    until: Instant,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

/// What a browser hears of itself.
#[derive(Debug, Serialize)]
struct Standing {
    /// Whether a token is needed at all.
    needs_token: bool,
    /// What it may do; absent where it has no token, or none is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
}

impl Sessions {
    /// Nobody is signed in. `secure`: the page is served over TLS.
    pub fn new(secure: bool) -> Sessions {
        Sessions { open: Mutex::default(), secure }
    }

    fn open(&self) -> MutexGuard<'_, VecDeque<Session>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a request the token of its session, if it has one and brings no other. What changes something has to come from a page
    /// that says which one it is: browsers do.
    pub fn unlock<B>(&self, request: &mut Request<B>) {
        let headers = request.headers();
        if headers.contains_key(AUTHORIZATION) {
            return;
        }
        let only_looks = [Method::GET, Method::HEAD].contains(request.method());
        if !only_looks && !headers.contains_key(ORIGIN) {
            return;
        }
        let Some(hash) = hash_of(headers) else { return };
        let now = Instant::now();
        let open = self.open();
        let found = open.iter().find(|session| session.hash == hash && session.until > now);
        let value =
            found.and_then(|session| HeaderValue::from_str(&format!("Bearer {}", session.token)).ok());
        drop(open);
        if let Some(mut value) = value {
            value.set_sensitive(true);
            request.headers_mut().insert(AUTHORIZATION, value);
        }
    }

    fn begin(&self, token: &str) -> Result<HeaderValue, StatusCode> {
        let mut number = [0; 32];
        getrandom::fill(&mut number).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        let number = number.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        let now = Instant::now();
        let mut open = self.open();
        open.retain(|session| session.until > now);
        if open.len() >= MOST {
            open.pop_front();
        }
        let hash = Sha256::digest(&number).into();
        open.push_back(Session { hash, token: token.to_owned(), until: now + LASTS });
        drop(open);
        Ok(self.cookie(&number, LASTS))
    }

    fn end(&self, headers: &HeaderMap) -> HeaderValue {
        if let Some(hash) = hash_of(headers) {
            self.open().retain(|session| session.hash != hash);
        }
        self.cookie("", Duration::ZERO)
    }

    fn cookie(&self, number: &str, lasts: Duration) -> HeaderValue {
        let secure = if self.secure { "; Secure" } else { "" };
        let text = format!(
            "{COOKIE_NAME}={number}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}{secure}",
            lasts.as_secs()
        );
        // Digits, letters and punctuation.
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
    }
}

/// Of the number in the cookie.
fn hash_of(headers: &HeaderMap) -> Option<[u8; 32]> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut named =
        cookies.flat_map(|value| value.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
    let (_, number) = named.find(|(name, _)| *name == COOKIE_NAME)?;
    Some(Sha256::digest(number).into())
}

/// The token that a request brings.
fn token_of(headers: &HeaderMap) -> Option<&str> {
    headers.get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

type Shared = (Arc<Sessions>, Arc<Access>);

/// Signing in and out.
pub fn router(sessions: Arc<Sessions>, access: Arc<Access>) -> Router {
    let all = get(standing).post(sign_in).delete(sign_out);
    Router::new().route(PATH, all).route_layer(from_fn(parameters::none)).with_state((sessions, access))
}

async fn standing(State((_, access)): State<Shared>, headers: HeaderMap) -> Response {
    let role = token_of(&headers).and_then(|token| access.role_of(token)).map(Role::name);
    let standing = Standing { needs_token: access.has_tokens(), role };
    ([(CACHE_CONTROL, "no-store")], Json(standing)).into_response()
}

async fn sign_in(State((sessions, access)): State<Shared>, headers: HeaderMap) -> Response {
    let problem = |status, text: &str| Problem(status, text.into()).into_response();
    if !access.has_tokens() {
        return problem(StatusCode::BAD_REQUEST, "this meter requires no tokens: nobody needs to sign in");
    }
    let Some((token, role)) = token_of(&headers).and_then(|token| Some((token, access.role_of(token)?)))
    else {
        access.refuse();
        return problem(StatusCode::UNAUTHORIZED, "unknown token");
    };
    if role == Role::Ingest {
        access.refuse();
        return problem(StatusCode::FORBIDDEN, "this token is for sending spans; expected one for view");
    }
    match sessions.begin(token) {
        Ok(cookie) => {
            let standing = Standing { needs_token: true, role: Some(role.name()) };
            ([(SET_COOKIE, cookie), (CACHE_CONTROL, HeaderValue::from_static("no-store"))], Json(standing))
                .into_response()
        }
        Err(status) => problem(status, "the system gives no random numbers"),
    }
}

async fn sign_out(State((sessions, access)): State<Shared>, headers: HeaderMap) -> Response {
    let standing = Standing { needs_token: access.has_tokens(), role: None };
    ([(SET_COOKIE, sessions.end(&headers))], Json(standing)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEW: &str = "view-view-view-view";
    const CAPTURE: &str = "capture-capture-cap";

    fn signed_in(sessions: &Sessions, token: &str) -> String {
        let cookie = sessions.begin(token).unwrap();
        cookie.to_str().unwrap().split(';').next().unwrap().to_owned()
    }

    fn token(sessions: &Sessions, method: Method, headers: &[(http::HeaderName, &str)]) -> Option<String> {
        let mut request = Request::builder().method(method).uri("/api/v1/pairs");
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        let mut request = request.body(()).unwrap();
        sessions.unlock(&mut request);
        token_of(request.headers()).map(str::to_owned)
    }

    #[test]
    fn a_cookie_stands_for_the_token_that_it_was_given_for() {
        let sessions = Sessions::new(false);
        let (view, capture) = (signed_in(&sessions, VIEW), signed_in(&sessions, CAPTURE));
        assert_eq!(token(&sessions, Method::GET, &[(COOKIE, &view)]).as_deref(), Some(VIEW));
        let among = format!("theme=dark; {capture}; other=1");
        assert_eq!(token(&sessions, Method::GET, &[(COOKIE, &among)]).as_deref(), Some(CAPTURE));
        let brought = [(COOKIE, &*capture), (AUTHORIZATION, "Bearer another")];
        assert_eq!(
            token(&sessions, Method::GET, &brought).as_deref(),
            Some("another"),
            "what it says itself holds"
        );
        for wrong in [&view[..view.len() - 1], "spangap_session=", "spangap_session", "other=1"] {
            assert_eq!(token(&sessions, Method::GET, &[(COOKIE, wrong)]), None, "{wrong}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, HeaderValue::from_str(&view).unwrap());
        assert!(sessions.end(&headers).to_str().unwrap().contains("Max-Age=0"));
        assert_eq!(token(&sessions, Method::GET, &[(COOKIE, &view)]), None, "signed out");
        assert!(token(&sessions, Method::GET, &[(COOKIE, &capture)]).is_some(), "somebody else is not");
    }

    #[test]
    fn a_cookie_changes_nothing_without_a_page_that_says_which_one_it_is() {
        let sessions = Sessions::new(true);
        let capture = signed_in(&sessions, CAPTURE);
        assert_eq!(token(&sessions, Method::POST, &[(COOKIE, &capture)]), None);
        let from_page = [(COOKIE, &*capture), (ORIGIN, "https://meter.example")];
        assert_eq!(token(&sessions, Method::POST, &from_page).as_deref(), Some(CAPTURE));
        let cookie = sessions.begin(VIEW).unwrap();
        for part in ["HttpOnly", "SameSite=Strict", "; Secure"] {
            assert!(cookie.to_str().unwrap().contains(part), "{cookie:?}");
        }
    }

    #[test]
    fn sessions_are_bounded_and_the_oldest_makes_room() {
        let sessions = Sessions::new(false);
        let first = signed_in(&sessions, VIEW);
        let second = signed_in(&sessions, VIEW);
        (2..=MOST).for_each(|_| drop(sessions.begin(VIEW).unwrap()));
        assert_eq!(sessions.open().len(), MOST);
        assert_eq!(token(&sessions, Method::GET, &[(COOKIE, &first)]), None);
        assert!(token(&sessions, Method::GET, &[(COOKIE, &second)]).is_some());
    }
}
