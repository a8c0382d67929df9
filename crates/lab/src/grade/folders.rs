//! Existing folders of runs, with their truth.

use super::score::JudgedRun;
use crate::LabError;
use crate::folder;
use crate::scenario::NEAR_MISS;
use crate::truth::Truth;
use spangap_diagnose::{Answer, Verdict};
use spangap_model::{Cause, Culprit, Side};
use std::fs;
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

/// An existing run.
#[derive(Clone, Debug)]
pub struct ExistingRun {
    /// Folder.
    pub folder: PathBuf,
    /// Truth.
    pub truth: Truth,
}

impl ExistingRun {
    /// Reads a folder with a truth.
    ///
    /// # Errors
    /// It has none, or one with unknown names.
    pub fn read(folder: &Path) -> Result<ExistingRun, LabError> {
        let path = folder.join(folder::TRUTH);
        let text = fs::read(&path).map_err(LabError::file("read", &path))?;
        let truth: Truth = serde_json::from_slice(&text)
            .map_err(|error| LabError::file("understand", &path)(error.into()))?;
        let kept = ExistingRun { folder: folder.to_owned(), truth };
        // Checked here, so that the error comes before the judge is asked.
        kept.judged(None)?;
        Ok(kept)
    }

    /// Name of the run, as `spangap lab run` accepts it.
    pub fn name(&self) -> String {
        let ending = if self.truth.near_miss { NEAR_MISS } else { "" };
        format!("{}{ending}", self.truth.scenario)
    }

    /// The truth paired with a verdict, or with `unknown` if there is none.
    ///
    /// # Errors
    /// The truth contains unknown names.
    pub fn judged(&self, verdict: Option<&Verdict>) -> Result<JudgedRun, LabError> {
        let truth = &self.truth;
        let strange = |what: &str, found: &str, expected: &str| {
            let why = format!("{what} is {found:?}, expected {expected}");
            LabError::file("understand", &self.folder.join(folder::TRUTH))(Error::new(
                ErrorKind::InvalidData,
                why,
            ))
        };
        let cause = Cause::of_name(&truth.culprit)
            .ok_or_else(|| strange("\"culprit\"", &truth.culprit, "the name of a cause"))?;
        let side = match &truth.side {
            Some(side) => {
                Some(Side::of_name(side).ok_or_else(|| strange("\"side\"", side, "client or server"))?)
            }
            None => None,
        };
        let named = |what: &'static str| {
            move |text: &String| {
                text.parse::<Culprit>().map_err(|_| strange(what, text, "a cause, with its side in brackets"))
            }
        };
        let leg = match &truth.leg {
            Some(leg) => {
                Some(leg.parse().map_err(|_| strange("\"leg\"", leg, "a leg, or neighbours joined by +"))?)
            }
            None => None,
        };
        Ok(JudgedRun {
            truth: Culprit { cause, side },
            also_right: truth.also_right.iter().map(named("\"also_right\"")).collect::<Result<_, _>>()?,
            looks_like: truth.looks_like.as_ref().map(named("\"looks_like\"")).transpose()?,
            leg,
            answer: verdict.map_or(Answer::Unknown, |verdict| verdict.answer),
            answer_leg: verdict.and_then(|verdict| verdict.leg),
        })
    }
}

/// All runs in a folder: the folder itself if it is one, else every subfolder with a truth, by name.
///
/// # Errors
/// There is none, or one cannot be read.
pub fn find(dir: &Path) -> Result<Vec<ExistingRun>, LabError> {
    if dir.join(folder::TRUTH).is_file() {
        return Ok(vec![ExistingRun::read(dir)?]);
    }
    let entries = fs::read_dir(dir).map_err(LabError::file("read", dir))?;
    let mut folders = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(LabError::file("read", dir))?;
    // Hidden ones are of runs that are still being made.
    let is_hidden =
        |folder: &Path| folder.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
    folders.retain(|folder| folder.join(folder::TRUTH).is_file() && !is_hidden(folder));
    folders.sort();
    if folders.is_empty() {
        let why = "it has no runs: expected folders with a truth.json, as `spangap lab run` leaves them";
        return Err(LabError::file("grade", dir)(Error::new(ErrorKind::NotFound, why)));
    }
    folders.iter().map(|folder| ExistingRun::read(folder)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn write(dir: &Path, name: &str, truth: &serde_json::Value) {
        fs::create_dir_all(dir.join(name)).expect("a folder");
        fs::write(dir.join(name).join(folder::TRUTH), truth.to_string()).expect("a file");
    }

    fn truth() -> serde_json::Value {
        json!({ "scenario": "a", "near_miss": true, "culprit": "rto", "also_right": ["tail-loss (client)"],
            "looks_like": "none", "leg": "server_app", "active": [], "affected": [], "affected_rule": "none is",
            "acted": true, "proof": [], "parameters": {}, "seed": 1, "command": "spangap" })
    }

    #[test]
    fn folders_with_a_truth_are_runs() {
        let dir = tempfile::tempdir().expect("a folder");
        write(dir.path(), "b", &truth());
        write(dir.path(), "a", &truth());
        fs::create_dir(dir.path().join("other")).expect("a folder");
        let found = find(dir.path()).expect("runs");
        let names: Vec<_> = found.iter().map(|kept| kept.folder.file_name().expect("one")).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(found[0].name(), "a-near-miss");
        let judged = found[0].judged(None).expect("known names");
        assert_eq!(judged.also_right[0].to_string(), "tail-loss (client)");
        assert_eq!(find(&dir.path().join("a")).expect("itself").len(), 1);
        let none = find(&dir.path().join("other")).expect_err("no runs").to_string();
        assert!(none.contains("truth.json"), "{none}");
    }

    #[test]
    fn unknown_names_are_reported_with_their_file() {
        for (key, value) in [
            ("culprit", json!("gremlins")),
            ("side", json!("middle")),
            ("also_right", json!(["rto (middle)"])),
            ("looks_like", json!("")),
            ("leg", json!("server_app+")),
            ("seed", json!("one")),
        ] {
            let dir = tempfile::tempdir().expect("a folder");
            let mut one = truth();
            one[key] = value;
            write(dir.path(), "a", &one);
            let error = find(dir.path()).expect_err(key).to_string();
            assert!(error.contains("a/truth.json") && error.contains("expected"), "{error}");
        }
    }
}
