//! Two hosts on this machine, each with a link to the other and one to this test; or two pods of one node.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Time limit for any one condition.
pub const PATIENCE: Duration = Duration::from_secs(180);
pub const CLIENT: &str = "10.215.0.1";
pub const SERVER: &str = "10.215.0.2";

/// A process that is killed when this value is dropped, if it still runs.
pub struct Ending(pub Child);

impl Drop for Ending {
    fn drop(&mut self) {
        // Both fail if it has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Ending {
    /// Asks it to end, and returns its exit code.
    pub fn end(mut self, signal: &str) -> Option<i32> {
        let _ = Command::new("kill").args(["-s", signal, &self.0.id().to_string()]).status();
        self.0.wait().expect("it can be waited for").code()
    }
}

/// Unnamed namespaces: they and their links disappear with the processes that hold them.
pub struct Stage {
    client: Ending,
    server: Ending,
    /// The node of both, if they are pods.
    node: Option<Ending>,
    /// Third octet of the addresses of the links to this test.
    octets: [u32; 2],
}

static STAGES: AtomicU32 = AtomicU32::new(0);

pub fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
    since.as_nanos() as i64
}

pub fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        thread::park_timeout(Duration::from_millis(10));
    }
}

fn ip(words: &[&str]) {
    let done = Command::new("ip").args(words).output().expect("ip starts");
    assert!(done.status.success(), "ip {}: {}", words.join(" "), String::from_utf8_lossy(&done.stderr));
}

