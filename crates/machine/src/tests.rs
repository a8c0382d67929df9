use super::*;
use proptest::prelude::*;

fn entry() -> impl Strategy<Value = Entry> {
    prop_oneof![
        "([a-z0-9: ]{0,20}\n){0,3}".prop_map(Entry::Text),
        "[a-z./]{1,20}".prop_map(Entry::Link),
        "[a-z]{1,12}".prop_map(Entry::Refused),
        prop::collection::vec("[a-z0-9]{1,5}", 0..4).prop_map(Entry::Names),
    ]
}

proptest! {
    #[test]
    fn saved_machine_is_read_back(entries in prop::collection::btree_map("(/[a-z0-9.:]{1,6}){1,4}", entry(), 0..8)) {
        let mut kept = Kept::default();
        entries.into_iter().for_each(|(path, entry)| kept.add(&path, entry));
        prop_assert_eq!(Kept::parse(&kept.text()), Ok(kept));
    }

    #[test]
    fn no_text_panics(text in "(=== )?\\PC*\n\\PC*") {
        let _ = Kept::parse(&text);
    }
}

#[test]
fn saved_machine_equals_its_source() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir_all(folder.path().join("proc/irq/10")).unwrap();
    fs::create_dir_all(folder.path().join("proc/irq/9")).unwrap();
    fs::write(folder.path().join("proc/uptime"), "1.5 2\n").unwrap();
    std::os::unix::fs::symlink("../nowhere/virtio_net", folder.path().join("driver")).unwrap();
    std::os::unix::fs::symlink("proc/irq", folder.path().join("interrupts")).unwrap();
    let look = |host: &Host| {
        let absent = host.read("/proc/gone").unwrap_err();
        assert!(host.link("/proc/irq").unwrap_err().is_absent(), "that is a folder");
        let both = (host.link("/interrupts"), host.list("/interrupts"));
        (host.read("/proc/uptime"), host.list("/proc/irq"), host.link("/driver"), absent.to_string(), both)
    };
    let real = Host::below(folder.path());
    let first = look(&real);
    assert_eq!(first.0.as_deref(), Ok("1.5 2\n"));
    assert_eq!(first.1.as_deref(), Ok(["9".to_owned(), "10".to_owned()].as_slice()));
    assert_eq!(first.3, "cannot read /proc/gone: there is no such file");
    assert_eq!((first.4.0.as_deref(), first.4.1.as_ref().map(Vec::len)), (Ok("proc/irq"), Ok(2)));
    let text = real.seen().text();
    assert_eq!(look(&Host::kept(Kept::parse(&text).unwrap())), first, "{text}");
}

/// Threads end while a machine is read: what was answered first is what is saved.
#[test]
fn a_moment_stays_as_it_was_first_read() {
    let folder = tempfile::tempdir().unwrap();
    let thread = folder.path().join("proc/7/task/8");
    fs::create_dir_all(&thread).unwrap();
    fs::write(thread.join("stat"), "8\n").unwrap();
    let (changing, moment) = (Host::below(folder.path()), Host::below(folder.path()).at_one_moment());
    let look = |host: &Host| (host.list("/proc/7/task"), host.read("/proc/7/task/8/stat"));
    let (first, of_first) = (look(&moment), look(&changing));
    assert_eq!(first, of_first);
    fs::remove_dir_all(&thread).unwrap();
    assert_eq!(look(&moment), first);
    assert_eq!(look(&Host::kept(moment.seen())), first);
    let now = look(&changing);
    assert_eq!(now.0, Ok(vec![]), "a host is read anew otherwise");
    assert!(now.1.unwrap_err().is_absent());
}

/// A file that the second reading does not find is not taken from the first.
#[test]
fn what_went_between_two_readings_is_gone_in_the_second() {
    let kept = |text: &str| Kept::parse(text).unwrap();
    let first = kept("=== /exe -> a\n=== /proc/7/task : 7 8\n=== /proc/7/task/8/stat\n8\n");
    let second = kept("=== /proc/7/task : 7 8\n");
    let (_, read) = parse_readings(&write_readings(&first, &second)).unwrap();
    let read = Host::kept(read);
    assert_eq!(read.list("/proc/7/task").unwrap(), ["7", "8"]);
    assert!(read.read("/proc/7/task/8/stat").unwrap_err().is_absent());
    assert!(read.link("/exe").unwrap_err().is_absent());
}

