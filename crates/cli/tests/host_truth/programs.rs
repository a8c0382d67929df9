//! Programs that tests start: targets that want the CPU, and programs that take it. They end when their
//! standard input closes, and so with the test, however it ends.

use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Environment variable with the role that this test binary should play.
const ROLE: &str = "SPANGAP_HOST_TRUTH_ROLE";
/// Printed by a program that is about to begin.
const READY: &str = "this program is ready";
/// A program that nobody ends exits after this time.
const LIFETIME: Duration = Duration::from_secs(600);

/// A program that is killed when the test ends.
pub struct Program(Child);

impl Program {
    /// Starts `command` detached from the terminal.
    pub fn start(command: &mut Command) -> Program {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        Program(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Starts this test binary in a role; `before` is the command that wraps it, such as `taskset`.
    pub fn play(role: &str, before: &[&str]) -> Program {
        let itself = std::env::current_exe().expect("the path of the test");
        let [first, rest @ ..] = before else { panic!("nothing leads to the program") };
        let mut command = Command::new(first);
        command.args(rest).arg(itself).args(["--exact", "programs::role", "--nocapture"]);
        let mut program = Program::start(command.env(ROLE, role));
        let lines = BufReader::new(program.0.stdout.take().expect("a pipe")).lines();
        let ready = lines.map_while(Result::ok).any(|line| line.contains(READY));
        assert!(ready, "{role}: ended before it was ready");
        program
    }

    /// The target: works for a millisecond and sleeps for a millisecond, repeatedly, on [`crate::CPU`].
    pub fn target(before: &[&str]) -> Program {
        let cpu = crate::CPU.to_string();
        Program::play("target", &[&["taskset", "-c", &cpu], before].concat())
    }

    /// A target that is busy with the loopback.
    pub fn loopback(before: &[&str]) -> Program {
        let cpu = crate::CPU.to_string();
        Program::play("loopback", &[&["taskset", "-c", &cpu], before].concat())
    }

    /// An always busy neighbour on the target's CPU.
    pub fn neighbour(nice: &str) -> Program {
        let cpu = crate::CPU.to_string();
        let dd = ["dd", "if=/dev/zero", "of=/dev/null", "bs=64k"];
        let program = Program::start(Command::new("taskset").args(["-c", &cpu, "nice", "-n", nice]).args(dd));
        // Its name is dd only after `exec`.
        let comm = || std::fs::read_to_string(format!("/proc/{}/comm", program.pid())).unwrap_or_default();
        wait_until("dd runs", || comm().trim() == "dd");
        program
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// How long its threads have run, and have waited on run queues, as the kernel counts it, in nanoseconds.
    pub fn accounts(&self) -> (u64, u64) {
        let mut sums = (0, 0);
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).expect("its threads");
        for task in tasks.flatten() {
            let text = std::fs::read_to_string(task.path().join("schedstat")).expect("its schedstat");
            let mut words = text.split_ascii_whitespace().map(|word| word.parse::<u64>().expect("a number"));
            sums.0 += words.next().expect("time run");
            sums.1 += words.next().expect("time waited");
        }
        sums
    }

    /// Sends it a signal.
    pub fn signal(&self, name: &str) {
        let done = Command::new("kill").args(["-s", name, &self.pid().to_string()]).status();
        assert!(done.expect("kill starts").success(), "kill -s {name}");
    }

    /// The letter of its state in `/proc/PID/stat`.
    pub fn state(&self) -> Option<char> {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).ok()?;
        text.rsplit_once(") ")?.1.chars().next()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for a condition.
pub fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Not a test: the program that this binary becomes when started in a role.
#[test]
fn role() {
    let Ok(role) = std::env::var(ROLE) else {
        println!("not run: a program that other tests start");
        return;
    };
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::abort();
    });
    println!("{READY}");
    let end = Instant::now() + LIFETIME;
    match role.split_once(' ') {
        None if role == "target" => work(end),
        None if role == "loopback" => loopback(end),
        None if role == "lock" => lock(end),
        None if role == "pipe" => pipe(end),
        None if role == "idle" => idle(end),
        Some(("fsync", path)) => fsync(path, end),
        Some(("flock", path)) => flock(path, end),
        Some(("echo", port)) => echo(port.parse().expect("a port")),
        Some(("ask", port)) => ask(port.parse().expect("a port"), end),
        Some(("flood", to)) => flood(to, end),
        _ => panic!("no such role: {role}"),
    }
}

fn work(end: Instant) {
    const PHASE: Duration = Duration::from_millis(1);
    while Instant::now() < end {
        let until = Instant::now() + PHASE;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        std::thread::park_timeout(PHASE);
    }
}

/// Sends packets to itself, with pauses.
fn loopback(end: Instant) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.connect(socket.local_addr().expect("its address")).expect("itself");
    let mut packet = [0; 64];
    while Instant::now() < end {
        for _ in 0..100 {
            socket.send(&packet).expect("sent");
            socket.recv(&mut packet).expect("received");
        }
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Two threads that contend for one mutex, and sleep while they hold it.
fn lock(end: Instant) {
    let mutex = Arc::new(Mutex::new(()));
    let work = |mutex: Arc<Mutex<()>>| {
        move || {
            while Instant::now() < end {
                let held = mutex.lock().expect("nobody panics");
                std::thread::park_timeout(Duration::from_millis(5));
                drop(held);
                std::thread::park_timeout(Duration::from_micros(100));
            }
        }
    };
    let start = |name: &str| {
        std::thread::Builder::new().name(name.into()).spawn(work(mutex.clone())).expect("a thread")
    };
    let threads = [start("lock-a"), start("lock-b")];
    threads.into_iter().for_each(|thread| thread.join().expect("it ends"));
}

/// Occasionally writes a line into a pipe that `cat` reads.
fn pipe(end: Instant) {
    let mut cat =
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat starts");
    let mut to = cat.stdin.take().expect("a pipe");
    while Instant::now() < end && to.write_all(b"line\n").is_ok() {
        std::thread::park_timeout(Duration::from_millis(2));
    }
    drop(to);
    cat.wait().expect("it ends with its pipe");
}

/// Waits for packets that never come, and for time to pass.
fn idle(end: Instant) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_millis(3))).expect("a timeout");
    std::thread::spawn(move || {
        while Instant::now() < end {
            std::thread::park_timeout(Duration::from_millis(10));
        }
    });
    while Instant::now() < end {
        let _ = socket.recv(&mut [0; 8]);
    }
}

