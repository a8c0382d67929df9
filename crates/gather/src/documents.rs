//! Saved documents of instruments: all instruments store their evidence under the same key.

use crate::GatherError;
use serde::Deserialize;
use spangap_model::evidence::Testimony;
use std::path::Path;

const KEY: &str = "\"evidence\"";
/// Members of the evidence, any of which may come first.
const MEMBERS: [&str; 3] = ["\"version\"", "\"findings\"", "\"coverage\""];

/// The one key that is read, of any document.
#[derive(Deserialize)]
struct Document {
    evidence: Option<Testimony>,
}

/// Evidence in a document; `None` if it was written by a version without evidence.
pub fn testimony(path: &Path) -> Result<Option<Testimony>, GatherError> {
    let text = std::fs::read(path).map_err(|error| GatherError::Io(path.to_owned(), error))?;
    let document: Document =
        serde_json::from_slice(&text).map_err(|error| GatherError::Document(path.to_owned(), error))?;
    Ok(document.evidence)
}

/// Whether the beginning of a document contains an instrument's evidence: `"evidence": {"version": ...`.
/// Other documents have an array under that key.
pub fn is_one(begin: &[u8]) -> bool {
    let after = |rest: &[u8], token: &str| -> Option<usize> {
        let trimmed = rest.trim_ascii_start();
        trimmed.starts_with(token.as_bytes()).then(|| rest.len() - trimmed.len() + token.len())
    };
    let follows = |mut rest: &[u8]| {
        for token in [KEY, ":", "{"] {
            let Some(end) = after(rest, token) else { return false };
            rest = &rest[end..];
        }
        MEMBERS.iter().any(|member| after(rest, member).is_some())
    };
    (0..begin.len()).any(|at| begin[at] == b'"' && follows(&begin[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Sources, Wanted, evidence};
    use spangap_model::evidence::{Certainty, Coverage, Finding, Instrument, Scope};
    use spangap_model::{Cause, Culprit, Side};
    use std::sync::atomic::AtomicBool;

    /// A document of a future instrument.
    fn document(instrument: Instrument) -> serde_json::Value {
        let finding = Finding {
            hop: None,
            culprit: Culprit::of(Cause::Steal),
            certainty: Certainty::Shown,
            instrument,
            scope: Scope::Host,
            when: None,
            cost_ns: Some(7),
            note: String::new(),
            proofs: Vec::new(),
        };
        let coverage = Coverage {
            instrument,
            source: "here".into(),
            side: None,
            when: None,
            seen: 3,
            lost: 1,
            cannot: Vec::new(),
        };
        serde_json::json!({"evidence": Testimony::new(coverage, vec![finding]), "rows": [{"findings": 1}]})
    }

    fn gathered(folder: &Path) -> Result<spangap_model::evidence::Evidence, GatherError> {
        let sources = Sources::of_folder(folder)?;
        evidence(
            &sources,
            Wanted { calls: 10, sample: 0 },
            &mut |_| std::ops::ControlFlow::Continue(()),
            &AtomicBool::new(false),
        )
    }

    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let capture =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/captures/any-device.client.pcapng");
        std::fs::copy(capture, folder.path().join("client.pcapng")).unwrap();
        folder
    }

    #[test]
    fn documents_of_unknown_instruments_reach_the_evidence() {
        let folder = folder();
        for instrument in Instrument::ALL {
            let text = serde_json::to_string_pretty(&document(instrument)).unwrap();
            std::fs::write(folder.path().join(instrument.name()), text).unwrap();
        }
        let evidence = gathered(folder.path()).unwrap();
        for instrument in Instrument::ALL {
            let found = evidence.findings.iter().filter(|finding| finding.instrument == instrument).count();
            let looked =
                evidence.coverage.iter().filter(|one| one.source == "here" && one.instrument == instrument);
            assert_eq!((found, looked.count()), (1, 1), "{instrument}");
        }
    }

    #[test]
    fn the_documented_example_reaches_the_evidence() {
        let folder = folder();
        let page =
            std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/hunt.md")).unwrap();
        let example = page.split("```json\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        std::fs::write(folder.path().join("backup.json"), example).unwrap();
        let evidence = gathered(folder.path()).unwrap();
        let found = |one: &&Finding| one.instrument == Instrument::Other;
        let found: Vec<&Finding> = evidence.findings.iter().filter(found).collect();
        assert_eq!((found.len(), found[0].culprit), (1, Culprit::at(Cause::Disk, Side::Server)));
        let looked = evidence.coverage.iter().find(|one| one.instrument == Instrument::Other);
        assert_eq!(looked.map(|one| one.source.as_str()), Some("backup log of web-1"));
    }

    #[test]
    fn a_document_of_another_version_is_refused_with_its_name() {
        let folder = folder();
        let text = document(Instrument::Thieves).to_string().replace("\"version\":1", "\"version\":9");
        std::fs::write(folder.path().join("thieves.json"), text).unwrap();
        let error = gathered(folder.path()).unwrap_err().to_string();
        assert!(error.contains("thieves.json") && error.contains("evidence of version 9"), "{error}");
    }

    #[test]
    fn only_documents_with_these_members_are_recognised() {
        assert!(is_one(b" {\n \"evidence\" : {\n \"version\": 1"));
        assert!(is_one(b"{\"asked\": {}, \"evidence\":{\"coverage\""), "as sorted keys stand");
        let others = [
            "{\"calls\": [{\"evidence\": [{\"capture\": 1",
            "{\"evidence\": {\"what\": 1}",
            "{\"findings\": {\"version\"",
            "{\"evidence\"",
            "",
        ];
        for other in others {
            assert!(!is_one(other.as_bytes()), "{other}");
        }
    }
}
