//! The rules of the house, as data. To change one, change it here and in ARCHITECTURE.md.

/// Each package, and the workspace packages that it may depend on in any kind of dependency.
pub const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("spangap-model", &[]),
    ("spangap-report", &["spangap-model"]),
    ("spangap-meter", &["spangap-model", "spangap-machine"]),
    ("spangap-undo", &["spangap-model", "spangap-machine"]),
    ("spangap-sockets", &["spangap-model", "spangap-machine", "spangap-report", "spangap-undo"]),
    ("spangap-bench", &["spangap-model", "spangap-report", "spangap-sockets"]),
    ("spangap-machine", &["spangap-model"]),
    ("spangap-host", &["spangap-model", "spangap-machine", "spangap-report"]),
    ("spangap-isolate", &["spangap-model", "spangap-machine", "spangap-report", "spangap-undo"]),
    ("spangap-wire", &["spangap-model", "spangap-report"]),
    ("spangap-gather", &["spangap-model", "spangap-meter", "spangap-wire", "spangap-host"]),
    ("spangap-diagnose", &["spangap-model"]),
    ("spangap-fleet", &[]),
    (
        "spangap-actuator",
        &[
            "spangap-model",
            "spangap-machine",
            "spangap-sockets",
            "spangap-isolate",
            "spangap-undo",
            "spangap-fleet",
        ],
    ),
    (
        "spangap-agent",
        &[
            "spangap-model",
            "spangap-machine",
            "spangap-wire",
            "spangap-host",
            "spangap-sockets",
            "spangap-fleet",
            "spangap-actuator",
        ],
    ),
    (
        "spangap-cases",
        &[
            "spangap-model",
            "spangap-machine",
            "spangap-meter",
            "spangap-gather",
            "spangap-diagnose",
            "spangap-fleet",
            "spangap-undo",
        ],
    ),
    (
        "spangap-lab",
        &[
            "spangap-model",
            "spangap-machine",
            "spangap-report",
            "spangap-undo",
            "spangap-gather",
            "spangap-diagnose",
        ],
    ),
    (
        "spangap",
        &[
            "spangap-model",
            "spangap-report",
            "spangap-meter",
            "spangap-bench",
            "spangap-wire",
            "spangap-host",
            "spangap-gather",
            "spangap-diagnose",
            "spangap-machine",
            "spangap-isolate",
            "spangap-lab",
            "spangap-sockets",
            "spangap-undo",
            "spangap-actuator",
            "spangap-agent",
            "spangap-cases",
            "spangap-fleet",
            "spangap-meter-bench",
        ],
    ),
    ("spangap-house", &[]),
    ("spangap-meter-bench", &["spangap-model", "spangap-meter"]),
    ("spangap-tank-bench", &[]),
    ("spangap-wire-bench", &["spangap-model", "spangap-wire"]),
    ("spangap-host-bench", &[]),
    ("spangap-isolate-bench", &[]),
    ("spangap-bench-check", &["spangap-bench"]),
];

/// Dependencies reserved for some packages.
pub const RESERVED_DEPENDENCIES: &[(&str, &[&str])] = &[("anyhow", &["spangap"])];

/// Code that accesses the outside world, and where it is allowed.
pub struct Confined {
    /// Description of these paths.
    pub what: &'static str,
    /// Rust paths; a source path that contains one of them matches.
    pub paths: &'static [&'static str],
    /// Folder that the rule applies to.
    pub folder: &'static str,
    /// Exempt files and folders (ending in `/`), relative to the folder.
    pub allowed: &'static [&'static str],
}

const RUNTIME: &[&str] =
    &["tokio", "tokio_stream", "axum", "hyper", "hyper_util", "tonic::transport", "tonic::server", "tower"];
const FILES_AND_SOCKETS: &[&str] =
    &["std::fs", "std::net", "std::os::unix::net", "std::process::Command", "rusqlite", "io::stdin"];
const CLOCK: &[&str] = &["Instant::now", "SystemTime::now", "thread::sleep"];
/// As above, without `std::net`, whose address types are ubiquitous in captures.
const FILES_AND_LIVE_SOCKETS: &[&str] = &[
    "std::fs",
    "std::net::TcpStream",
    "std::net::UdpSocket",
    "std::net::TcpListener",
    "std::os::unix::net",
    "std::process::Command",
    "io::stdin",
    "libc",
];
const METER_IO: &[&str] =
    &["serve/", "history/", "spool/", "kafka/", "clickhouse/", "ingest/file.rs", "export/otlp/"];

