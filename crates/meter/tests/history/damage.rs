//! Files that are damaged, of others, or cannot be written.

use super::rows::{key, minute};
use super::*;

#[test]
fn a_damaged_row_is_skipped_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let mut history = open(&path, PLENTY, 0);
    let rows: Vec<_> = (0..10).map(|i| minute(60 * i, &key("a", "b"), &[1_000 * (i + 1); 30], i)).collect();
    history.checkpoint(600, &rows, &[]).unwrap();
    drop(history);
    let database = rusqlite::Connection::open(&path).unwrap();
    // One flipped bit in the middle of the statistics of minute 3; the calls of minute 5 truncated.
    let blob = |table: &str, column: &str, minute: i64| -> Vec<u8> {
        let select = format!("SELECT {column} FROM {table} WHERE cell >> 32 = ?1");
        database.query_row(&select, [minute], |r| r.get(0)).unwrap()
    };
    let mut stats = blob("minute", "stats", 3);
    let middle = stats.len() / 2;
    stats[middle] ^= 1;
    database.execute("UPDATE minute SET stats = ?1 WHERE cell >> 32 = 3", [stats]).unwrap();
    let mut worst = blob("minute_worst", "worst", 5);
    worst.pop();
    database.execute("UPDATE minute_worst SET worst = ?1 WHERE cell >> 32 = 5", [worst]).unwrap();
    drop(database);

    let history = open(&path, PLENTY, 700);
    let left: Vec<(u64, usize)> =
        history.all().iter().map(|m| (m.unix_s / 60, m.stats.worst.len())).collect();
    let sound = [0, 1, 2, 4, 6, 7, 8, 9].map(|at| (at, 1));
    let wanted = [&sound[..4], &[(5, 0)], &sound[4..]].concat();
    assert_eq!(left, wanted, "of minute 5 only the calls are lost");
    assert_eq!(history.figures().unwrap().damaged_rows, 2);
    let brief = history.view().stored(Step::Minute, 0, 600, false).unwrap();
    assert!(
        brief.len() == 9 && brief.iter().all(|m| m.stats.worst.is_empty()),
        "worst calls only when asked for"
    );
}

#[test]
fn foreign_files_are_refused_with_their_path() {
    let directory = tempfile::tempdir().unwrap();
    let refusal = |path: &Path| -> (HistoryError, String) {
        let error = History::open(Some(path), PLENTY, 0).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(&path.with_extension("").display().to_string()), "{text}");
        (error, text)
    };
    let text_file = directory.path().join("notes.sqlite");
    std::fs::write(&text_file, "meeting at noon, bring the figures ".repeat(100)).unwrap();
    let (error, text) = refusal(&text_file);
    assert!(matches!(error, HistoryError::Foreign { .. }) && text.contains("beyond recognition"), "{text}");
    assert!(text.contains("Move it away"), "{text}");
    assert!(std::fs::read_to_string(&text_file).unwrap().starts_with("meeting"), "left as it was");

    let other = directory.path().join("browser.sqlite");
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE bookmark (url TEXT)").unwrap();
    let (error, text) = refusal(&other);
    assert!(matches!(error, HistoryError::Foreign { .. }) && text.contains("another program"), "{text}");

    let newer = directory.path().join("newer.sqlite");
    drop(open(&newer, PLENTY, 0));
    rusqlite::Connection::open(&newer).unwrap().pragma_update(None, "user_version", 99).unwrap();
    let text = refusal(&newer).1;
    assert!(text.contains("99") && text.contains("newer"), "{text}");

    // A missing directory is created, like that of the command line, unless a file is in the way.
    let error = History::open(Some(&text_file.join("history.sqlite")), PLENTY, 0).unwrap_err();
    assert!(matches!(error, HistoryError::Directory { .. }), "{error}");
    assert!(error.to_string().contains(&text_file.display().to_string()), "{error}");

    let taken = directory.path().join("taken.sqlite");
    let _first = open(&taken, PLENTY, 0);
    assert!(matches!(refusal(&taken).0, HistoryError::InUse { .. }));
}

#[test]
fn an_unwritable_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut permissions = std::fs::metadata(directory.path()).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(directory.path(), permissions).unwrap();
    if std::fs::write(directory.path().join("probe"), "").is_ok() {
        return println!("not run: a history in a read-only directory: this user may write everywhere");
    }
    let error = History::open(Some(&file(&directory)), PLENTY, 0).unwrap_err().to_string();
    assert!(error.contains(&directory.path().display().to_string()), "{error}");
}

#[test]
fn a_damaged_database_is_moved_aside_and_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let harm: [fn(&mut Vec<u8>); 3] = [
        // The head of the file, as some file systems leave it after a power failure.
        |bytes| bytes[..4096].fill(0),
        // The page of the schema.
        |bytes| bytes[100..2000].fill(0xa5),
        // Everything but the head.
        |bytes| bytes[200..].fill(0),
    ];
    for (round, harm) in harm.into_iter().enumerate() {
        let now = 1_000 * (round as u64 + 1);
        let mut history = open(&path, PLENTY, now);
        let rows: Vec<_> =
            (0..200).map(|i| minute(60 * (i % 20), &key("a", &format!("s{i}")), &[i + 1; 40], i)).collect();
        history.checkpoint(now, &rows, &[]).unwrap();
        drop(history);
        let mut bytes = std::fs::read(&path).unwrap();
        harm(&mut bytes);
        std::fs::write(&path, &bytes).unwrap();

        let mut history = open(&path, PLENTY, now + 1);
        let aside = history.set_aside().first().expect("it was damaged").clone();
        assert_eq!(std::fs::read(&aside.to).unwrap(), bytes, "kept for whoever can save it");
        assert!(aside.to_string().contains(&aside.to.display().to_string()));
        assert!(history.all().is_empty());
        history.checkpoint(now + 2, &[minute(600, &key("a", "b"), &[1], 1)], &[]).unwrap();
        assert_eq!(history.all().len(), 1, "it goes on");
        drop(history);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn damage_found_later_does_not_end_the_history() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory);
    let mut history = open(&path, PLENTY, 0);
    let rows: Vec<_> =
        (0..600).map(|i| minute(60 * (i % 20), &key("a", &format!("s{i}")), &[i + 1; 40], i)).collect();
    history.checkpoint(0, &rows, &[]).unwrap();
    drop(history);
    let mut bytes = std::fs::read(&path).unwrap();
    let whole = bytes.len() / 4096;
    // All pages of data; the schema is intact, so that the file opens.
    let harmed = |page: usize| page > whole / 3;
    for page in (0..whole).filter(|page| harmed(*page)) {
        bytes[4096 * page..4096 * (page + 1)].fill(0xa5);
    }
    std::fs::write(&path, &bytes).unwrap();

    let mut history = open(&path, PLENTY, 100);
    assert!(history.set_aside().is_empty(), "nothing was noticed yet");
    let error = history.view().stored(Step::Minute, 0, u64::MAX, true).unwrap_err();
    assert!(error.is_damage(), "{error}");
    history.replace(200, error.to_string()).unwrap();
    assert_eq!(history.set_aside().len(), 1);
    history.checkpoint(300, &[minute(600, &key("a", "b"), &[1], 1)], &[]).unwrap();
    assert_eq!(history.all().len(), 1, "old connections are not used again");
    drop(history);
    assert_eq!(open(&path, PLENTY, 400).all().len(), 1);
}
