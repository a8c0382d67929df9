use super::*;
use crate::plan::{IrqbalancePolicy, NetCpus, Policy};
use proptest::prelude::*;
use spangap_machine::Kept;
use spangap_model::Cpus;
use std::os::unix::fs::PermissionsExt;

pub(crate) fn head() -> Head {
    let policy = Policy {
        interfaces: vec!["eth0".into()],
        net_cpus: NetCpus::Auto,
        queues: false,
        cpusets: true,
        irqbalance: IrqbalancePolicy::Ban,
    };
    let plan = Plan {
        format: Plan::FORMAT.into(),
        boot_id: "boot".into(),
        policy,
        net_cpus: Cpus::parse_list("1").unwrap(),
        app_cpus: Cpus::parse_list("0").unwrap(),
        choice: Vec::new(),
        changes: Vec::new(),
        planned_again_after_queues: false,
        notes: Vec::new(),
        permanent: Vec::new(),
        before: None,
    };
    Head {
        format: Head::FORMAT.into(),
        boot_id: "boot".into(),
        net_namespace: Some(7),
        root: None,
        time_unix_ns: 1,
        confirm_within_ns: Some(60),
        plan,
    }
}

fn place() -> impl Strategy<Value = Place> {
    prop_oneof![
        any::<String>().prop_map(|path| Place::File { path }),
        any::<String>().prop_map(|path| Place::Group { path }),
        any::<(String, String)>().prop_map(|(from, to)| Place::Tasks { from, to }),
        any::<(u32, u64, String)>().prop_map(|(tid, start_ticks, comm)| Place::Affinity {
            tid,
            start_ticks,
            comm
        }),
        any::<String>().prop_map(|interface| Place::Queues { interface }),
        Just(Place::BannedIrqs),
        any::<String>().prop_map(|name| Place::Service { name }),
    ]
}

fn record() -> impl Strategy<Value = Record> {
    let irq = prop::option::of(
        any::<(String, Option<String>)>().prop_map(|(name, interface)| IrqName { name, interface }),
    );
    prop_oneof![
        any::<(u32, u64)>().prop_map(|(pid, start_ticks)| Record::Guard { pid, start_ticks }),
        (place(), any::<(Option<String>, String)>(), irq)
            .prop_map(|(place, (old, new), irq)| Record::Change(Entry { place, old, new, irq })),
        any::<Vec<String>>().prop_map(|groups| Record::Unchanged { groups }),
        (place(), any::<String>()).prop_map(|(place, why)| Record::Refused { place, why }),
        any::<u64>().prop_map(|time_unix_ns| Record::Applied { time_unix_ns }),
        any::<u64>().prop_map(|time_unix_ns| Record::Confirmed { time_unix_ns }),
        Just(Record::Undoing),
        (any::<(u64, String)>(), prop::collection::vec(place(), 0..3))
            .prop_map(|((time_unix_ns, by), left)| Record::RolledBack { time_unix_ns, by, left }),
    ]
}

