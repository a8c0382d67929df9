//! Pages of `--html`: a document and the page that draws it, in one self-contained file. The pages are built
//! from `web/src/tank/` and `web/src/report/`, and embedded in the binary.

use crate::whole_file;
use anyhow::Context;
use serde::Serialize;
use spangap_report::html::escaped;
use std::path::Path;

const TANK: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/dist/tank.html"));
const REPORT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/dist/report.html"));
/// Placeholders for the document and its title; the pages' build checks that each occurs once.
const PLACE: &str = "/*REPORT*/";
const TITLE: &str = "<title>spangap</title>";

/// A document that a page draws.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Report<'r> {
    /// Of `hunt`; `of` names the source.
    Hunt {
        /// A folder, or a pair at a meter.
        of: &'r str,
        /// Short title.
        title: &'r str,
        /// The document of `hunt --json`.
        report: &'r serde_json::Value,
    },
    /// Of `gaps`; `of` names the files.
    Gaps {
        /// Names of the files.
        of: &'r str,
        /// Title.
        title: String,
        /// Number of pairs found; `report` has the first of them.
        of_pairs: usize,
        /// The document of `gaps --json`.
        report: &'r spangap_meter::report::PairsReport,
    },
    /// Of `lab grade`; `links` are the addresses of the rows' folders.
    Grade {
        /// Number of correct verdicts.
        title: String,
        /// One per row.
        links: Vec<Option<String>>,
        /// The document of `lab grade --json`.
        report: &'r spangap_lab::grade::report::GradeReport,
    },
    /// Of `host thieves`.
    Thieves {
        /// Content of its page.
        report: &'r spangap_host::report::thieves::page::ThievesPage,
    },
    /// Of `host stacks`.
    Stacks {
        /// Content of its page.
        report: &'r spangap_host::report::flame::page::StacksPage,
    },
    /// Of `isolate show`.
    IsolateShow {
        /// Content of its page.
        report: &'r spangap_isolate::report::show::page::ShowPage,
    },
    /// Of `dissect`.
    Dissect {
        /// Content of its page.
        report: &'r spangap_wire::report::DissectPage,
    },
}

impl Report<'_> {
    fn title(&self) -> &str {
        match self {
            Report::Hunt { title, .. } => title,
            Report::Gaps { title, .. } | Report::Grade { title, .. } => title,
            Report::Dissect { report } => &report.title,
            Report::Thieves { report } => &report.title,
            Report::Stacks { report } => &report.title,
            Report::IsolateShow { report } => &report.title,
        }
    }

    /// Writes the page to a file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> anyhow::Result<()> {
        let page = filled(REPORT, self)?;
        let title = format!("<title>{}</title>", escaped(self.title()));
        put(path, &page.replacen(TITLE, &title, 1))
    }
}

/// Writes the page of a tank report to a file.
///
/// # Errors
/// The file cannot be written.
pub fn write_tank(path: &Path, report: &spangap_bench::report::TankReport) -> anyhow::Result<()> {
    put(path, &filled(TANK, report)?.replacen(TITLE, "<title>spangap tank</title>", 1))
}

fn put(path: &Path, page: &str) -> anyhow::Result<()> {
    whole_file::write(path, page).with_context(|| format!("cannot write the page ({})", path.display()))
}

fn filled(page: &str, document: &impl Serialize) -> anyhow::Result<String> {
    // In JSON, `<` occurs only inside strings, where it may be escaped: so nothing in the document can close
    // the element it is in.
    let json = serde_json::to_string(document).context("cannot write the report as JSON")?;
    Ok(page.replacen(PLACE, &json.replace('<', "\\u003c"), 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use spangap_bench::report::{Noise, TankReport};
    use spangap_host::report::flame::page::StacksPage;
    use spangap_host::report::thieves::page::ThievesPage;
    use spangap_isolate::report::show::page::ShowPage;
    use spangap_wire::report::DissectPage;

    const HOSTILE: &str = "</script></title><script>alert(1)</script><!-- /*REPORT*/ \u{2028}\u{0}";

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
            warnings: vec![HOSTILE.into()],
        }
    }

    /// Pages of both kinds, with adversarial content.
    fn pages() -> Vec<(String, Value)> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("page.html");
        let mut pages = Vec::new();
        write_tank(&file, &hostile()).unwrap();
        pages.push((std::fs::read_to_string(&file).unwrap(), serde_json::to_value(hostile()).unwrap()));
        let verdict = json!({ "words": HOSTILE });
        let dissected =
            DissectPage { title: HOSTILE.into(), headline: HOSTILE.into(), ..DissectPage::default() };
        let thieves =
            ThievesPage { title: HOSTILE.into(), notes: vec![HOSTILE.into()], ..ThievesPage::default() };
        let stacks =
            StacksPage { title: HOSTILE.into(), folded: vec![HOSTILE.into()], ..StacksPage::default() };
        let machine = ShowPage { title: HOSTILE.into(), plans: vec![HOSTILE.into()], ..ShowPage::default() };
        for report in [
            Report::Hunt { of: HOSTILE, title: HOSTILE, report: &verdict },
            Report::Dissect { report: &dissected },
            Report::Thieves { report: &thieves },
            Report::Stacks { report: &stacks },
            Report::IsolateShow { report: &machine },
        ] {
            report.write(&file).unwrap();
            pages.push((std::fs::read_to_string(&file).unwrap(), serde_json::to_value(&report).unwrap()));
        }
        pages
    }

    #[test]
    fn a_document_cannot_leave_its_element() {
        for (page, document) in pages() {
            let (_, rest) = page.split_once("<script type=\"application/json\" id=\"data\">").unwrap();
            let (json, _) = rest.split_once("</script>").unwrap();
            assert_eq!(serde_json::from_str::<Value>(json).unwrap(), document);
            assert_eq!(page.matches("<script").count(), 2);
            assert_eq!((page.matches("<title>").count(), page.matches("</title>").count()), (1, 1));
        }
    }

    #[test]
    fn a_page_asks_no_host_and_has_its_policy() {
        for (page, _) in pages() {
            for needle in ["src=\"http", "href=\"http", "url(http", "@import", "//cdn"] {
                assert!(!page.contains(needle), "{needle}");
            }
            assert!(page.contains("default-src 'none'; script-src 'sha256-") && !page.contains("unsafe-"));
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let error =
            format!("{:#}", write_tank(&directory.path().join("none/report.html"), &hostile()).unwrap_err());
        assert!(error.contains("none/report.html") && error.contains("No such file"), "{error}");
        let file = directory.path().join("report.html");
        write_tank(&file, &hostile()).unwrap();
        assert!(std::fs::read_to_string(file).unwrap().starts_with("<!doctype html>"));
    }
}
