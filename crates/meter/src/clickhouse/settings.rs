//! Settings of `--clickhouse`, from a TOML file.

use serde::Deserialize;
use std::path::PathBuf;

/// Where the minutes of all meters are.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ClickHouseSettings {
    /// Address of the HTTP interface.
    pub url: ServerUrl,
    /// Database of the tables.
    #[serde(default = "database")]
    pub database: Identifier,
    /// The user; without it the server's default.
    #[serde(default)]
    pub user: Option<Text>,
    /// File with the user's password, and nothing else.
    #[serde(default)]
    pub password_file: Option<PathBuf>,
    /// Authorities of the server's certificate (PEM); without it those of the system.
    #[serde(default)]
    pub ca: Option<PathBuf>,
    /// Name of this meter in answers; without it the name of the host.
    #[serde(default)]
    pub name: Option<Text>,
    /// The table into which the Collector writes spans.
    #[serde(default = "traces")]
    pub traces: Table,
}

fn database() -> Identifier {
    Identifier("default".into())
}

fn traces() -> Table {
    Table("otel_traces".into())
}

/// `http://HOST:PORT` or `https://HOST:PORT`.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct ServerUrl(pub String);

impl TryFrom<String> for ServerUrl {
    type Error = String;
    fn try_from(url: String) -> Result<Self, String> {
        let plain = url.trim_end_matches('/');
        let place = ["http://", "https://"].iter().find_map(|scheme| plain.strip_prefix(scheme));
        let is_place = |place: &str| {
            !place.is_empty()
                && !place.contains(['/', '?', '#', '@', ' '])
                && !place.chars().any(char::is_control)
        };
        match place.is_some_and(is_place) {
            true => Ok(ServerUrl(plain.into())),
            // It may hold a password.
            false => Err("expected http://HOST:PORT or https://HOST:PORT, without user and path".into()),
        }
    }
}

/// A name that needs no quotes in SQL.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Identifier(pub String);

fn is_identifier(text: &str) -> bool {
    let begins = text.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_');
    begins && text.len() <= 128 && text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

impl TryFrom<String> for Identifier {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        match is_identifier(&text) {
            true => Ok(Identifier(text)),
            false => Err(format!("expected letters, digits and _, found {text:?}")),
        }
    }
}

/// `TABLE` or `DATABASE.TABLE`.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Table(pub String);

impl TryFrom<String> for Table {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        match text.split('.').all(is_identifier) && text.matches('.').count() < 2 {
            true => Ok(Table(text)),
            false => Err(format!("expected TABLE or DATABASE.TABLE, found {text:?}")),
        }
    }
}

/// A text that is not empty and fits into a header.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Text(pub String);

impl TryFrom<String> for Text {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        match text.is_empty() || text.len() > 200 || !text.chars().all(|letter| (' '..='~').contains(&letter))
        {
            true => Err(format!("expected 1 to 200 printable ASCII characters, found {text:?}")),
            false => Ok(Text(text)),
        }
    }
}
