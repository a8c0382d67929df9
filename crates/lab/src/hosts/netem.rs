//! A delaying line made by the kernel: netem, in a network namespace between the two hosts.
//!
//! On a host's own device, netem would hold packets before the sender's tap, so that the delay would not be on
//! the wire. Here each host has a cable to a bridge, with netem on the bridge's end of each cable: a packet is
//! captured by its sender when it leaves, delayed, and captured by its receiver when it arrives. A bridge does
//! not modify packets.

use super::{ADDRESSES, DEVICE, Hosts, MAC, ip, run, space};
use crate::LabError;
use crate::actors::line::direction::MOST_PACKETS;
use crate::actors::line::way::Way;
use crate::undo::Undo;
use serde::Deserialize;
use spangap_model::Side;
use std::process::Command;
use std::sync::OnceLock;

/// The bridge, and the suffix of its namespace's name.
const PATH: &str = "path";
/// How to create it: it forwards at once, without a listening phase.
const BRIDGE: &str = "link add name path type bridge forward_delay 0";

/// Statistics of netem for one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Queue {
    /// Packets passed.
    pub packets: u64,
    /// Packets lost for lack of room.
    pub drops: u64,
    /// How often the queue was exceeded.
    pub overlimits: u64,
}

/// Arguments of `tc ... netem` for one direction; `None` if netem does not do exactly what it requires. Rates are not equivalent: netem's
/// include Ethernet headers, and its queue is limited in packets instead of bytes.
pub(super) fn words(way: &Way) -> Option<Vec<String>> {
    let only_takes_its_time = *way == Way::of_delay(way.delay);
    let ns = way.delay.as_nanos();
    let us = match ns % 1000 {
        0 => format!("{}us", ns / 1000),
        part => format!("{}.{part:03}us", ns / 1000),
    };
    let words = ["limit".to_owned(), MOST_PACKETS.to_string(), "delay".to_owned(), us];
    only_takes_its_time.then(|| words.into())
}

impl Hosts {
    /// Connects the hosts by a bridge in a network namespace of its own, with a device towards each host, named
    /// after its side.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn path(&mut self, undo: &mut Undo) -> Result<(), LabError> {
        let path = space(undo, PATH)?;
        let bridge: Vec<&str> = ["-n", &path].into_iter().chain(BRIDGE.split(' ')).collect();
        ip(&bridge)?;
        ip(&["-n", &path, "link", "set", PATH, "up"])?;
        for side in [Side::Client, Side::Server] {
            let (host, mac) = (self.name(side), MAC[side.index()]);
            let end = ["link", "add", DEVICE, "address", mac, "netns", host, "type", "veth"];
            ip(&[&end[..], &["peer", "name", side.name(), "netns", &path]].concat())?;
            ip(&["-n", &path, "link", "set", side.name(), "master", PATH, "up"])?;
        }
        self.addresses()?;
        // Resolving an Ethernet address over the line would cost another round trip.
        for side in [Side::Client, Side::Server] {
            let other = 1 - side.index();
            let words = ["neigh", "replace", ADDRESSES[other], "lladdr", MAC[other]];
            ip(&[&["-n", self.name(side)], &words[..], &["dev", DEVICE, "nud", "permanent"]].concat())?;
        }
        self.path = Some(path);
        Ok(())
    }

    /// Adds netem for traffic to a side: `["delay", "5ms"]`, as in `tc qdisc replace ... netem`. A second call
    /// replaces the first. It vanishes with the namespace.
    ///
    /// # Errors
    /// The kernel has no netem ([`available`]), or `tc` rejects the arguments.
    pub fn netem(&self, to: Side, words: &[String]) -> Result<(), LabError> {
        let mut command = self.tc(&["qdisc", "replace", "dev", to.name(), "root", "netem"]);
        run(command.args(words)).map(drop)
    }

    /// Statistics of netem for traffic to a side.
    ///
    /// # Errors
    /// There is none.
    pub fn queue(&self, to: Side) -> Result<Queue, LabError> {
        let output = run(&mut self.tc(&["-s", "-j", "qdisc", "show", "dev", to.name(), "root"]))?;
        queue(&output.stdout).map_err(|why| LabError::program(format!("netem to the {}", to.name()), why))
    }

    /// # Panics There is no path: a bug of the caller.
    fn tc(&self, words: &[&str]) -> Command {
        let mut command = Command::new("tc");
        command.args(["-n", self.path.as_ref().expect("there is a path")]).args(words);
        command
    }
}