/// Where files, sockets, clocks and the async runtime are allowed.
pub const CONFINED: &[Confined] = &[
    Confined { what: "an async runtime", paths: RUNTIME, folder: "crates/model/src/", allowed: &[] },
    Confined {
        what: "a file or socket",
        paths: FILES_AND_SOCKETS,
        folder: "crates/model/src/",
        allowed: &[],
    },
    Confined { what: "a clock", paths: CLOCK, folder: "crates/model/src/", allowed: &[] },
    Confined { what: "an async runtime", paths: RUNTIME, folder: "crates/report/src/", allowed: &[] },
    Confined {
        what: "a file or socket",
        paths: FILES_AND_SOCKETS,
        folder: "crates/report/src/",
        allowed: &[],
    },
    Confined { what: "a clock", paths: CLOCK, folder: "crates/report/src/", allowed: &[] },
    Confined { what: "an async runtime", paths: RUNTIME, folder: "crates/meter/src/", allowed: METER_IO },
    Confined {
        what: "a file or socket",
        paths: FILES_AND_SOCKETS,
        folder: "crates/meter/src/",
        allowed: METER_IO,
    },
    Confined { what: "a clock", paths: CLOCK, folder: "crates/meter/src/", allowed: METER_IO },
    Confined { what: "an async runtime", paths: RUNTIME, folder: "crates/wire/src/", allowed: &[] },
    Confined {
        what: "a file or socket",
        paths: FILES_AND_LIVE_SOCKETS,
        folder: "crates/wire/src/",
        allowed: &["source/"],
    },
    Confined { what: "a clock", paths: CLOCK, folder: "crates/wire/src/", allowed: &["source/"] },
    Confined {
        what: "a file or socket",
        paths: FILES_AND_SOCKETS,
        folder: "crates/isolate/src/",
        allowed: &["journal/", "kernel/"],
    },
    Confined { what: "a clock", paths: CLOCK, folder: "crates/isolate/src/", allowed: &[] },
    Confined { what: "the end of the process", paths: &["process::exit"], folder: "crates/", allowed: &[] },
];

/// The files that may use `unsafe`, each block with a SAFETY line.
pub const UNSAFE_FILES: &[&str] = &[
    "crates/host/src/probes/cost.rs",
    "crates/host/src/probes/intervals/attach.rs",
    "crates/host/src/probes/intervals/ring.rs",
    "crates/host/src/probes/mapping.rs",
    "crates/host/src/probes/packets/blocks.rs",
    "crates/host/src/probes/packets/taps.rs",
    "crates/host/src/probes/stacks/perf_event.rs",
    "crates/isolate/src/kernel/ethtool.rs",
    "crates/lab/src/actors/line/tun.rs",
    "crates/machine/src/freed.rs",
    "crates/meter/src/kafka/library/abi.rs",
    "crates/meter/src/kafka/library/handles.rs",
    "crates/meter/src/kafka/library/mod.rs",
    "crates/meter/src/prefetch.rs",
    "crates/meter/src/serve/unsent.rs",
    "crates/sockets/src/tcp_info.rs",
    "crates/wire/src/source/ring/mod.rs",
    "crates/wire/src/source/ring/socket.rs",
];

/// The files that `machine::facts` reads, by the end of their path. A `}` ends the folder of a process, a
/// thread or a namespace in a format string.
pub const FACTS: &[&str] = &[
    "boot_id",
    "cpu.stat",
    "cpu_manager_state",
    "cpuinfo",
    "interrupts",
    "kernel/hostname",
    "kernel/osrelease",
    "loadavg",
    "meminfo",
    "mountinfo",
    "net/dev",
    "net/tcp",
    "netstat",
    "proc/mounts",
    "proc/self/cgroup",
    "proc/stat",
    "self/schedstat",
    "self/mounts",
    "self/stat",
    "self/status",
    "snmp",
    "softirqs",
    "softnet_stat",
    "system/cpu/online",
    "tcp6",
    "uptime",
    "}/cgroup",
    "}/fd",
    "}/schedstat",
    "}/stat",
    "}/status",
];
/// Other places that may name them, besides tests: their readers, the evidence of traps, which consists of
/// paths, and generated machines.
pub const FACT_PLACES: &[&str] = &[
    "crates/machine/src/",
    "crates/host/src/check/traps/",
    "crates/isolate/src/kernel/modelled/",
    "crates/isolate/src/topology/generated.rs",
];

