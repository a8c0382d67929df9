//! Programs with sockets of their own, in Python: real processes, controlled line by line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A Python program that answers each line with one line.
pub struct Program {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

const LOOP: &str = "
import os, resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
for line in sys.stdin:
    try:
        said = eval(line)
    except Exception as error:
        said = repr(error)
    print(said, flush=True)
";

impl Program {
    /// Starts it; `None`, with a printed reason, where it cannot run.
    pub fn start(before: &[&str]) -> Option<Program> {
        let arguments = [before, &["python3", "-c", LOOP]].concat();
        let mut command = Command::new(arguments[0]);
        command.args(&arguments[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => {
                println!("not run: {arguments:?}: {error}");
                return None;
            }
        };
        let (to, from) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut program = Program { child, to, from };
        match program.try_say("1") {
            Some(said) if said == "1" => Some(program),
            _ => {
                println!("not run: {arguments:?} does not start here");
                None
            }
        }
    }

    /// Evaluates a Python expression there.
    pub fn say(&mut self, expression: &str) -> String {
        self.try_say(expression).expect("the program answers")
    }

    fn try_say(&mut self, expression: &str) -> Option<String> {
        writeln!(self.to, "{expression}").ok()?;
        let mut said = String::new();
        self.from.read_line(&mut said).ok().filter(|length| *length > 0)?;
        Some(said.trim_end().to_owned())
    }

    /// Evaluates an expression whose value is a number.
    pub fn number(&mut self, expression: &str) -> u64 {
        let said = self.say(expression);
        said.parse().unwrap_or_else(|_| panic!("{expression} is {said}"))
    }

    /// Its own process id, not that of a program that wraps it.
    pub fn pid(&mut self) -> u32 {
        self.number("os.getpid()") as u32
    }

    /// Opens `count` connections to itself at an address, stored in the program's `c` and `a`; returns the
    /// listening port.
    pub fn connect_to_itself(&mut self, address: &str, connect: &str, count: usize) -> u16 {
        let family = if address.contains(':') { "socket.AF_INET6" } else { "socket.AF_INET" };
        let made = format!(
            "(globals().__setitem__('l', socket.create_server(('{address}', 0), family={family}, backlog=4096, dualstack_ipv6={})), \
             l.getsockname()[1])[1]",
            if address == "::" { "True" } else { "False" }
        );
        let port = self.number(&made) as u16;
        let opened = format!(
            "globals().update(p=[(socket.create_connection(('{connect}', {port})), l.accept()[0]) for _ in range({count})]) \
             or globals().update(c=[x for x, _ in p], a=[y for _, y in p]) or len(c)"
        );
        assert_eq!(self.number(&opened), count as u64);
        port
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
