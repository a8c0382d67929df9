//! For any bytes of a file, every reader returns its content or an error.

use super::*;
use crate::Known;
use proptest::prelude::*;
use spangap_model::Cpus;

type Reader = fn(&str) -> Result<(), crate::FactError>;

fn done<T>(read: Known<T>) -> Known<()> {
    read.map(drop)
}

/// Each reader with a sample of the kernel's format; pieces of it reach what arbitrary bytes would not.
const READERS: &[(&str, Reader)] = &[
    ("fd60c9e4-1b83-4a1f\n", |text| done(boot_id::parse("/p", text))),
    ("0,3-48\n", |text| done(cpu_list::list("/p", text))),
    ("ff,00000003\n", |text| done(cpu_list::mask("/p", text))),
    ("{\"policyName\":\"static\",\"entries\":{\"a\":{\"b\":\"1-2\"},\"c\":\"3\"}}", |text| {
        done(cpu_manager_state::parse("/p", text))
    }),
    ("     CPU0   CPU2\n 24:  1  7 IO-APIC   5-edge      eth0-rx-0\nERR:   3\n", |text| {
        let table = cpu_table::parse("/p", text)?;
        for row in &table.rows {
            let _ = (row.devices(), row.on(0));
        }
        done(table.whole())
    }),
    ("usage_usec 1\nnr_periods 3\nnr_throttled 2\nthrottled_usec 9\n", |text| {
        done(cpu_stat::throttled("/p", text))
    }),
    ("processor\t: 0\nmodel name\t: A CPU\nflags\t: fpu hypervisor\n", |text| {
        let _ = cpuinfo::parse(text);
        Ok(())
    }),
    ("socket:[4711]", |text| {
        let _ = (descriptors::socket_inode(text), figures::count(text), figures::nanoseconds(text));
        Ok(())
    }),
    ("-1\n", |text| done(figures::number::<i64>("/p", text))),
    ("nr_periods 3\nthrottled_usec 9\n", |text| {
        let _ = figures::keyed(text);
        Ok(())
    }),
    ("33 30 0:29 /x /sys/fs/cgroup\\040a rw shared:14 - cgroup cgroup rw,cpu,cpuacct\n", |text| {
        let mounts = mountinfo::cgroups("/p", text)?;
        for mount in &mounts {
            let _ = (mount.below(text), mount.has("cpu"));
        }
        Ok(())
    }),
    ("MemTotal:       16384 kB\n", |text| done(meminfo::total_bytes("/p", text))),
    ("6.1.0\n", |text| done(system_name::parse("/p", text))),
    ("TcpExt: A B\nTcpExt: 1 -2\n", |text| done(net_counters::parse("/p", text))),
    ("a\nb\n eth0:1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n", |text| done(net_dev::rx_packets("/p", text))),
    (
        "h\n   0: 0100007F:1F90 00000000000000000000000000000001:0000 0A 00000000:00000001 01:00000014 00000000  0 0 4711 1 0 20 4 3 10 -1\n",
        |text| done(net_tcp::parse("/p", text)),
    ),
    ("4:cpu,cpuacct:/docker/x\n0::/a.slice\n", |text| done(process_cgroup::parse("/p", text))),
    ("7 (a (b) c) S 1 1 1 0 -1 4194304 102 0 0 0 1 1 2 -3 20 0 1 0 4711 3133440 394\n", |text| {
        done(process_stat::parse("/p", text))
    }),
    ("Name:\tx\nTgid:\t7\nTracerPid:\t0\nCapEff:\tff\nCpus_allowed_list:\t0-3\n", |text| {
        let status = process_status::ProcessStatus::new("/p", text);
        let _ = (status.name(), status.process(), status.tracer(), status.capabilities());
        done(status.allowed())
    }),
    ("1 2 3\n", |text| done(schedstat::parse("/p", text))),
    ("09a33fae 0 a 0 0 0 0 0 0 d 0 0 1 0 0\n", |text| {
        done(softnet_stat::parse("/p", text, &Cpus::default()))
    }),
    ("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\nintr 5\n", |text| {
        let stat = stat::parse("/p", text)?;
        for times in stat.cpus.values() {
            let _ = (times.total(), times.since(times), times.plus(times));
        }
        done(stat.whole())
    }),
    ("0.50 1.00 2.00 1/234 5678\n", |text| {
        done(uptime::uptime_s("/p", text)).and(done(uptime::load("/p", text)))
    }),
];

#[test]
fn each_reads_its_text() {
    for (text, reader) in READERS {
        assert_eq!(reader(text), Ok(()), "{text:?}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let text = String::from_utf8_lossy(&bytes);
        READERS.iter().for_each(|(_, reader)| drop(reader(&text)));
    }

    /// A truncated file, or one with some bytes changed.
    #[test]
    fn no_change_of_a_text_panics(
        which in 0..READERS.len(), cut in any::<prop::sample::Index>(),
        others in prop::collection::vec((any::<prop::sample::Index>(), "[\\PC\n\t]|18446744073709551615|-|é"), 0..4),
    ) {
        let (text, reader) = READERS[which];
        let mut changed: Vec<String> = text.chars().map(String::from).collect();
        changed.truncate(changed.len() - cut.index(changed.len()) / 2);
        for (at, other) in others {
            let at = at.index(changed.len());
            changed[at] = other;
        }
        if let Err(error) = reader(&changed.concat()) {
            prop_assert!(error.to_string().starts_with("/p, line "), "{}", error);
        }
    }
}