fn written(records: &[Vec<Record>]) -> (tempfile::TempDir, Folder) {
    let temp = tempfile::tempdir().unwrap();
    let folder = Folder::new(temp.path().join("a/b"));
    let lock = folder.lock().unwrap();
    let mut writer = folder.begin(&lock, &head()).unwrap();
    for records in records {
        writer.write(records).unwrap();
    }
    (temp, folder)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn written_records_are_read_back(batches in prop::collection::vec(prop::collection::vec(record(), 0..5), 0..4)) {
        let (_temp, folder) = written(&batches);
        let (path, journal) = folder.open().unwrap().unwrap();
        prop_assert_eq!(path.file_name().unwrap(), "open.journal");
        prop_assert_eq!(&journal.head, &head());
        prop_assert_eq!(journal.records, batches.concat());
    }

    #[test]
    fn truncated_journal_yields_its_complete_lines(
        records in prop::collection::vec(record(), 0..5),
        more in prop::collection::vec(record(), 1..3),
        at: prop::sample::Index,
    ) {
        let (_temp, folder) = written(std::slice::from_ref(&records));
        let path = folder.open_path();
        let bytes = fs::read(&path).unwrap();
        let cut = at.index(bytes.len());
        fs::write(&path, &bytes[..cut]).unwrap();
        // A line that lacks only its newline is complete by its checksum, and the head has two copies.
        let ends: Vec<usize> = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at).collect();
        let lines = ends[1..].iter().filter(|end| **end <= cut).count();
        if cut < ends[0] / 2 {
            match folder.open() {
                Err(error) => {
                    let said = error.to_string();
                    prop_assert!(said.contains("is damaged at line 1, bytes 0 to"), "{}", said);
                    prop_assert!(said.contains("--forget"), "{}", said);
                }
                // The fields before the plan are readable.
                Ok(journal) => {
                    let (_, journal) = journal.unwrap();
                    prop_assert_eq!(journal.head_read, HeadRead::ButThePlan);
                    prop_assert_eq!(journal.lost().count(), 1, "{:?}", journal.damage);
                }
            }
        } else {
            prop_assert_eq!(&folder.open().unwrap().unwrap().1.records, &records[..lines]);
            // The journal can also be continued.
            folder.append(&folder.lock().unwrap()).unwrap().write(&more).unwrap();
            let (_, journal) = folder.open().unwrap().unwrap();
            prop_assert!(journal.is_whole(), "{:?}", journal.damage);
            prop_assert_eq!(journal.records, [&records[..lines], &more].concat());
        }
    }

    #[test]
    fn a_changed_byte_never_panics(
        records in prop::collection::vec(record(), 0..5),
        at: prop::sample::Index,
        byte: u8,
    ) {
        let (_temp, folder) = written(&[records]);
        let mut bytes = fs::read(folder.open_path()).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = Journal::parse(Path::new("x"), &bytes);
    }
}

#[test]
fn damage_is_reported_and_the_rest_is_read() {
    let guard = |pid| Record::Guard { pid, start_ticks: 1 };
    let (_temp, folder) = written(&[vec![guard(1), guard(2)]]);
    let path = folder.open_path();
    let text = fs::read_to_string(&path).unwrap().replace("\"pid\":1", "\"pid\":7");
    fs::write(&path, &text).unwrap();
    let (_, journal) = folder.open().unwrap().unwrap();
    assert_eq!((&journal.records, journal.is_whole()), (&vec![guard(2)], false));
    let begin = text.find('\n').unwrap() + 1;
    let said = journal.damage[0].to_string();
    assert!(said.starts_with(&format!("line 2, bytes {begin} to ")) && said.contains("\"pid\":7"), "{said}");
    // No journal starts over it, and nothing of it is lost.
    let lock = folder.lock().unwrap();
    assert!(folder.begin(&lock, &head()).is_err());
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    let aside = folder.set_aside(&lock).unwrap();
    assert_eq!(fs::read_to_string(aside).unwrap(), text);
    folder.begin(&lock, &head()).unwrap();
    let later =
        serde_json::to_string(&Head { format: "spangap isolate journal 9".into(), ..head() }).unwrap();
    let error = Journal::parse(&path, (later + "\n").as_bytes()).unwrap_err().to_string();
    assert!(error.contains("journal 9") && error.contains("this version"), "{error}");
}

/// A journal in the previous version's format: no checksums, a single head.
fn of_before(records: &[Record]) -> String {
    let head = Head { format: Head::BEFORE.into(), ..head() };
    let records = records.iter().map(|record| serde_json::to_string(record).unwrap());
    std::iter::once(serde_json::to_string(&head).unwrap()).chain(records).map(|line| line + "\n").collect()
}

