//! Query strings. A parameter that the path does not take is an error, not ignored: `windw=1h` must not be answered as if no
//! window were given. Which parameters there are is read off the structs that they end up in.

use super::clock::Clock;
use crate::report::ApiError;
use axum::Json;
use axum::extract::{FromRequestParts, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::de::value::{Error, StrDeserializer};
use serde::de::{DeserializeOwned, DeserializeSeed, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, forward_to_deserialize_any};
use spangap_model::duration::parse_ns;

/// Longer values are cut where an error quotes them; in characters.
const QUOTED: usize = 60;
/// Names less alike than this are not what was meant.
const ALIKE: f64 = 0.75;

/// What the query string asks for.
#[derive(Debug)]
pub struct Ask<T>(pub T);

/// A query string that is refused, with the reason.
#[derive(Debug, PartialEq, Eq)]
pub struct BadQuery(pub String);

impl IntoResponse for BadQuery {
    fn into_response(self) -> Response {
        (StatusCode::BAD_REQUEST, Json(ApiError { error: self.0 })).into_response()
    }
}

impl From<Error> for BadQuery {
    fn from(error: Error) -> BadQuery {
        BadQuery(error.to_string())
    }
}

type Pairs = Vec<(String, String)>;

/// One or several structs that share a query string. Each of their fields is a parameter.
pub trait Parameters: Sized {
    /// Of all of them.
    fn names() -> Vec<&'static str>;

    /// Reads them. All of the given names are known, and none occurs twice.
    ///
    /// # Errors
    /// When a value is not of the kind that its field expects.
    fn read(given: &Pairs) -> Result<Self, BadQuery>;
}

impl Parameters for () {
    fn names() -> Vec<&'static str> {
        Vec::new()
    }

    fn read(_: &Pairs) -> Result<(), BadQuery> {
        Ok(())
    }
}

macro_rules! parameters {
    ($($part:ident)+) => {
        impl<$($part: DeserializeOwned),+> Parameters for ($($part,)+) {
            fn names() -> Vec<&'static str> {
                let mut names = Vec::new();
                // It ends in an error once it has seen the names.
                $(let _ = $part::deserialize(Names(&mut names));)+
                names
            }

            fn read(given: &Pairs) -> Result<Self, BadQuery> {
                Ok(($($part::deserialize(Given(given))?,)+))
            }
        }
    };
}

parameters!(A);
parameters!(A B);
parameters!(A B C);
parameters!(A B C D);

impl<T: Parameters, S: Send + Sync> FromRequestParts<S> for Ask<T> {
    type Rejection = BadQuery;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, BadQuery> {
        let given = Query::<Pairs>::from_request_parts(parts, state).await;
        let Query(given) = given.map_err(|rejection| BadQuery(rejection.body_text()))?;
        known(&given, parts.uri.path(), &T::names())?;
        Ok(Ask(T::read(&given)?))
    }
}

/// A layer for paths without parameters.
///
/// # Errors
/// When there is one.
pub async fn none(Ask(()): Ask<()>, request: Request, next: Next) -> Response {
    next.run(request).await
}

/// Whether the path accepts each of them, and each occurs once.
fn known(given: &Pairs, path: &str, names: &[&str]) -> Result<(), BadQuery> {
    for (at, (name, _)) in given.iter().enumerate() {
        if !names.contains(&&**name) {
            return Err(unknown(name, path, names));
        }
        if given[..at].iter().any(|(other, _)| other == name) {
            return Err(BadQuery(format!("{name} is given more than once: expected one value")));
        }
    }
    Ok(())
}

fn unknown(name: &str, path: &str, names: &[&str]) -> BadQuery {
    let what = format!("unknown parameter {:?}", quoted(name));
    if names.is_empty() {
        return BadQuery(format!("{what}: {path} takes none"));
    }
    let like = |other: &str| strsim::jaro_winkler(&name.to_lowercase(), other);
    let nearest = names.iter().copied().max_by(|a, b| like(a).total_cmp(&like(b)));
    let meant = nearest.filter(|nearest| like(nearest) >= ALIKE);
    let meant = meant.map_or(String::new(), |nearest| format!("did you mean {nearest:?}? "));
    BadQuery(format!("{what}: {meant}{path} takes {}", names.join(", ")))
}

fn quoted(value: &str) -> String {
    match value.char_indices().nth(QUOTED) {
        Some((at, _)) => format!("{}…", &value[..at]),
        None => value.into(),
    }
}

/// A duration that is the value of a parameter.
///
/// # Errors
/// When it is none.
pub fn duration_ns(name: &str, text: &str) -> Result<u64, BadQuery> {
    parse_ns(text).map_err(|_| wrong(name, text, "a number and a unit, such as 90s, 15m, 6h"))
}

/// An id that is the value of a parameter.
///
/// # Errors
/// When it is none of this length.
pub(super) fn id<const N: usize>(name: &str, text: &str) -> Result<[u8; N], BadQuery> {
    from_hex(text).ok_or_else(|| wrong(name, text, &format!("{} hex digits", 2 * N)))
}

fn wrong(name: &str, value: &str, expected: &str) -> BadQuery {
    BadQuery(format!("{name}={}: expected {expected}", quoted(value)))
}

/// Notes the fields of a struct instead of reading it.
struct Names<'a>(&'a mut Vec<&'static str>);