fn fsync(path: &str, end: Instant) {
    let mut file = std::fs::File::create(path).expect("a file");
    while Instant::now() < end {
        file.write_all(&[0; 4096]).expect("written");
        file.sync_all().expect("synced");
        if file.metadata().expect("a length").len() > 1 << 20 {
            file.set_len(0).expect("cut");
            file.rewind().expect("from the begin");
        }
    }
}

/// Locks a file, and sleeps while it has the lock.
fn flock(path: &str, end: Instant) {
    let file = std::fs::File::create(path).expect("a file");
    while Instant::now() < end {
        file.lock().expect("a lock");
        std::thread::park_timeout(Duration::from_millis(5));
        file.unlock().expect("it was locked");
        std::thread::park_timeout(Duration::from_micros(100));
    }
}

/// Sends back what comes on one connection after the other.
fn echo(port: u16) {
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("a port");
    for mut stream in listener.incoming().flatten() {
        stream.set_nodelay(true).expect("an option");
        let mut bytes = [0; 64];
        while stream.read_exact(&mut bytes).is_ok() && stream.write_all(&bytes).is_ok() {}
    }
}

/// Asks one question after the other.
fn ask(port: u16, end: Instant) {
    let mut stream = loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => break stream,
            Err(_) => std::thread::yield_now(),
        }
    };
    stream.set_nodelay(true).expect("an option");
    let mut bytes = [0; 64];
    while Instant::now() < end {
        stream.write_all(&bytes).expect("sent");
        stream.read_exact(&mut bytes).expect("received");
    }
}

fn flood(to: &str, end: Instant) {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.connect(to).expect("an address");
    while Instant::now() < end {
        for _ in 0..100 {
            // Nobody listens, so the kernel may report an error at the next send.
            let _ = socket.send(&[0; 64]);
        }
    }
}