/// Parses `tc -s -j qdisc show` for a device.
fn queue(said: &[u8]) -> Result<Queue, String> {
    #[derive(Deserialize)]
    struct Discipline {
        kind: String,
        #[serde(flatten)]
        queue: Option<Queue>,
    }
    let wrong =
        |why: String| format!("{why}, expected counts of netem: {}", String::from_utf8_lossy(said).trim());
    let all: Vec<Discipline> = serde_json::from_slice(said).map_err(|error| wrong(error.to_string()))?;
    let netem =
        all.into_iter().find(|one| one.kind == "netem").ok_or_else(|| wrong("there is none".into()))?;
    netem.queue.ok_or_else(|| wrong("it says no counts".into()))
}

/// Whether `tc` and the kernel support netem: tested in an unnamed network namespace, which vanishes with the
/// test. The kernel may load a module for it.
pub fn available() -> bool {
    static TRIED: OnceLock<bool> = OnceLock::new();
    *TRIED.get_or_init(|| tried("tc qdisc add dev lo root netem delay 1ms && tc -s -j qdisc show dev lo"))
}

/// Whether a path with netem is possible.
pub fn path_available() -> bool {
    static TRIED: OnceLock<bool> = OnceLock::new();
    available() && *TRIED.get_or_init(|| tried(&format!("ip {BRIDGE}")))
}

