//! A window of kept spans as Parquet, read back by the library's own reader: every value of every span, whatever the coding, the number of
//! row groups and the bounds of the window. `scripts/parquet.sh` reads such files with DuckDB, pyarrow and ClickHouse.

use crate::disk;
use crate::sent::{Sent, at, keep, open};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::{Field, Row};
use spangap_meter::spool::Spool;
use spangap_meter::spool::block::Coding;
use spangap_meter::spool::window::{Exported, Window};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

const ALWAYS: Window = Window { from_unix_ms: 0, to_unix_ms: u64::MAX };

fn export(spool: &Spool, window: Window) -> (Exported, SerializedFileReader<bytes::Bytes>) {
    let mut file = Vec::new();
    let exported = spool.export(window, &mut file).unwrap();
    (exported, SerializedFileReader::new(file.into()).expect("it is Parquet"))
}

fn fields(row: Row) -> BTreeMap<String, Field> {
    row.into_columns().into_iter().collect()
}

fn rows(file: &SerializedFileReader<bytes::Bytes>) -> Vec<BTreeMap<String, Field>> {
    file.get_row_iter(None).unwrap().map(|row| fields(row.unwrap())).collect()
}

fn names(file: &SerializedFileReader<bytes::Bytes>) -> Vec<String> {
    let mut names: Vec<String> = rows(file).iter().map(|row| row["name"].to_string()).collect();
    names.sort();
    names
}

fn said(file: &SerializedFileReader<bytes::Bytes>, key: &str) -> Option<String> {
    let all = file.metadata().file_metadata().key_value_metadata()?;
    all.iter().find(|one| one.key == key)?.value.clone()
}

#[test]
fn every_span_of_the_window_is_in_the_file_whatever_its_coding() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path(), 64 << 20, &Arc::new(AtomicU64::new(at(0))));
    let mut expected = Vec::new();
    for number in 0..30usize {
        let sent = Sent::new(number, &[1, 2, 3]);
        let coding = [Coding::Plain, Coding::Gzip, Coding::Zstd][number % 3];
        keep(&spool, &sent, coding, at(number as u64));
        spool.flush();
        if (10..=20).contains(&number) {
            expected.extend(sent.names.iter().map(|name| format!("\"{name}\"")));
        }
    }
    expected.sort();
    let window = Window { from_unix_ms: at(10), to_unix_ms: at(20) };
    let (exported, file) = export(&spool, window);
    assert_eq!(exported, Exported { spans: 33, incomplete: Vec::new() });
    assert_eq!(names(&file), expected);
    assert_eq!(said(&file, "spangap.arrived_unix_ms"), Some(format!("{} to {}", at(10), at(20))));

    let none = Window { from_unix_ms: at(40), to_unix_ms: at(50) };
    let (exported, file) = export(&spool, none);
    assert_eq!((exported.spans, rows(&file).len()), (0, 0));
}

#[test]
fn row_groups_are_bounded_and_a_reader_that_leaves_ends_the_export() {
    let folder = tempfile::tempdir().unwrap();
    let spool = open(folder.path(), 256 << 20, &Arc::new(AtomicU64::new(at(0))));
    let mut seed = 5;
    for number in 0..60usize {
        keep(&spool, &Sent::incompressible(number, &[7; 500], &mut seed), Coding::Plain, at(0));
    }
    spool.flush();
    let (exported, file) = export(&spool, ALWAYS);
    assert_eq!(exported.spans, 30_000);
    let groups = file.metadata().row_groups();
    let largest = groups.iter().map(|group| group.total_byte_size()).max().unwrap();
    assert!(groups.len() > 1 && largest < 40 << 20, "{} groups, {largest} bytes", groups.len());
    assert_eq!(groups.iter().map(|group| group.num_rows()).sum::<i64>(), 30_000);

    struct Leaves(usize);
    impl Write for Leaves {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::BrokenPipe)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let error = spool.export(ALWAYS, Leaves(1 << 20)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{error}");
}

#[test]
fn what_is_damaged_is_left_out_and_said_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let now = Arc::new(AtomicU64::new(at(0)));
    let spool = open(folder.path(), 64 << 20, &now);
    keep(&spool, &Sent::new(0, &[1]), Coding::Plain, at(0));
    spool.flush();
    spool.stop();
    drop(spool);
    let spool = open(folder.path(), 64 << 20, &now);
    keep(&spool, &Sent::new(1, &[2]), Coding::Plain, at(1));
    spool.flush();
    disk::flip(folder.path(), 0, 90);
    let (exported, file) = export(&spool, ALWAYS);
    assert_eq!(names(&file), ["\"1-0\""]);
    assert_eq!(exported.incomplete.len(), 1, "{exported:?}");
    assert_eq!(said(&file, "spangap.incomplete"), Some(exported.incomplete[0].clone()));
    assert_eq!(spool.figures().damaged_segments, 1);
}