impl<'de> Deserializer<'de> for Names<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("not a struct"))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        self.0.extend(fields);
        Err(Error::custom("only its fields are asked for"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct
        seq tuple tuple_struct map enum identifier ignored_any
    }
}

/// The query string, from which a struct takes the fields that it has.
struct Given<'a>(&'a Pairs);

impl<'de> Deserializer<'de> for Given<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(Fields { rest: self.0.iter(), value: None })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct
        seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

struct Fields<'a> {
    rest: std::slice::Iter<'a, (String, String)>,
    value: Option<Text<'a>>,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((name, value)) = self.rest.next() else { return Ok(None) };
        self.value = Some(Text { name, value });
        seed.deserialize(StrDeserializer::new(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        match self.value.take() {
            Some(text) => seed.deserialize(text),
            None => Err(Error::custom("a value without a name")),
        }
    }
}

/// The value of a parameter.
struct Text<'a> {
    name: &'a str,
    value: &'a str,
}

impl Text<'_> {
    fn expected(&self, what: &str) -> Error {
        let BadQuery(why) = wrong(self.name, self.value, what);
        Error::custom(why)
    }
}

impl<'de> Deserializer<'de> for Text<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.value)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value.parse() {
            Ok(number) => visitor.visit_u64(number),
            Err(_) => Err(self.expected("a whole number from 0 to 18446744073709551615")),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if !variants.contains(&self.value) {
            return Err(self.expected(&format!("one of {}", variants.join(", "))));
        }
        visitor.visit_enum(StrDeserializer::new(self.value))
    }

    // No other number type is in use.
    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}

pub(super) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.is_ascii() {
        return None;
    }
    let mut bytes = [0; N];
    for (i, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(bytes)
}

/// The stretch of time asked for: `window=15m`, or `from` and `to` in Unix seconds.
#[derive(Debug, Deserialize)]
pub struct Period {
    window: Option<String>,
    from: Option<u64>,
    to: Option<u64>,
}

/// What is looked at when nothing is asked for.
const DEFAULT_WINDOW_S: u64 = 900;

impl Period {
    /// First and last second; minutes that overlap it are taken whole.
    ///
    /// # Errors
    /// When it is no duration, or ends before it begins.
    pub fn seconds(&self, clock: &Clock) -> Result<(u64, u64), BadQuery> {
        let to = self.to.unwrap_or(clock.unix_s());
        let window_s = match &self.window {
            Some(text) => duration_ns("window", text)? / 1_000_000_000,
            None => DEFAULT_WINDOW_S,
        };
        let from = self.from.unwrap_or(to.saturating_sub(window_s));
        if from > to {
            return Err(BadQuery(format!("from {from} lies after to {to}")));
        }
        Ok((from, to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    struct Range {
        window: Option<String>,
        from: Option<u64>,
    }

    #[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Sort {
        #[default]
        Lost,
        GapP50,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    struct Rows {
        #[serde(default)]
        sort: Sort,
        top: Option<usize>,
    }

    type Both = (Range, Rows);

    async fn ask<T: Parameters>(query: &str) -> Result<T, String> {
        let request = Request::builder().uri(format!("/rows?{query}")).body(()).unwrap();
        let (mut parts, ()) = request.into_parts();
        match Ask::<T>::from_request_parts(&mut parts, &()).await {
            Ok(Ask(asked)) => Ok(asked),
            Err(BadQuery(why)) => Err(why),
        }
    }

    #[tokio::test]
    async fn every_struct_takes_its_own_parameters() {
        assert_eq!(Both::names(), ["window", "from", "sort", "top"]);
        let (range, rows) = ask::<Both>("top=5&window=a%20b&sort=gap_p50").await.unwrap();
        assert_eq!(range, Range { window: Some("a b".into()), from: None });
        assert_eq!(rows, Rows { sort: Sort::GapP50, top: Some(5) });
        assert_eq!(ask::<Both>("").await, Ok((Range::default(), Rows::default())));
        assert_eq!(ask::<()>("").await, Ok(()));
    }

    #[tokio::test]
    async fn errors_name_parameter_value_and_what_was_expected() {
        let long = format!("from={}", "9".repeat(70));
        for (query, expected) in [
            (
                "windw=1h",
                r#"unknown parameter "windw": did you mean "window"? /rows takes window, from, sort, top"#,
            ),
            ("TOP=1", r#"did you mean "top"?"#),
            ("zzz=1", r#"unknown parameter "zzz": /rows takes window"#),
            ("top=-1", "top=-1: expected a whole number from 0 to"),
            ("top=", "top=: expected a whole number"),
            ("from=18446744073709551616", "from=18446744073709551616: expected a whole number from 0"),
            ("sort=beauty", "sort=beauty: expected one of lost, gap_p50"),
            ("top=1&from=2&top=1", "top is given more than once"),
            (&long, "999…: expected"),
        ] {
            let error = ask::<Both>(query).await.unwrap_err();
            assert!(error.contains(expected), "{query}: {error}");
        }
        assert_eq!(ask::<()>("a=1").await, Err(r#"unknown parameter "a": /rows takes none"#.into()));
    }

    #[test]
    fn ids_are_read_whole_or_not_at_all() {
        assert_eq!(from_hex::<2>("0aFf"), Some([0x0a, 0xff]));
        assert_eq!(from_hex::<2>("0af"), None);
        assert_eq!(from_hex::<2>("0ag0"), None);
        assert_eq!(from_hex::<2>("0é0"), None);
    }
}
