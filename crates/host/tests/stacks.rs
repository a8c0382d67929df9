//! Sampled stacks of the running kernel, under loads whose stacks are known.

use spangap_host::kernel::Kernel;
use spangap_host::probes::stacks::{Settings, Stacks};
use spangap_host::report::flame::picture::folded;
use spangap_host::report::flame::{ContextReport, StackReport, StacksReport};
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// A process that is killed when the test ends.
struct Load(Child);

impl Load {
    fn start(command: &mut Command) -> Load {
        Load(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// One system call after another, nearly all of them reads.
    fn reading(cpu: u32) -> Load {
        Load::start(Command::new("taskset").args([
            "-c",
            &cpu.to_string(),
            "dd",
            "if=/dev/zero",
            "of=/dev/null",
            "bs=64k",
        ]))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Why nothing can be tested here; `None` if something can.
fn cannot_run() -> Option<String> {
    if !Kernel::look().may_sample_cpus() {
        return Some("sampling CPUs needs CAP_PERFMON".into());
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    (cpus < 2).then(|| "stacks of two CPUs need two CPUs".into())
}

/// Samples until `enough`.
fn sample(settings: &Settings, enough: impl Fn(&StacksReport) -> bool) -> StacksReport {
    let began = Instant::now();
    let mut round = Duration::from_millis(500);
    loop {
        let mut stacks = Stacks::start(settings).unwrap();
        let until = Instant::now() + round;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            stacks.poll(left.min(POLL)).unwrap();
        }
        let report = StacksReport::new(&stacks.finish().unwrap());
        consistent(&report);
        if enough(&report) || began.elapsed() > DEADLINE {
            return report;
        }
        round *= 2;
    }
}

/// Checks what must hold for every report.
fn consistent(report: &StacksReport) {
    let all = &report.samples;
    assert_eq!(all.received, all.kept + all.application + all.idle, "{all:?}");
    assert_eq!(all.kept, all.softirq + all.hardirq + all.other_processes, "{all:?}");
    assert_eq!(all.kept, report.stacks.iter().map(|stack| stack.samples).sum::<u64>());
    let count = |line: &String| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
    assert_eq!(all.kept, folded(report).iter().map(count).sum::<u64>());
    for stack in &report.stacks {
        assert_eq!(stack.samples, stack.cpus.iter().map(|cpu| cpu.samples).sum::<u64>());
        assert_eq!(stack.samples, stack.current.iter().map(|current| current.samples).sum::<u64>());
    }
    let sum: u64 = report.per_cpu.iter().map(|cpu| cpu.samples.received).sum();
    assert_eq!(all.received, sum);
    // One due sample per CPU may arrive just after the end.
    assert!(all.received <= all.expected + report.per_cpu.len() as u64, "{all:?}");
}

fn of_pid(report: &StacksReport, pid: u32) -> impl Iterator<Item = &StackReport> {
    report.stacks.iter().filter(move |stack| {
        stack.context == ContextReport::Process
            && stack.current.iter().any(|current| current.process.pid == pid)
    })
}

fn has(stack: &StackReport, function: &str) -> bool {
    stack.frames.iter().any(|frame| frame == function)
}

fn settings(cpus: &[u32], not_tgids: &[u32]) -> Settings {
    Settings { cpus: cpus.to_vec(), not_tgids: not_tgids.to_vec(), hz: 999 }
}

#[test]
fn kernel_paths_are_shown_except_the_applications() {
    if let Some(why) = cannot_run() {
        println!("not run: {why}");
        return;
    }
    let load = Load::reading(1);
    let reads = |report: &StacksReport| {
        of_pid(report, load.pid())
            .filter(|stack| has(stack, "vfs_read"))
            .map(|stack| stack.samples)
            .sum::<u64>()
    };
    let report = sample(&settings(&[0, 1], &[]), |report| reads(report) >= 50);
    assert!(reads(&report) >= 50, "{report:#?}");
    for stack in of_pid(&report, load.pid()) {
        assert!(stack.cpus.iter().all(|cpu| cpu.cpu == 1), "pinned to CPU 1: {stack:?}");
        assert_eq!(stack.current[0].process.name.as_deref(), Some("dd"));
    }
    let report = sample(&settings(&[0, 1], &[load.pid()]), |report| report.samples.application >= 50);
    assert!(report.samples.application >= 50, "{:?}", report.samples);
    assert_eq!(of_pid(&report, load.pid()).count(), 0, "{report:#?}");
}

/// Two namespaces with a link between them, removed at the end of the test.
struct Link {
    from: String,
    to: String,
}

fn ip(arguments: &str) -> Result<(), String> {
    let ended = Command::new("ip").args(arguments.split(' ')).output().map_err(|error| error.to_string())?;
    if ended.status.success() {
        Ok(())
    } else {
        Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&ended.stderr).trim()))
    }
}

impl Link {
    /// Packets to `10.77.0.2` are processed on CPU 1, wherever they are sent.
    fn make() -> Result<Link, String> {
        let pid = std::process::id();
        let link = Link { from: format!("stk-a-{pid}"), to: format!("stk-b-{pid}") };
        let Link { from, to } = &link;
        ip(&format!("netns add {from}"))?;
        ip(&format!("netns add {to}"))?;
        ip(&format!("link add v0 netns {from} type veth peer name v1 netns {to}"))?;
        ip(&format!("-n {from} addr add 10.77.0.1/24 dev v0"))?;
        ip(&format!("-n {to} addr add 10.77.0.2/24 dev v1"))?;
        ip(&format!("-n {from} link set v0 up"))?;
        ip(&format!("-n {to} link set v1 up"))?;
        let steer = "echo 2 >/sys/class/net/v1/queues/rx-0/rps_cpus";
        let steered = Command::new("ip").args(["netns", "exec", to, "sh", "-c", steer]).output();
        match steered {
            Ok(ended) if ended.status.success() => Ok(link),
            Ok(ended) => {
                Err(format!("cannot steer packets: {}", String::from_utf8_lossy(&ended.stderr).trim()))
            }
            Err(error) => Err(format!("cannot steer packets: {error}")),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let _ = ip(&format!("netns del {}", self.from));
        let _ = ip(&format!("netns del {}", self.to));
    }
}

/// Environment variable that turns this program into [`sends_packets`].
const SENDS: &str = "SPANGAP_TEST_SENDS";

/// What `packets_...` starts in another namespace: it sends until its standard input closes.
#[test]
fn sends_packets() {
    if std::env::var_os(SENDS).is_none() {
        println!("not run: another test starts it");
        return;
    }
    let socket = UdpSocket::bind("10.77.0.1:0").unwrap();
    let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = over.clone();
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        told.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    while !over.load(std::sync::atomic::Ordering::Relaxed) {
        let _ = socket.send_to(&[0; 64], "10.77.0.2:9");
    }
}

#[test]
fn packets_on_the_applications_cpu_are_shown_without_the_application() {
    if let Some(why) = cannot_run() {
        println!("not run: {why}");
        return;
    }
    let link = match Link::make() {
        Ok(link) => link,
        Err(why) => {
            println!("not run: {why}");
            return;
        }
    };
    let application = Load::reading(1);
    let myself = std::env::current_exe().unwrap();
    let mut sender = Load::start(
        Command::new("ip")
            .args(["netns", "exec", &link.from, "taskset", "-c", "0"])
            .arg(&myself)
            .args(["--exact", "sends_packets"])
            .env(SENDS, "1"),
    );
    let received = |report: &StacksReport, cpu: u32| {
        let stacks = report.stacks.iter().filter(|stack| {
            stack.context == ContextReport::SoftirqAfterInterrupt
                && stack.vector == Some("NET_RX")
                && has(stack, "process_backlog")
        });
        stacks.flat_map(|stack| &stack.cpus).filter(|on| on.cpu == cpu).map(|on| on.samples).sum::<u64>()
    };
    let settings = settings(&[0, 1], &[application.pid()]);
    let report = sample(&settings, |report| received(report, 1) >= 100);
    let (there, elsewhere) = (received(&report, 1), received(&report, 0));
    assert!(there >= 100 && there > 4 * elsewhere, "CPU 1: {there}, CPU 0: {elsewhere}\n{report:#?}");
    assert_eq!(of_pid(&report, application.pid()).count(), 0, "{report:#?}");
    assert!(report.samples.application > 0, "{:?}", report.samples);
    // Its time was taken: it is the interrupted process, and its own frames are cut off.
    let interrupted = report.stacks.iter().filter(|stack| stack.vector == Some("NET_RX"));
    let on_it = interrupted
        .filter(|stack| stack.current.iter().any(|current| current.process.pid == application.pid()))
        .inspect(|stack| assert!(!has(stack, "vfs_read"), "{stack:?}"))
        .count();
    assert!(on_it > 0, "{report:#?}");
    sender.0.stdin.take().unwrap().flush().unwrap();
}

/// The share of a process's samples that were below `vfs_read`, and the number of samples.
struct Share {
    samples: f64,
    share: f64,
}

/// perf's view of a process over this many seconds, and ours over the same time, because what a process does
/// depends on what else the machine does. `Err` has the reason if perf cannot observe it.
fn beside_perf(pid: u32, seconds: u32) -> Result<(Share, Share), String> {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("perf.data");
    let perf = Command::new("perf")
        .args(["record", "-q", "-e", "cpu-clock", "-F", "997", "-g", "--kernel-callchains", "-C", "1", "-o"])
        .arg(&data)
        .args(["sleep", &seconds.to_string()])
        .stderr(Stdio::piped())
        .spawn();
    let mut perf = perf.map_err(|_| "perf is not installed")?;
    let mut stacks = Stacks::start(&settings(&[1], &[])).unwrap();
    let ended = loop {
        stacks.poll(POLL).unwrap();
        if let Some(ended) = perf.try_wait().unwrap() {
            break ended;
        }
    };
    let report = StacksReport::new(&stacks.finish().unwrap());
    consistent(&report);
    if !ended.success() {
        let mut why = String::new();
        perf.stderr.take().unwrap().read_to_string(&mut why).unwrap();
        return Err(format!("perf cannot record here: {}", why.trim()));
    }
    let script = Command::new("perf").args(["script", "-F", "pid,ip,sym", "-i"]).arg(&data).output().unwrap();
    let script = String::from_utf8_lossy(&script.stdout);
    let word = pid.to_string();
    let of_load: Vec<_> =
        script.split("\n\n").filter(|sample| sample.split_whitespace().next() == Some(&word)).collect();
    // During an interrupt, the interrupted process is the current one.
    let of_load: Vec<_> = of_load.into_iter().filter(|sample| !sample.contains("softirq")).collect();
    let samples = of_load.len() as f64;
    let reading = of_load.iter().filter(|sample| sample.contains(" vfs_read")).count() as f64;
    let perf = Share { samples, share: reading / samples };
    let samples = of_pid(&report, pid).map(|stack| stack.samples).sum::<u64>() as f64;
    let of_load = of_pid(&report, pid);
    let reading = of_load.filter(|stack| has(stack, "vfs_read")).map(|stack| stack.samples).sum::<u64>();
    Ok((perf, Share { samples, share: reading as f64 / samples }))
}

#[test]
fn shares_agree_with_perf() {
    if let Some(why) = cannot_run() {
        println!("not run: {why}");
        return;
    }
    let load = Load::reading(1);
    // On a contended CPU, the process gets little of it.
    for seconds in [3, 12, 48] {
        let (perf, ours) = match beside_perf(load.pid(), seconds) {
            Ok(shares) => shares,
            Err(why) => return println!("not run: {why}"),
        };
        println!(
            "vfs_read: perf {:.3} of {}, here {:.3} of {}",
            perf.share, perf.samples, ours.share, ours.samples
        );
        if perf.samples < 200.0 || ours.samples < 200.0 {
            continue;
        }
        // Five times the standard error of the difference: exceeded by chance once in two million runs.
        let share = (perf.share * perf.samples + ours.share * ours.samples) / (perf.samples + ours.samples);
        let error = (share * (1.0 - share) * (1.0 / perf.samples + 1.0 / ours.samples)).sqrt();
        assert!(
            (perf.share - ours.share).abs() <= 5.0 * error,
            "perf {:.3}, here {:.3}, standard error {error:.3}",
            perf.share,
            ours.share
        );
        return;
    }
    panic!("too few samples in 48 s");
}
