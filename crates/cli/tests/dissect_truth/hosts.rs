//! Two hosts on this machine with the delay line between them. The namespaces have no names: they disappear
//! with the processes that hold them, and these end with the test, however it ends.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Time limit for any one condition.
const PATIENCE: Duration = Duration::from_secs(120);
/// The server's address; the client's is one lower.
pub const SERVER: &str = "10.77.0.2";
/// Content of the last packet that the taps capture.
const LAST_WORDS: &[u8] = b"that is all of it";

/// A process that is killed when this value is dropped, if it still runs.
pub struct Ending(pub Child);

impl Ending {
    /// Asks it to end, and waits.
    pub fn end(mut self, signal: &str) {
        let _ = Command::new("kill").args(["-s", signal, &self.0.id().to_string()]).status();
        let _ = self.0.wait();
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Both of them.
pub struct Hosts {
    line: Ending,
    client: Ending,
    server: Ending,
}

/// What is missing to make them; `None` if nothing.
pub fn missing() -> Option<String> {
    let root =
        std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    if !root {
        return Some("network namespaces need root".into());
    }
    if !Path::new("/dev/net/tun").exists() {
        return Some("there is no /dev/net/tun".into());
    }
    let programs = ["ip", "unshare", "nsenter", "dumpcap", "tshark", "bash"];
    programs.into_iter().find(|program| !crate::has(program)).map(|program| format!("no program {program}"))
}

impl Hosts {
    /// Makes them; packets take this long in each direction.
    pub fn new(there_ns: u64, back_ns: u64) -> Hosts {
        let client = host("10.77.0.1");
        let server = host(SERVER);
        let space = |host: &Ending| format!("/proc/{}/ns/net", host.0.id());
        let mut line = Command::new(env!("CARGO_BIN_EXE_spangap"))
            .args(["lab", "actor", "line"])
            .args(["--delay-a", &there_ns.to_string(), "--delay-b", &back_ns.to_string()])
            .args([&space(&client), "line", &space(&server), "line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the delay line starts");
        assert_eq!(first_line(line.stdout.take().expect("it is piped")).0, "ready");
        Hosts { line: Ending(line), client, server }
    }

    /// Keeps the line on this CPU, before everything ordinary there: behind what disturbs the server's CPU, it would delay packets
    /// as the server is meant to be delayed.
    pub fn line_on(&self, cpu: &str) {
        let pid = self.line.0.id().to_string();
        for (program, how) in [("taskset", &["-a", "-p", "-c", cpu][..]), ("chrt", &["-a", "-f", "-p", "5"])]
        {
            let output = Command::new(program).args(how).arg(&pid).output();
            assert!(
                output.unwrap_or_else(|error| panic!("{program}: {error}")).status.success(),
                "{program}"
            );
        }
    }

    /// A command on the client's host.
    pub fn on_client(&self, program: &str) -> Command {
        on(&self.client, program)
    }

    /// A command on the server's host.
    pub fn on_server(&self, program: &str) -> Command {
        on(&self.server, program)
    }

    /// Captures at both ends while `traffic` runs against a target of the stack `rust` with these flags; the
    /// files are client.pcapng and server.pcapng in the folder.
    pub fn captured(
        &self,
        folder: &Path,
        target: &[&str],
        traffic: impl FnOnce(&Hosts, &str),
    ) -> [PathBuf; 2] {
        self.captured_of(folder, target, |hosts, address, _| traffic(hosts, address))
    }

    /// The same; `traffic` also gets the target's process id.
    pub fn captured_of(
        &self,
        folder: &Path,
        target: &[&str],
        traffic: impl FnOnce(&Hosts, &str, u32),
    ) -> [PathBuf; 2] {
        let mut serving = self.on_server(env!("CARGO_BIN_EXE_spangap"));
        serving.args(["target", "--listen", &format!("{SERVER}:0")]).args(target);
        self.captured_from(folder, serving, traffic)
    }

    /// The same with any server that first prints where it listens, as a target does.
    pub fn captured_from(
        &self,
        folder: &Path,
        mut serving: Command,
        traffic: impl FnOnce(&Hosts, &str, u32),
    ) -> [PathBuf; 2] {
        let mut serving =
            serving.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("a server starts");
        let (listening, _said) = first_line(serving.stdout.take().expect("it is piped"));
        let serving = Ending(serving);
        let address = listening.strip_prefix("listening on ").expect("an address").to_owned();
        let files = ["client", "server"].map(|end| folder.join(format!("{end}.pcapng")));
        let taps = [tap(&self.client, &files[0]), tap(&self.server, &files[1])];
        // nsenter has replaced itself by the target.
        traffic(self, &address, serving.0.id());
        let words = String::from_utf8_lossy(LAST_WORDS);
        let sent =
            self.on_client("bash").args(["-c", &format!("echo '{words}' >/dev/udp/{SERVER}/9")]).status();
        assert!(sent.expect("bash starts").success());
        for file in &files {
            until_it_has(file, LAST_WORDS);
        }
        for tap in taps {
            tap.end("INT");
        }
        serving.end("TERM");
        files
    }

    /// Ends them.
    pub fn end(self) {
        self.line.end("TERM");
    }
}

/// A process in a network namespace of its own, with a device `line`.
fn host(address: &str) -> Ending {
    let host =
        Command::new("unshare").args(["-n", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut host = host.expect("unshare starts");
    // Once cat answers, the process is in its namespace.
    host.stdin.as_mut().expect("it is piped").write_all(b"there?\n").expect("it listens");
    assert_eq!(first_line(host.stdout.take().expect("it is piped")).0, "there?");
    let host = Ending(host);
    for arguments in [
        "link set lo up",
        "tuntap add dev line mode tun",
        &format!("address add {address}/24 dev line"),
        "link set line up",
    ] {
        let done = on(&host, "ip").args(arguments.split(' ')).output().expect("ip starts");
        assert!(done.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&done.stderr));
    }
    host
}

fn on(host: &Ending, program: &str) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["-t", &host.0.id().to_string(), "-n", program]);
    command
}

/// Starts capturing on the device `line`.
fn tap(host: &Ending, file: &Path) -> Ending {
    let mut tap = on(host, "dumpcap")
        .args(["-q", "-i", "line", "-w"])
        .arg(file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("dumpcap starts");
    let said = BufReader::new(tap.stderr.take().expect("it is piped"));
    let mut lines = said.lines();
    assert!(lines.any(|line| line.is_ok_and(|line| line.starts_with("File:"))), "dumpcap does not capture");
    // The rest of its output does not matter, but must be read.
    std::thread::spawn(move || lines.for_each(drop));
    Ending(tap)
}

/// The first line without its end, and a reader for the rest.
fn first_line<R: std::io::Read>(from: R) -> (String, BufReader<R>) {
    let (mut line, mut from) = (String::new(), BufReader::new(from));
    from.read_line(&mut line).expect("a line");
    (line.trim_end().to_owned(), from)
}

/// dumpcap writes what it has captured in its own time.
fn until_it_has(file: &Path, words: &[u8]) {
    let (begun, mut read) = (Instant::now(), 0);
    loop {
        let length = std::fs::metadata(file).map_or(0, |file| file.len());
        if length != read {
            read = length;
            let bytes = std::fs::read(file).unwrap_or_default();
            if bytes.windows(words.len()).any(|window| window == words) {
                return;
            }
        }
        assert!(begun.elapsed() < PATIENCE, "{} has no last words after {PATIENCE:?}", file.display());
        std::thread::park_timeout(std::time::Duration::from_millis(1));
    }
}
