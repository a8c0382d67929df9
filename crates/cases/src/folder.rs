//! Folders of cases, bounded in number and bytes; the oldest go first. Each file appears by a rename, whole or not at
//! all.

use crate::report::{CaseReport, FileRow, State};
use serde::Serialize;
use spangap_model::PairKey;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// What is known of a case.
pub const CASE: &str = "case.json";
/// Its verdict, as `spangap hunt --json` prints it.
pub const HUNT: &str = "hunt.json";
/// Cases kept.
pub const MOST_CASES: usize = 1_000;
/// A file that is not whole yet.
const PART: &str = ".part";
/// A case that is being removed.
const GONE: &str = ".gone";

/// The folder of all cases.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    most_bytes: u64,
}

/// A file of a case that is being written.
#[derive(Debug)]
pub struct Part {
    file: File,
    part: PathBuf,
    whole: PathBuf,
}

impl Folder {
    /// Below this path, which is made with the first case.
    pub fn new(path: &Path, most_bytes: u64) -> Folder {
        Folder { path: path.to_owned(), most_bytes }
    }

    /// Where the files of a case are. Ids are made here, and never come from outside.
    pub fn of(&self, id: &str) -> PathBuf {
        self.path.join(id)
    }

    /// Cases of earlier runs, oldest first. What was open then stays without a verdict.
    ///
    /// # Errors
    /// When the folder cannot be read. A case that cannot be read is left alone.
    pub fn load(&self) -> io::Result<Vec<CaseReport>> {
        let mut cases = Vec::new();
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(cases),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            if is_half_removed(&path) || is_half_made(&path) {
                // Its meter was killed meanwhile. One that cannot be removed is tried again by the next start.
                let _ = fs::remove_dir_all(&path);
                continue;
            }
            let Ok(text) = fs::read(path.join(CASE)) else { continue };
            let Ok(mut case) = serde_json::from_slice::<CaseReport>(&text) else { continue };
            if path.file_name().is_none_or(|name| name != case.row.id.as_str()) {
                continue;
            }
            for file in self.names(&case.row.id).into_iter().filter(|name| name.ends_with(PART)) {
                // It was not whole when the meter ended.
                let _ = fs::remove_file(path.join(file));
            }
            if case.row.state == State::Open {
                case.row.state = State::Unknown;
                case.lacks.push("The meter exited before there was a verdict.".into());
            }
            for experiment in case.experiments.iter_mut().filter(|one| one.to_unix_ms.is_none()) {
                let written_ms = written_unix_ms(&path.join(CASE)).unwrap_or(0);
                experiment.to_unix_ms = Some(written_ms.max(experiment.from_unix_ms));
                experiment.outcome = "undecided".into();
                experiment.words =
                    "Undecided: the meter exited during the experiment; the host undoes a change whose meter is gone."
                        .into();
            }
            case.files = self.files(&case.row.id);
            cases.push(case);
        }
        cases.sort_by(|a, b| (a.row.opened_unix_ms, &a.row.id).cmp(&(b.row.opened_unix_ms, &b.row.id)));
        Ok(cases)
    }

    /// Makes the folder of a new case.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make(&self, id: &str) -> io::Result<()> {
        // Who may see packets and recordings is told by roles, and not by who has an account here.
        let mut builder = fs::DirBuilder::new();
        builder.mode(0o700).recursive(true).create(&self.path)?;
        builder.recursive(false).create(self.of(id))
    }

    /// A new file of a case.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(&self, id: &str, name: &str) -> io::Result<Part> {
        let part = self.of(id).join(format!(".{name}{PART}"));
        Ok(Part { file: File::create(&part)?, part, whole: self.of(id).join(name) })
    }

    /// Writes a file of a case in one go.
    ///
    /// # Errors
    /// When it cannot be written; an older one of that name is still there then.
    pub fn write(&self, id: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut part = self.create(id, name)?;
        part.write_all(bytes)?;
        part.finish()
    }

    /// Writes a file of a case as JSON, without holding all of it in memory.
    ///
    /// # Errors
    /// As [`Folder::write`].
    pub fn write_json(&self, id: &str, name: &str, document: &impl Serialize) -> io::Result<()> {
        let mut out = io::BufWriter::new(self.create(id, name)?);
        serde_json::to_writer(&mut out, document)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.finish()
    }

    /// Removes the files of a slice that was called so.
    pub fn discard(&self, id: &str, of: &str) {
        for name in self.names(id).into_iter().filter(|name| name.starts_with(&format!("{of}."))) {
            // One that stays is removed with its case.
            let _ = fs::remove_file(self.of(id).join(name));
        }
    }

    fn names(&self, id: &str) -> Vec<String> {
        let entries = fs::read_dir(self.of(id)).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Whole files of a case, by name.
    pub fn files(&self, id: &str) -> Vec<FileRow> {
        let names = self.names(id).into_iter().filter(|name| !name.starts_with('.'));
        let size = |name: String| {
            let bytes = fs::metadata(self.of(id).join(&name)).ok()?.len();
            Some(FileRow { name, bytes })
        };
        let mut files: Vec<FileRow> = names.filter_map(size).collect();
        files.sort_by(|a, b| a.name.cmp(&b.name));
        files
    }

    /// Which of these cases, oldest first, have to go so that number and bytes are within their bounds. Those that are open stay.
    pub fn too_many(&self, oldest_first: &[&CaseReport]) -> Vec<String> {
        let bytes = |case: &CaseReport| case.files.iter().map(|file| file.bytes).sum::<u64>();
        let mut number = oldest_first.len();
        let mut all: u64 = oldest_first.iter().map(|case| bytes(case)).sum();
        let mut gone = Vec::new();
        for case in oldest_first.iter().filter(|case| case.row.state != State::Open) {
            if number <= MOST_CASES && all <= self.most_bytes {
                break;
            }
            number -= 1;
            all -= bytes(case);
            gone.push(case.row.id.clone());
        }
        gone
    }

    /// Removes a case. Its name goes first, so that half of one is never seen.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self, id: &str) -> io::Result<()> {
        let aside = self.path.join(format!(".{id}{GONE}"));
        fs::rename(self.of(id), &aside)?;
        fs::remove_dir_all(aside)
    }
}