#[test]
fn saved_machine_is_the_same_on_disk() {
    let text = "=== /proc/7/task : 7 8\n=== /proc/7/task/7/comm\nx\n=== /proc/secret ! permission denied\n\
        === /sys/class/net/eth0 -> ../../devices/pci0/0000:00:03.0/net/eth0\n=== /sys/class/net/eth0/flags\n0x1003\n\
        === /sys/class/net/eth0/device -> ../../../0000:00:03.0\n=== /sys/class/net/eth0/device/msi_irqs : 40 41\n\
        === /sys/devices/pci0/0000:00:03.0/numa_node\n1\n";
    let folder = tempfile::tempdir().unwrap();
    Kept::parse(text).unwrap().write_below(folder.path()).unwrap();
    let host = Host::below(folder.path());
    assert_eq!(host.list("/proc/7/task").unwrap(), ["7", "8"]);
    assert_eq!(host.read("/sys/class/net/eth0/flags").unwrap(), "0x1003\n");
    assert_eq!(host.link("/sys/class/net/eth0/device").unwrap(), "../../../0000:00:03.0");
    assert_eq!(host.list("/sys/devices/pci0/0000:00:03.0/msi_irqs").unwrap(), ["40", "41"]);
    assert_eq!(host.read("/sys/class/net/eth0/device/numa_node").unwrap(), "1\n");
    assert!(host.read("/proc/secret").unwrap_err().is_absent());
    for bad in
        ["=== /a/../../b\nx\n", "=== /a -> /etc\n=== /a/b\nx\n", "=== /a -> b\n=== /b -> a\n=== /b/c\nx\n"]
    {
        let folder = tempfile::tempdir().unwrap();
        let error = Kept::parse(bad).unwrap().write_below(folder.path()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{bad}");
    }
}

#[test]
fn file_removed_during_a_read_is_absent() {
    // A thread that exited, a cgroup that was removed: both after their file was opened.
    for gone in [3, 19, 2, 20] {
        assert!(is_absent(&io::Error::from_raw_os_error(gone)), "{gone}");
    }
    assert!(!is_absent(&io::Error::from_raw_os_error(13)));
    let error = read_here("/proc/4294967295/stat", |_, text| Ok(text.to_owned())).unwrap_err();
    assert!(error.is_absent() && error.to_string().starts_with("cannot read /proc/4294967295/stat: "));
}

#[test]
fn two_readings_as_one_text() {
    let kept = |text: &str| Kept::parse(text).unwrap();
    let first = kept("=== /a\n1\n=== /b\n2\n");
    let second = kept("=== /a\n1\n=== /b\n3\n=== /c\n4\n");
    let text = write_readings(&first, &second);
    assert_eq!(parse_readings(&text), Ok((Some(first.clone()), second)));
    assert_eq!(text.matches("=== /a").count(), 1, "{text}");
    assert_eq!(parse_readings("=== /a\n1\n=== /b\n2\n"), Ok((None, first)));
    assert_eq!(parse_readings(&format!("{}x\n", "=== /a\n##### second reading\n")).unwrap_err().line, 3);
}

#[test]
fn one_line_for_many_cpus_and_refusals() {
    let kept =
        Kept::parse("# a note\n=== /cpu/cpu[0-1,4]/governor\nperformance\n=== /dev/x ! permission denied\n");
    let host = Host::kept(kept.unwrap());
    assert_eq!(host.list("/cpu").unwrap(), ["cpu0", "cpu1", "cpu4"]);
    assert_eq!(host.read("/cpu/cpu4/governor").unwrap(), "performance\n");
    assert_eq!(host.read("/dev/x").unwrap_err().to_string(), "cannot read /dev/x: permission denied");
    assert_eq!(host.read("/dev/x").unwrap_err().closed(), Some("/dev/x"));
    assert_eq!(host.read("/dev/y").unwrap_err().closed(), None);
    assert!(!host.read("/dev/x").unwrap_err().is_absent());
    assert_eq!(Kept::parse("x\n").unwrap_err().line, 1);
}