fn host() -> Ending {
    let child = Command::new("unshare")
        .args(["--net", "bash", "-c", "ip link set lo up; echo ready; read word"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = child.expect("unshare starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    Ending(child)
}

/// Whether namespaces can be made here; otherwise a printed reason.
fn is_possible() -> bool {
    let root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let has = |program: &str| {
        Command::new("sh")
            .args(["-c", &format!("command -v {program} >/dev/null")])
            .status()
            .is_ok_and(|status| status.success())
    };
    let missing = ["ip", "unshare", "nsenter", "bash"].into_iter().find(|program| !has(program));
    if !root || missing.is_some() {
        println!("not run: needs root and the programs ip, unshare, nsenter and bash; missing: {missing:?}");
        return false;
    }
    true
}

impl Stage {
    fn unlinked(node: Option<Ending>) -> Stage {
        let number = STAGES.fetch_add(1, Relaxed);
        let unique = std::process::id() * 8 + number * 2;
        let octets = [unique % 250, (unique + 1) % 250];
        Stage { client: host(), server: host(), node, octets }
    }

    fn pid(&self, side: &str) -> String {
        self.holder(side).0.id().to_string()
    }

    fn ip_on(&self, side: &str, words: &str) {
        let done = self.on(side, "ip").args(words.split(' ')).output().expect("ip starts");
        let error = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "ip {words} on the {side}: {error}");
    }

    /// Links a side to this test.
    fn link(&self, side: &str) {
        let octet = self.octet(side);
        let device = format!("ag{octet}x{}", std::process::id() % 100_000);
        ip(&["link", "add", &device, "type", "veth", "peer", "meter", "netns", &self.pid(side)]);
        ip(&["addr", "add", &format!("10.216.{octet}.1/24"), "dev", &device]);
        ip(&["link", "set", &device, "up"]);
        self.ip_on(side, &format!("addr add 10.216.{octet}.2/24 dev meter"));
        self.ip_on(side, "link set meter up");
    }

    fn octet(&self, side: &str) -> u32 {
        self.octets[usize::from(side == "server")]
    }

    /// Two hosts. `None`, with a printed reason, where no namespaces can be made.
    pub fn new() -> Option<Stage> {
        if !is_possible() {
            return None;
        }
        let stage = Stage::unlinked(None);
        let [client, server] = ["client", "server"].map(|side| stage.pid(side));
        ip(&["link", "add", "eth0", "netns", &client, "type", "veth", "peer", "eth0", "netns", &server]);
        for (side, address) in [("client", CLIENT), ("server", SERVER)] {
            stage.ip_on(side, &format!("addr add {address}/24 dev eth0"));
            stage.ip_on(side, "link set eth0 up");
            stage.link(side);
        }
        Some(stage)
    }

    /// Two pods of one node, each behind a veth of its own; the node alone has a link to this test.
    pub fn of_one_node() -> Option<Stage> {
        if !is_possible() {
            return None;
        }
        let stage = Stage::unlinked(Some(host()));
        let node = stage.pid("node");
        for (side, address) in [("client", CLIENT), ("server", SERVER)] {
            let veth = format!("veth-{side}");
            ip(&[
                "link",
                "add",
                "eth0",
                "netns",
                &stage.pid(side),
                "type",
                "veth",
                "peer",
                &veth,
                "netns",
                &node,
            ]);
            stage.ip_on(side, &format!("addr add {address}/32 dev eth0"));
            stage.ip_on(side, "link set eth0 up");
            stage.ip_on("node", &format!("addr add 169.254.1.1/32 dev {veth}"));
            stage.ip_on("node", &format!("link set {veth} up"));
            stage.ip_on("node", &format!("route add {address}/32 dev {veth}"));
            stage.ip_on(side, "route add 169.254.1.1 dev eth0 scope link");
            stage.ip_on(side, "route add default via 169.254.1.1");
        }
        let forward = ["-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"];
        assert!(stage.on("node", "sh").args(forward).status().expect("sh starts").success());
        stage.link("node");
        Some(stage)
    }

    fn holder(&self, side: &str) -> &Ending {
        match side {
            "node" => self.node.as_ref().expect("the two are pods"),
            "client" => &self.client,
            _ => &self.server,
        }
    }

    /// Inode of the network namespace of a side.
    pub fn netns(&self, side: &str) -> u64 {
        std::fs::metadata(format!("/proc/{}/ns/net", self.holder(side).0.id())).expect("it is there").ino()
    }

    /// A command to run on one side.
    pub fn on(&self, side: &str, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args([&format!("--net=/proc/{}/ns/net", self.holder(side).0.id()), program]);
        command
    }

    /// The same with the `/sys` of its network namespace, and this machine's control groups below it.
    pub fn on_with_sys(&self, side: &str, program: &str) -> Command {
        const OWN_SYS: &str = "exec 9</sys/fs/cgroup && mount -t sysfs sysfs /sys && \
            mount --no-canonicalize --rbind /proc/self/fd/9 /sys/fs/cgroup && exec 9<&- && exec \"$@\"";
        let mut command = self.on(side, "unshare");
        command.args(["--mount", "sh", "-c", OWN_SYS, "sh", program]);
        command
    }

    /// URL of a port of this test, seen from a side.
    pub fn url(&self, side: &str, port: u16) -> String {
        format!("http://10.216.{}.1:{port}", self.octet(side))
    }

    /// An agent on one side. Its output becomes the test's.
    pub fn agent(&self, side: &'static str, port: u16, flags: &[&str]) -> Ending {
        let mut child = self
            .on_with_sys(side, env!("CARGO_BIN_EXE_spangap"))
            .args(["agent", "--meter", &self.url(side, port), "--cpu", "100%"])
            .args(flags)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("an agent starts");
        let said = BufReader::new(child.stderr.take().expect("it is piped"));
        thread::spawn(move || {
            said.lines().for_each(|line| println!("agent of the {side}: {}", line.expect("text")))
        });
        Ending(child)
    }

    /// A target on the server's side, and its address.
    pub fn target(&self) -> (Ending, String) {
        self.target_at("server", SERVER)
    }

    pub fn target_at(&self, side: &str, address: &str) -> (Ending, String) {
        let mut child = self
            .on(side, env!("CARGO_BIN_EXE_spangap"))
            .args(["target", "--listen", &format!("{address}:0")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a target starts");
        let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let line = lines.next().expect("a line").expect("text");
        let address = line.strip_prefix("listening on ").expect("an address").to_owned();
        thread::spawn(move || lines.for_each(drop));
        (Ending(child), address)
    }

    /// A tank that calls over this many connections without TCP_NODELAY until it is ended.
    pub fn tank(&self, address: &str, connections: u32) -> Ending {
        let channels = format!("pool:{connections}");
        let child = self
            .on("client", env!("CARGO_BIN_EXE_spangap"))
            .args(["tank", address, "--rate", "40", "--nodelay", "off", "--channels", &channels])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("a tank starts");
        Ending(child)
    }

    /// Makes this many calls, one after the other, on one connection.
    pub fn call(&self, address: &str, calls: u32) {
        self.call_from("client", address, calls);
    }

    pub fn call_from(&self, side: &str, address: &str, calls: u32) {
        let mut client = self
            .on(side, env!("CARGO_BIN_EXE_spangap"))
            .args([
                "client",
                "--stack=rust",
                "--call=unary",
                "--channels=shared",
                "--schedule=closed",
                "--threads=1",
            ])
            .args(["--request-bytes=0", "--response-bytes=target", "--think-ns=target", "--nodelay=on"])
            .args(["--split-writes=off", "--timeout-ns=10000000000", "--warmup-ns=0", "--duration-ns=0"])
            .args(["--trace=on", "--records=none", "--slow-ns=0", "--record-file=", "--in-flight=1"])
            .args([format!("--target={address}"), format!("--calls={calls}")])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("a client starts");
        // Standard input is the client's life line: it stays open until the client has ended.
        let mut life = client.stdin.take().expect("it is piped");
        life.write_all(b"go\n").expect("it listens");
        assert!(client.wait().expect("it ends").success());
    }
}