/// When a file was last written, Unix milliseconds.
fn written_unix_ms(path: &Path) -> Option<u64> {
    let written = fs::metadata(path).ok()?.modified().ok()?;
    u64::try_from(written.duration_since(UNIX_EPOCH).ok()?.as_millis()).ok()
}

/// Whether it is a case of which only the removal was not finished.
fn is_half_removed(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.starts_with('.') && name.ends_with(GONE)
}

/// Whether it is a case of which not even the first file was finished: `case.json` comes first.
fn is_half_made(path: &Path) -> bool {
    let first = format!(".{CASE}{PART}");
    let Ok(entries) = fs::read_dir(path) else { return false };
    let names: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    path.file_name().is_some_and(is_id) && names.iter().all(|name| *name == *first)
}

/// Whether a name has the form of those that [`free_id`] makes.
fn is_id(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    let mut parts = name.splitn(3, '-');
    let mut digits = |number: usize| {
        parts
            .next()
            .is_some_and(|part| part.len() == number && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    digits(8) && digits(6) && parts.next().is_some()
}

impl Part {
    /// It is whole.
    ///
    /// # Errors
    /// When it cannot be given its name.
    pub fn finish(self) -> io::Result<()> {
        self.file.sync_data()?;
        fs::rename(&self.part, &self.whole)
    }

    /// It is worth nothing.
    pub fn discard(self) {
        // One that stays is removed with its case.
        let _ = fs::remove_file(&self.part);
    }
}

impl Write for Part {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Sorts by time, and reads well: `20261122-204301-tank-target`.
pub(crate) fn free_id(cases: &BTreeMap<String, CaseReport>, pair: &PairKey, now_ms: u64) -> String {
    let time = jiff::Timestamp::from_millisecond(now_ms as i64).unwrap_or_default();
    let plain = |name: &str| -> String {
        let letters = name.chars().filter(|letter| letter.is_ascii_alphanumeric() || *letter == '-');
        letters.take(24).collect::<String>().to_ascii_lowercase()
    };
    let name = format!("{}-{}-{}", time.strftime("%Y%m%d-%H%M%S"), plain(&pair.client), plain(&pair.server));
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut names = std::iter::once(name.clone()).chain(numbered);
    names.find(|name| !cases.contains_key(name)).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::shapes::ExperimentReport;
    use crate::report::CaseRow;

    fn case(folder: &Folder, id: &str, opened_unix_ms: u64, state: State, bytes: usize) -> CaseReport {
        let row = CaseRow { id: id.into(), opened_unix_ms, state, ..CaseRow::default() };
        let mut case = CaseReport { row, ..CaseReport::default() };
        folder.make(id).unwrap();
        folder.write(id, "client.pcapng", &vec![7; bytes]).unwrap();
        folder.write(id, CASE, &serde_json::to_vec(&case).unwrap()).unwrap();
        case.files = folder.files(id);
        case
    }

    #[test]
    fn what_was_written_is_loaded_and_what_is_not_whole_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(&dir.path().join("a/b"), 1 << 20);
        assert!(folder.load().unwrap().is_empty() && !dir.path().join("a").exists());
        let written = case(&folder, "2", 2, State::Explained, 10);
        case(&folder, "1", 1, State::Open, 10);
        folder.create("2", "server.pcapng").unwrap().write_all(b"half").unwrap();
        fs::create_dir(folder.of("stranger")).unwrap();
        fs::create_dir(folder.of("lies")).unwrap();
        fs::copy(folder.of("2").join(CASE), folder.of("lies").join(CASE)).unwrap();
        let loaded = folder.load().unwrap();
        assert_eq!(loaded.len(), 2, "{loaded:#?}");
        assert_eq!(loaded[1], written);
        assert_eq!((loaded[0].row.state, loaded[0].lacks.len()), (State::Unknown, 1));
        assert_eq!(folder.names("2").len(), 2);
    }

    #[test]
    fn an_experiment_whose_meter_was_killed_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path(), 1 << 20);
        let mut written = case(&folder, "1", 1, State::Explained, 10);
        let running = ExperimentReport { from_unix_ms: 7, outcome: "running".into(), ..Default::default() };
        let over = ExperimentReport { to_unix_ms: Some(9), outcome: "proven".into(), ..Default::default() };
        written.experiments = vec![over.clone(), running];
        folder.write("1", CASE, &serde_json::to_vec(&written).unwrap()).unwrap();
        let loaded = folder.load().unwrap();
        let [first, last] = &loaded[0].experiments[..] else { panic!("{loaded:#?}") };
        assert_eq!(*first, over);
        // Whoever follows it, as the page does, waits for its end.
        assert!(last.to_unix_ms.is_some_and(|ms| ms > 1_700_000_000_000), "{last:#?}");
        assert_eq!((last.outcome.as_str(), last.undone), ("undecided", false));
    }

    #[test]
    fn what_was_being_made_or_removed_when_the_meter_was_killed_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path(), 1 << 20);
        let pair = PairKey { client: "tank".into(), server: "target".into(), method: None };
        let id = |ms: u64| free_id(&BTreeMap::new(), &pair, ms);
        let whole = case(&folder, &id(0), 0, State::Fixed, 10);
        let half = [1_000, 2_000, 3_000].map(id);
        folder.make(&half[0]).unwrap();
        folder.make(&half[1]).unwrap();
        folder.create(&half[1], CASE).unwrap().write_all(b"{").unwrap();
        case(&folder, &half[2], 3, State::Fixed, 10);
        fs::rename(folder.of(&half[2]), dir.path().join(format!(".{}{GONE}", half[2]))).unwrap();
        // A folder of somebody else, and a case that lacks its first file, are not ours to judge.
        fs::create_dir(folder.of("notes")).unwrap();
        folder.make(&id(4_000)).unwrap();
        folder.write(&id(4_000), "client.pcapng", &[7; 10]).unwrap();
        assert_eq!(folder.load().unwrap(), [whole]);
        let mut left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, [id(0).as_str(), &id(4_000), "notes"]);
    }

    #[test]
    fn nobody_else_on_the_machine_reads_it() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(&dir.path().join("data/cases"), 5_000);
        folder.make("1").unwrap();
        for path in [folder.path.clone(), folder.of("1")] {
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700, "{path:?}");
        }
    }

    #[test]
    fn the_oldest_go_first_and_open_ones_stay() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path(), 5_000);
        let cases = [
            case(&folder, "1", 1, State::Open, 2_000),
            case(&folder, "2", 2, State::Unknown, 2_000),
            case(&folder, "3", 3, State::Fixed, 2_000),
            case(&folder, "4", 4, State::Explained, 100),
        ];
        let all: Vec<&CaseReport> = cases.iter().collect();
        assert_eq!(folder.too_many(&all), ["2"]);
        assert!(folder.too_many(&all[2..]).is_empty());
        folder.remove("2").unwrap();
        assert!(!folder.of("2").exists());
        assert_eq!(folder.load().unwrap().len(), 3);
    }
}
