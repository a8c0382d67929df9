//! `--kafka`: the settings, from a TOML file.

use super::MeterArgs;
use super::toml_file::parse;
use anyhow::{Context, bail};
use spangap_meter::kafka::settings::KafkaSettings;

impl MeterArgs {
    /// The settings of `--kafka` with the password they name, if it is given.
    pub(super) fn kafka(&self) -> anyhow::Result<Option<(KafkaSettings, Option<String>)>> {
        let Some(path) = &self.kafka else { return Ok(None) };
        if self.data.is_none() {
            bail!(
                "--kafka stores offsets in the history, with the minutes that came of them: expected --data DIR as well"
            );
        }
        if self.keep_spans.is_some() {
            bail!("--keep-spans keeps what arrives on the OTLP ports: expected no --kafka with it");
        }
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let settings: KafkaSettings = parse(path, &text)?;
        let Some(sasl) = &settings.sasl else { return Ok(Some((settings, None))) };
        let file = &sasl.password_file;
        let password = std::fs::read_to_string(file);
        let password = password.with_context(|| {
            format!("{}: sasl.password-file: cannot read {}", path.display(), file.display())
        })?;
        let password = password.trim_end_matches(['\n', '\r']).to_string();
        Ok(Some((settings, Some(password))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_meter::kafka::settings::{Encoding, Mechanism, Start};
    use std::path::Path;

    fn error(text: &str) -> String {
        parse::<KafkaSettings>(Path::new("k.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn a_small_file_suffices_and_a_full_one_is_understood() {
        let small: KafkaSettings = parse(Path::new("k.toml"), "brokers = [\"a:9092\"]\n").unwrap();
        assert_eq!((small.topic.0.as_str(), small.group.0.as_str()), ("otlp_spans", "spangap"));
        assert_eq!((small.encoding, small.start), (Encoding::OtlpProto, Start::Latest));
        assert_eq!(small.disorder_ms(), 120_000);
        let full = r#"
            brokers = ["a:9092", "[::1]:9093"]
            topic = "t"
            group = "g"
            encoding = "otlp_json"
            start = "earliest"
            disorder-s = 5
            instance = "one"
            [tls]
            ca = "ca.pem"
            [sasl]
            mechanism = "SCRAM-SHA-512"
            username = "u"
            password-file = "secret"
            [librdkafka]
            "session.timeout.ms" = "6000"
        "#;
        let full: KafkaSettings = parse(Path::new("k.toml"), full).unwrap();
        assert_eq!(full.sasl.as_ref().unwrap().mechanism, Mechanism::ScramSha512);
        let properties = full.properties(Some("pass"));
        let value =
            |name: &str| properties.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
        assert_eq!(value("security.protocol"), Some("sasl_ssl"));
        assert_eq!((value("sasl.password"), value("session.timeout.ms")), (Some("pass"), Some("6000")));
        assert_eq!(value("enable.auto.commit"), Some("false"));
    }

    #[test]
    fn errors_name_file_line_and_key_and_show_no_secret() {
        let broker = "brokers = [\"a:1\"]\n";
        assert_eq!(error("brokers = []"), "k.toml:1: brokers: expected at least one broker, \"host:port\"");
        let told = error(&format!("{broker}topic = 5\n"));
        assert!(told.starts_with("k.toml:2: topic: ") && told.contains("expected a string"), "{told}");
        let told = error(&format!("{broker}encoding = \"avro\"\n"));
        assert!(told.starts_with("k.toml:2: encoding: ") && told.contains("otlp_json"), "{told}");
        let inline = "[sasl]\nmechanism = \"PLAIN\"\nusername = \"u\"\npassword = \"hunter2\"\n";
        let told = error(&format!("{broker}\n{inline}"));
        assert!(told.starts_with("k.toml:6: password: ") && !told.contains("hunter2"), "{told}");
        let told = error(&format!("{broker}[librdkafka]\n\"enable.auto.commit\" = \"true\"\n"));
        assert!(told.contains("enable.auto.commit") && told.contains("sets it itself"), "{told}");
        assert!(error("topic = \"t\"\n").contains("brokers"));
    }
}
