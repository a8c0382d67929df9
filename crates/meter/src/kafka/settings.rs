//! Settings of `--kafka`, from a TOML file.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Which messages to read, and how.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct KafkaSettings {
    /// Brokers to begin with, `host:port`.
    pub brokers: Brokers,
    /// The topic.
    #[serde(default = "topic")]
    pub topic: Name,
    /// The consumer group, which divides the partitions among its meters.
    #[serde(default = "group")]
    pub group: Name,
    /// What a message contains.
    #[serde(default)]
    pub encoding: Encoding,
    /// Where a group begins that has read nothing.
    #[serde(default)]
    pub start: Start,
    /// How much later than its timestamp a message may be written.
    #[serde(default)]
    pub disorder_s: Option<u32>,
    /// Name of a static member of the group.
    #[serde(default)]
    pub instance: Option<Name>,
    /// Encryption.
    #[serde(default)]
    pub tls: Option<TlsSettings>,
    /// Authentication.
    #[serde(default)]
    pub sasl: Option<SaslSettings>,
    /// Settings of librdkafka by their own names.
    #[serde(default)]
    pub librdkafka: Librdkafka,
}

fn topic() -> Name {
    Name("otlp_spans".into())
}

fn group() -> Name {
    Name("spangap".into())
}

/// Producers give up a message two minutes after its timestamp, unless they are told otherwise.
const DISORDER_S: u32 = 120;

impl KafkaSettings {
    /// How much later than its timestamp a message may be written, in milliseconds.
    pub fn disorder_ms(&self) -> u32 {
        self.disorder_s.unwrap_or(DISORDER_S).saturating_mul(1000)
    }
}

/// What a message contains: an `ExportTraceServiceRequest` in either form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// Protobuf.
    #[default]
    OtlpProto,
    /// JSON.
    OtlpJson,
}

/// Where a new group begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// At the oldest message.
    Earliest,
    /// At the next message.
    #[default]
    Latest,
}

/// A list of `host:port`, not empty.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Vec<String>")]
pub struct Brokers(pub Vec<String>);

impl TryFrom<Vec<String>> for Brokers {
    type Error = String;
    fn try_from(brokers: Vec<String>) -> Result<Self, String> {
        let names_port =
            |broker: &String| broker.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        match brokers.iter().find(|broker| !names_port(broker) || broker.contains(',')) {
            Some(wrong) => Err(format!("expected brokers as \"host:port\", found {wrong:?}")),
            None if brokers.is_empty() => Err("expected at least one broker, \"host:port\"".into()),
            None => Ok(Brokers(brokers)),
        }
    }
}

/// A name that is not empty and has no control characters.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Name(pub String);

impl TryFrom<String> for Name {
    type Error = String;
    fn try_from(name: String) -> Result<Self, String> {
        match name.is_empty() || name.len() > 249 || name.chars().any(char::is_control) {
            true => Err(format!("expected a name of 1 to 249 bytes, found {name:?}")),
            false => Ok(Name(name)),
        }
    }
}

/// Encryption by TLS.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct TlsSettings {
    /// Authorities of the brokers' certificates (PEM); without it those of the system.
    pub ca: Option<PathBuf>,
    /// Certificate of this client (PEM).
    pub certificate: Option<PathBuf>,
    /// Its private key (PEM).
    pub key: Option<PathBuf>,
}

/// Authentication by name and password.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SaslSettings {
    /// How the password is proven.
    pub mechanism: Mechanism,
    /// The name.
    pub username: Name,
    /// File with the password, and nothing else.
    pub password_file: PathBuf,
}

/// How a password is proven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Mechanism {
    /// It is sent.
    #[serde(rename = "PLAIN")]
    Plain,
    /// By a challenge, with SHA-256.
    #[serde(rename = "SCRAM-SHA-256")]
    ScramSha256,
    /// By a challenge, with SHA-512.
    #[serde(rename = "SCRAM-SHA-512")]
    ScramSha512,
}

impl Mechanism {
    fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::ScramSha256 => "SCRAM-SHA-256",
            Mechanism::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

/// Settings of librdkafka that spangap has no opinion on.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>")]
pub struct Librdkafka(pub BTreeMap<String, String>);

/// What the guarantees depend on, and what belongs in a file of its own.
const OURS: [&str; 14] = [
    "bootstrap.servers",
    "metadata.broker.list",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "partition.assignment.strategy",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "auto.offset.reset",
    "security.protocol",
    "sasl.username",
    "sasl.password",
    "ssl.key.password",
];

impl TryFrom<BTreeMap<String, String>> for Librdkafka {
    type Error = String;
    fn try_from(settings: BTreeMap<String, String>) -> Result<Self, String> {
        match settings.keys().find(|name| OURS.contains(&name.as_str())) {
            Some(ours) => Err(format!("{ours:?} is not for this table: spangap sets it itself")),
            None => Ok(Librdkafka(settings)),
        }
    }
}

impl KafkaSettings {
    /// Whether a password is proven by a challenge.
    pub fn is_scram(&self) -> bool {
        self.sasl.as_ref().is_some_and(|sasl| sasl.mechanism != Mechanism::Plain)
    }

    /// The settings by librdkafka's names. `password` is the content of the password file.
    pub fn properties(&self, password: Option<&str>) -> Vec<(String, String)> {
        let mut all = vec![
            ("bootstrap.servers", self.brokers.0.join(",")),
            ("group.id", self.group.0.clone()),
            ("client.id", "spangap".into()),
            ("partition.assignment.strategy", "cooperative-sticky".into()),
            // Offsets are committed with the minutes that came of them, and never before.
            ("enable.auto.commit", "false".into()),
            ("enable.auto.offset.store", "false".into()),
            ("enable.partition.eof", "true".into()),
            ("auto.offset.reset", "earliest".into()),
            ("isolation.level", "read_committed".into()),
            // Messages of one partition that are fetched ahead.
            ("queued.max.messages.kbytes", "4096".into()),
            ("fetch.wait.max.ms", "250".into()),
        ];
        let protocol = match (&self.tls, &self.sasl) {
            (None, None) => "plaintext",
            (Some(_), None) => "ssl",
            (None, Some(_)) => "sasl_plaintext",
            (Some(_), Some(_)) => "sasl_ssl",
        };
        all.push(("security.protocol", protocol.into()));
        all.extend(self.instance.iter().map(|instance| ("group.instance.id", instance.0.clone())));
        let path = |path: &PathBuf| path.display().to_string();
        if let Some(tls) = &self.tls {
            all.extend(tls.ca.iter().map(|file| ("ssl.ca.location", path(file))));
            all.extend(tls.certificate.iter().map(|file| ("ssl.certificate.location", path(file))));
            all.extend(tls.key.iter().map(|file| ("ssl.key.location", path(file))));
        }
        if let Some(sasl) = &self.sasl {
            all.push(("sasl.mechanism", sasl.mechanism.name().into()));
            all.push(("sasl.username", sasl.username.0.clone()));
            all.push(("sasl.password", password.unwrap_or_default().into()));
        }
        let ours = all.into_iter().map(|(name, value)| (name.to_string(), value));
        ours.chain(self.librdkafka.0.clone()).collect()
    }
}