/// Pairs of files of a crate that still use each other, the first in the order of names first. To be emptied; a new one needs a reason.
pub const CIRCLES: &[(&str, &str)] = &[
    // Protocols contain each other: HTTP/1 hands a tunnel over to whatever follows, TLS what it decrypts.
    ("crates/wire/src/app/conversation.rs", "crates/wire/src/app/http1/mod.rs"),
    ("crates/wire/src/app/conversation.rs", "crates/wire/src/app/tls/mod.rs"),
];

/// Lines above which a file is listed.
pub const LONG_FILE_LINES: usize = 400;
/// Lines above which a file is an error.
pub const MAX_FILE_LINES: usize = 800;
/// Suffixes of the files whose length is limited.
pub const LENGTH_ENDINGS: &[&str] = &[".rs", ".ts", ".go", ".c", ".h", ".sh", ".mjs", "Makefile"];
/// Generated files, whose length is not limited.
pub const GENERATED: &[&str] = &["vmlinux.h", "ping.pb.go", "ping_grpc.pb.go"];

/// Names of files and folders that do not describe their content.
pub const EMPTY_NAMES: &[&str] = &["utils", "util", "common", "helpers", "helper", "manager", "misc"];

/// Macros that mark unfinished work.
pub const UNFINISHED: &[&str] = &["todo!", "unimplemented!", "dbg!"];
/// Rust paths that wait for time instead of for a condition; not allowed in tests.
pub const SLEEPS: &[&str] = &["thread::sleep", "time::sleep", "time::sleep_until"];

/// Hosts of package registries: the choice of one is a setting of the machine. Split, so that this file does
/// not contain any.
pub const REGISTRY_HOSTS: &[&str] = &[
    concat!("crates", ".io"),
    concat!("npmjs", ".org"),
    concat!("npmjs", ".com"),
    concat!("proxy.golang", ".org"),
    concat!("sum.golang", ".org"),
    concat!("pypi", ".org"),
    concat!("deb.debian", ".org"),
    concat!("archive.ubuntu", ".com"),
    concat!("static.rust-lang", ".org"),
];
/// Prefixes of paths that exist on one machine only.
pub const MACHINE_PATHS: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];
/// Files written by other programs or by lawyers, whose text is not checked.
pub const FOREIGN_TEXT: &[&str] = &["Cargo.lock", "package-lock.json", "go.sum", "LICENSE"];

/// Excluded paths: built or fetched files, and git's own.
pub const SKIPPED_PATHS: &[&str] =
    &[".git", "target", "web/node_modules", "web/dist", "fuzz/target", "fuzz/corpus", "fuzz/artifacts"];

/// The only crate sources that may compare text made of words, because other programs wrote it.
pub const FOREIGN_WORDS: &[&str] = &[
    // serde_json, whose errors end in a place.
    "crates/bench/src/method/message.rs",
    "crates/cli/src/commands/capture/trigger.rs",
    "crates/meter/src/ingest/otlp_json.rs",
    "crates/undo/src/journal.rs",
    // Rust's runtime, when memory is exhausted.
    "crates/cases/src/verdict.rs",
    // The kernel's files, its verifier, and ethtool.
    "crates/agent/src/inventory.rs",
    "crates/host/src/kernel/refusal.rs",
    "crates/isolate/src/kernel/ethtool.rs",
    "crates/isolate/src/place.rs",
    "crates/isolate/src/rollback/mod.rs",
    "crates/isolate/src/topology/interfaces.rs",
    "crates/machine/src/facts/cpuinfo.rs",
    "crates/machine/src/facts/stat.rs",
    // SQLite, HTTP, and services that are called as we call the pairs past the limit.
    "crates/meter/src/history/file.rs",
    "crates/meter/src/ingest/named.rs",
    "crates/meter/src/serve/sessions.rs",
    // The format of saved machines.
    "crates/machine/src/lib.rs",
    // Another process of ours, whose complaint is passed on to a person without the program's name.
    "crates/actuator/src/isolate.rs",
];
