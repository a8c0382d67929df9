//! `--clickhouse`: the settings, from a TOML file.

use super::MeterArgs;
use super::toml_file::parse;
use anyhow::{Context, anyhow, bail};
use spangap_machine::facts::system_name::host_here;
use spangap_meter::clickhouse::ClickHouse;
use spangap_meter::clickhouse::http::authorities;
use spangap_meter::clickhouse::settings::ClickHouseSettings;
use spangap_meter::history::History;

impl MeterArgs {
    /// The settings of `--clickhouse`, if it is given.
    pub(super) fn clickhouse(&self) -> anyhow::Result<Option<ClickHouseSettings>> {
        let Some(path) = &self.clickhouse else { return Ok(None) };
        if self.data.is_none() {
            bail!(
                "--clickhouse sends again from the history what did not arrive: expected --data DIR as well"
            );
        }
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        parse(path, &text).map(Some)
    }
}

/// Begins to share the minutes of a history; without settings they are no longer kept for sending.
pub fn share(
    settings: Option<&ClickHouseSettings>,
    history: &mut History,
) -> anyhow::Result<Option<ClickHouse>> {
    let Some(settings) = settings else {
        history.replicate(None)?;
        return Ok(None);
    };
    let password = match &settings.password_file {
        None => None,
        Some(file) => {
            let text = std::fs::read_to_string(file);
            let text =
                text.with_context(|| format!("--clickhouse: password-file: cannot read {}", file.display()))?;
            Some(text.trim_end_matches(['\n', '\r']).to_string())
        }
    };
    let roots = match &settings.ca {
        None => None,
        Some(file) => {
            let pem = std::fs::read(file);
            let pem = pem.with_context(|| format!("--clickhouse: ca: cannot read {}", file.display()))?;
            let roots =
                authorities(&pem).map_err(|why| anyhow!("--clickhouse: ca: {}: {why}", file.display()))?;
            Some(roots)
        }
    };
    Ok(Some(ClickHouse::open(settings, password, roots, &host_here(), history)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn error(text: &str) -> String {
        parse::<ClickHouseSettings>(Path::new("c.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn a_small_file_suffices_and_errors_name_file_line_and_key() {
        let url = "url = \"http://clickhouse:8123\"\n";
        let small: ClickHouseSettings = parse(Path::new("c.toml"), url).unwrap();
        assert_eq!((small.database.0.as_str(), small.traces.0.as_str()), ("default", "otel_traces"));
        let told = error("url = \"http://me:secret@clickhouse:8123\"\n");
        assert!(told.starts_with("c.toml:1: url: expected http://HOST:PORT"), "{told}");
        assert!(!told.contains("secret"), "{told}");
        for wrong in ["a; DROP TABLE b", "", "1a", "a b", "a.b"] {
            let told = error(&format!("{url}database = {wrong:?}\n"));
            assert!(told.starts_with("c.toml:2: database: expected letters"), "{told}");
        }
        let told = error(&format!("{url}traces = \"a.b.c\"\n"));
        assert!(told.contains("expected TABLE or DATABASE.TABLE"), "{told}");
        let told = error(&format!("{url}password = \"hunter2\"\n"));
        assert!(told.starts_with("c.toml:2: password: ") && !told.contains("hunter2"), "{told}");
        assert!(error("database = \"a\"\n").contains("url"));
    }
}
