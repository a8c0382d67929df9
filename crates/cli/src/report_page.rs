//! What `spangap tank --html` writes: the report and the page that draws it, in one file that needs no other.

use anyhow::Context;
use spangap_bench::report::TankReport;
use std::path::Path;

const PAGE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/dist/tank.html"));
/// Where the report belongs; the page's build checks that it is there once.
const PLACE: &str = "/*REPORT*/";

/// Writes the page of this report to a file.
///
/// # Errors
/// When the file cannot be written.
pub fn write(path: &Path, report: &TankReport) -> anyhow::Result<()> {
    let page = render(report).context("cannot write the report as JSON")?;
    std::fs::write(path, page).with_context(|| format!("cannot write the report's page ({})", path.display()))
}

fn render(report: &TankReport) -> serde_json::Result<String> {
    // In JSON, `<` stands only inside strings, where it may be written as an escape: so nothing in the report can end
    // the element it is in.
    let json = serde_json::to_string(report)?.replace('<', "\\u003c");
    Ok(PAGE.replacen(PLACE, &json, 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_bench::report::Noise;

    fn hostile() -> TankReport {
        TankReport {
            evidence: Default::default(),
            runs: Vec::new(),
            verdict: String::new(),
            findings: Vec::new(),
            noise: Noise::default(),
            spans: None,
            slow_log: None,
            not_run: Vec::new(),
            warnings: vec!["</script><script>alert(1)</script><!-- /*REPORT*/ \u{2028}".into()],
        }
    }

    #[test]
    fn the_report_cannot_leave_its_element() {
        let page = render(&hostile()).unwrap();
        let (_, rest) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
        let (json, _) = rest.split_once("</script>").unwrap();
        assert_eq!(serde_json::from_str::<TankReport>(json).unwrap(), hostile());
        assert_eq!(page.matches("<script").count(), 2);
    }

    #[test]
    fn the_page_asks_no_host_and_has_its_policy() {
        let page = render(&hostile()).unwrap();
        for needle in ["src=\"http", "href=\"http", "url(http", "@import", "//cdn"] {
            assert!(!page.contains(needle), "{needle}");
        }
        assert!(page.contains("default-src 'none'; script-src 'sha256-") && !page.contains("unsafe-"));
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let error =
            format!("{:#}", write(&directory.path().join("none/report.html"), &hostile()).unwrap_err());
        assert!(error.contains("none/report.html") && error.contains("No such file"), "{error}");
        let file = directory.path().join("report.html");
        write(&file, &hostile()).unwrap();
        assert!(std::fs::read_to_string(file).unwrap().starts_with("<!doctype html>"));
    }
}