#[test]
fn previous_journal_version_is_read_even_with_a_damaged_head() {
    let records = [Record::Guard { pid: 4, start_ticks: 5 }, Record::Applied { time_unix_ns: 6 }];
    let text = of_before(&records);
    let read = |text: &[u8]| Journal::parse(Path::new("x"), text).unwrap();
    let whole = read(text.as_bytes());
    assert!(whole.is_whole());
    assert_eq!((&whole.records[..], &*whole.head.boot_id), (&records[..], "boot"));
    let plan = text.find(",\"plan\":").unwrap();
    let end = text.find('\n').unwrap();
    for at in 0..end {
        let mut bytes = text.clone().into_bytes();
        bytes[at] = b'~';
        let journal = match Journal::parse(Path::new("x"), &bytes) {
            Ok(journal) => journal,
            // Its format identifier differs.
            Err(JournalError::Version { .. }) => continue,
            Err(error) => panic!("byte {at}: {error}"),
        };
        assert_eq!(&journal.records[..], &records[..], "byte {at}");
        match journal.head_read {
            // A text with one letter changed.
            HeadRead::Whole => {}
            HeadRead::ButThePlan => {
                assert!(at > plan, "byte {at}");
                assert_eq!((&*journal.head.boot_id, journal.head.net_namespace), ("boot", Some(7)));
            }
            HeadRead::Lost => assert!(journal.head.boot_id.is_empty() && !journal.is_whole()),
        }
        // However little is readable, it is never mistaken for a journal of another boot.
        assert!(journal.head_read == HeadRead::Lost || journal.head.boot_id == "boot", "byte {at}");
    }
}

#[test]
fn at_most_one_journal_is_open() {
    let (_temp, folder) = written(&[vec![Record::Applied { time_unix_ns: 3 }]]);
    let lock = folder.lock().unwrap();
    let error = folder.begin(&lock, &head()).unwrap_err();
    assert!(matches!(&error, JournalError::Applied { journal } if *journal == folder.open_path()), "{error}");
    folder.close(&lock).unwrap();
    folder.close(&lock).unwrap();
    assert_eq!(folder.open().unwrap(), None);
    // A fully undone journal, and one of an earlier boot, do not stand in the way.
    let mut writer = folder.begin(&lock, &head()).unwrap();
    let rolled_back = |left| Record::RolledBack { time_unix_ns: 4, by: "guard".into(), left };
    writer.write(&[rolled_back(vec![Place::BannedIrqs])]).unwrap();
    assert!(folder.begin(&lock, &head()).is_err());
    writer.write(&[rolled_back(vec![])]).unwrap();
    folder.begin(&lock, &head()).unwrap();
    folder.begin(&lock, &Head { boot_id: "another".into(), ..head() }).unwrap();
    let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.collect();
    names.sort();
    assert_eq!(names, ["last.journal", "open.journal"]);
}

#[test]
fn journal_is_private() {
    let (_temp, folder) = written(&[]);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(folder.path()), mode(&folder.open_path())), (0o700, 0o600));
}

#[test]
fn second_process_waits_for_the_lock() {
    let (_temp, folder) = written(&[]);
    let lock = folder.lock().unwrap();
    let second = std::thread::spawn({
        let folder = folder.clone();
        move || folder.lock().and_then(|_lock| folder.open()).unwrap().unwrap().1.confirmed()
    });
    folder.append(&lock).unwrap().write(&[Record::Confirmed { time_unix_ns: 5 }]).unwrap();
    drop(lock);
    assert_eq!(second.join().unwrap(), Some(5));
}

#[test]
fn outcomes_in_words() {
    let left = vec![Place::BannedIrqs];
    let records = vec![
        Record::Guard { pid: 4, start_ticks: 5 },
        Record::Applied { time_unix_ns: 6 },
        Record::RolledBack { time_unix_ns: 7, by: "rollback".into(), left: left.clone() },
    ];
    let journal = Journal::new(head(), records);
    assert_eq!(
        (journal.guard(), journal.applied(), journal.confirmed()),
        (Some(Process { pid: 4, start_ticks: 5 }), Some(6), None)
    );
    assert_eq!(journal.rolled_back(), Some((7, "rollback", &*left)));
    assert!(!journal.undoing());
    let undoing =
        Journal { records: [journal.records.clone(), vec![Record::Undoing]].concat(), ..journal.clone() };
    assert!(undoing.undoing());
    let machine =
        |id| Host::kept(Kept::parse(&format!("=== /proc/sys/kernel/random/boot_id\n{id}\n")).unwrap());
    assert!(!journal.of_another_boot(&machine("boot")));
    assert!(journal.of_another_boot(&machine("another")));
    assert!(!journal.of_another_boot(&Host::kept(Kept::default())));
}