fn tried(script: &str) -> bool {
    run(Command::new("unshare").args(["--net", "sh", "-c", script])).is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::line::Line;
    use super::super::tests::output_on;
    use super::super::tests::{attempts, fastest_ms, hosts};
    use super::*;
    use crate::actors::line::way::Count;
    use std::path::Path;
    use std::time::Duration;

    fn line(to_server: Way, to_client: Way) -> Line {
        Line { to_server, to_client, seed: 7 }
    }

    #[test]
    fn netem_is_told_the_delay_of_each_way() {
        let delays = |to_server, to_client| {
            let told = line(Way::of_delay(to_server), Way::of_delay(to_client)).netem().expect("only delays");
            told.map(|words| words.join(" "))
        };
        let (there, back) = (Duration::from_millis(40), Duration::from_nanos(2_000_050));
        assert_eq!(delays(there, back), ["limit 16384 delay 2000.050us", "limit 16384 delay 40000us"]);
        assert_eq!(delays(Duration::ZERO, there), ["limit 16384 delay 40000us", "limit 16384 delay 0us"]);
    }

    #[test]
    fn netem_is_only_for_pure_delays() {
        let way = Way::of_delay(Duration::from_millis(1));
        let some = Duration::from_nanos(1);
        let others = [
            Way { jitter: some, ..way.clone() },
            Way { overtake: true, ..way.clone() },
            Way { spike_every: 3, spike: some, ..way.clone() },
            Way { late: vec![2], late_by: some, ..way.clone() },
            Way { rate_bytes_per_s: Some(1), ..way.clone() },
            Way { loss: 0.1, ..way.clone() },
            Way { drop: vec![1], ..way.clone() },
            Way { twice: vec![1], ..way.clone() },
            Way { swap: vec![1], ..way.clone() },
            Way { clump: some, ..way.clone() },
            Way { count: Count::Syn, ..way.clone() },
        ];
        for other in others {
            assert_eq!(line(other.clone(), way.clone()).netem(), None, "{other:?}");
            assert_eq!(line(way.clone(), other.clone()).netem(), None, "{other:?}");
        }
        assert!(line(way.clone(), way).netem().is_some());
    }

    #[test]
    fn what_tc_says_of_a_queue() {
        const SAID: &str = r#"[{"kind":"noqueue","handle":"0:","root":true,"options":{}},
            {"kind":"netem","handle":"8001:","root":true,"options":{"limit":16384,"delay":{"delay":0.02,"jitter":0}},
            "bytes":9420,"packets":31,"drops":2,"overlimits":3,"requeues":0,"backlog":0,"qlen":0}]"#;
        assert_eq!(queue(SAID.as_bytes()), Ok(Queue { packets: 31, drops: 2, overlimits: 3 }));
        for (said, why) in [
            (r#"[{"kind":"noqueue"}]"#, "there is none"),
            (r#"[{"kind":"netem"}]"#, "no counts"),
            ("qdisc netem 8001: root", "expected"),
        ] {
            let wrong = queue(said.as_bytes()).expect_err("no counts");
            assert!(wrong.contains(why) && wrong.contains(said), "{wrong}");
        }
    }

    /// Hosts with a path between them, and the name of its namespace.
    fn with_path() -> Option<(tempfile::TempDir, Undo, Hosts, String)> {
        let (state, mut undo, mut hosts) = hosts()?;
        hosts.path(&mut undo).expect("it can be made");
        let path = hosts.path.clone().expect("there is one");
        Some((state, undo, hosts, path))
    }

    #[test]
    fn a_packet_passes_the_path_as_it_is_and_the_path_goes_with_the_run() {
        const REFUSED: i32 = 111;
        const TTL: &str = "import socket, sys
listening = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
listening.setsockopt(socket.SOL_IP, 12, 1) # IP_RECVTTL
listening.bind(('10.88.0.2', 9))
print('ready', flush=True)
_, told, _, sender = listening.recvmsg(9, 99)
print(sender[0], int.from_bytes(told[0][2], sys.byteorder))";
        let Some((_state, undo, hosts, path)) = with_path() else { return };
        let file = Path::new("/run/netns").join(&path);
        assert!(file.exists());
        for to in ["server", "10.88.0.2"] {
            let Some(attempts) = attempts(&hosts, to) else { return };
            assert!(attempts.iter().all(|(code, _)| *code == REFUSED), "{to}: {attempts:?}");
        }
        // Nothing on the path decrements the TTL like a router.
        let send =
            "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('10.88.0.2', 9))";
        let said = output_on(&hosts, Side::Server, TTL, || {
            ip(&["netns", "exec", hosts.name(Side::Client), "python3", "-c", send]).expect("it is sent");
        });
        assert_eq!(said, "10.88.0.1 64");
        // The traffic did pass there.
        for side in [Side::Client, Side::Server] {
            let told =
                ip(&["-n", &path, "-s", "-j", "link", "show", "dev", side.name()]).expect("it is there");
            let told: serde_json::Value = serde_json::from_slice(&told.stdout).expect("JSON");
            let packets = |way: &str| told[0]["stats64"][way]["packets"].as_u64().expect("a count");
            assert!(packets("rx") >= 10 && packets("tx") >= 10, "{told}");
        }
        undo.everything().expect("nothing holds it");
        assert!(!file.exists());
    }

    #[test]
    fn netem_on_the_path_delays_one_way_and_counts() {
        let Some((_state, undo, hosts, _path)) = with_path() else { return };
        let delay = ["delay".to_owned(), "50ms".to_owned()];
        let put = hosts.netem(Side::Client, &delay);
        if !available() {
            let why = put.expect_err("it was tried").to_string();
            assert!(why.starts_with("tc -n lab-") && why.contains("netem"), "{why}");
            let none = hosts.queue(Side::Client).expect_err("there is none").to_string();
            assert!(none.contains("there is none"), "{none}");
            println!("not run: this kernel has no netem ({why})");
            return;
        }
        put.expect("it is there");
        let Some(slow) = attempts(&hosts, "server") else { return };
        assert!(fastest_ms(&slow) >= 50.0, "{slow:?}");
        let queue = hosts.queue(Side::Client).expect("its counts");
        assert!(queue.packets >= 5 && queue.drops == 0, "{queue:?}");
        hosts.netem(Side::Client, &["delay".to_owned(), "1ms".to_owned()]).expect("the same again");
        let fast = attempts(&hosts, "server").expect("as before");
        assert!(fastest_ms(&fast) < 50.0, "{fast:?}");
        undo.everything().expect("nothing holds it");
    }
}
