//! Network interfaces: their location, their queues, and their interrupts.
//!
//! `/sys/class/net/IF` is a link to the interface's folder below its device, so its target contains the PCI
//! function, even for an interface whose device is a child of one (virtio).

use super::reading::Reading;
use super::{Interface, InterfaceIrq, Irq, Queues, RxQueue, TxQueue};
use spangap_machine::{FactError, Known};

const NET: &str = "/sys/class/net";

/// Reads all interfaces except `lo`.
pub(super) fn read(reading: &mut Reading, irqs: &[Irq]) -> Vec<Interface> {
    let mut names = reading.keep(reading.files.list(NET)).unwrap_or_default();
    names.retain(|name| name != "lo" && name != "bonding_masters");
    names.iter().map(|name| one(reading, irqs, name, &names)).collect()
}

fn one(reading: &mut Reading, irqs: &[Irq], name: &str, all: &[String]) -> Interface {
    let at = format!("{NET}/{name}");
    let device = Device::of(reading, name);
    let queues = reading.names(&format!("{at}/queues"));
    let numbered = |kind| queues.iter().filter_map(move |queue| queue.strip_prefix(kind)?.parse().ok());
    let rx = numbered("rx-").map(|queue: u32| RxQueue {
        queue,
        rps_cpus: reading.mask(&format!("{at}/queues/rx-{queue}/rps_cpus")),
        rps_flow_cnt: reading.number(&format!("{at}/queues/rx-{queue}/rps_flow_cnt")),
    });
    let rx = rx.collect();
    let tx = numbered("tx-").map(|queue: u32| TxQueue {
        queue,
        xps_cpus: reading.mask(&format!("{at}/queues/tx-{queue}/xps_cpus")),
    });
    let tx = tx.collect();
    let folder = device.face.as_deref().unwrap_or(&at);
    let lower =
        reading.names(folder).into_iter().filter_map(|name| Some(name.strip_prefix("lower_")?.to_owned()));
    Interface {
        name: name.to_owned(),
        driver: device.driver,
        pci: device.pci,
        node: device.node,
        up: is_up(reading, &at),
        queues: reading.parsed(&format!("/ethtool/{name}"), channels).flatten(),
        irqs: of_interface(irqs, name, device.name.as_deref(), &device.irqs, all),
        rx,
        tx,
        rx_packets: reading.number(&format!("{at}/statistics/rx_packets")),
        threaded: reading.number::<u32>(&format!("{at}/threaded")).is_some_and(|threaded| threaded != 0),
        lower: lower.collect(),
    }
}

/// The device behind an interface.
#[derive(Default)]
struct Device {
    /// Target of the interface's link.
    face: Option<String>,
    /// `virtio2`, `0000:3b:00.0`; none for virtual interfaces such as veth.
    name: Option<String>,
    driver: Option<String>,
    pci: Option<String>,
    node: Option<u32>,
    /// Interrupts of the PCI function.
    irqs: Vec<u32>,
}

impl Device {
    fn of(reading: &mut Reading, interface: &str) -> Device {
        let at = format!("{NET}/{interface}");
        let face = reading.optional(reading.files.link(&at)).map(|to| beside(&at, &to));
        let folder = face.as_deref().and_then(|face| face.rsplit_once("/net/")).map(|(folder, _)| folder);
        let (name, driver, function) = match folder {
            Some("/sys/devices/virtual") => return Device { face, ..Device::default() },
            Some(folder) => {
                let driver = reading.link_name(&format!("{folder}/driver"));
                (folder.rsplit('/').next().map(str::to_owned), driver, pci_function(folder))
            }
            // A copy without such a link may have these.
            None => {
                let name = reading.link_name(&format!("{at}/device"));
                let driver = reading.link_name(&format!("{at}/device/driver"));
                (name, driver, Some(format!("{at}/device")))
            }
        };
        let Some(function) = function else { return Device { face, name, driver, ..Device::default() } };
        let pci = [&function, name.as_deref().unwrap_or_default()]
            .iter()
            .filter_map(|path| path.rsplit('/').next())
            .find(|part| is_pci_address(part))
            .map(str::to_owned);
        let node: Option<i64> = reading.number(&format!("{function}/numa_node"));
        let irqs = reading.names(&format!("{function}/msi_irqs"));
        Device {
            face,
            name,
            driver,
            pci,
            // -1 if the firmware does not say.
            node: node.and_then(|node| u32::try_from(node).ok()),
            irqs: irqs.iter().filter_map(|irq| irq.parse().ok()).collect(),
        }
    }
}

/// Folder of the PCI function that a device is, or is a child of.
fn pci_function(device: &str) -> Option<String> {
    let (at, _) = device.match_indices('/').rfind(|(at, _)| is_pci_address(next_part(device, *at)))?;
    let end = at + 1 + next_part(device, at).len();
    // Interrupts of a USB controller do not belong to the interface.
    let child = &device[end..];
    (!child.contains("/usb")).then(|| device[..end].to_owned())
}

fn next_part(path: &str, slash: usize) -> &str {
    path[slash + 1..].split('/').next().unwrap_or_default()
}

/// `0000:3b:00.0`.
fn is_pci_address(part: &str) -> bool {
    let fields: Vec<&str> = part.split([':', '.']).collect();
    let hex = |field: &&str| !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_hexdigit());
    fields.len() == 4 && part.matches(':').count() == 2 && fields.iter().all(hex)
}

/// Resolves the target of the link at `path`.
fn beside(path: &str, to: &str) -> String {
    let mut parts: Vec<&str> = match to.starts_with('/') {
        true => Vec::new(),
        false => path.split('/').filter(|part| !part.is_empty()).collect(),
    };
    parts.pop();
    for part in to.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    format!("/{}", parts.join("/"))
}

/// Whether it is up and not known to lack a link: veth and tun report `unknown`.
fn is_up(reading: &mut Reading, at: &str) -> bool {
    let flags = reading.parsed(&format!("{at}/flags"), |path, text| {
        let hex = text.trim().strip_prefix("0x").and_then(|hex| u32::from_str_radix(hex, 16).ok());
        hex.ok_or_else(|| FactError::malformed(path, 0, text, "flags, such as 0x1003"))
    });
    let state = reading.text(&format!("{at}/operstate"));
    let running = |state: &str| matches!(state.trim(), "up" | "unknown");
    match (flags, state) {
        (Some(flags), Some(state)) => flags & 1 == 1 && running(&state),
        (Some(flags), None) => flags & 1 == 1,
        (None, state) => state.as_deref().is_some_and(running),
    }
}

/// Parses the output of `ethtool -l`; `None` for an interface without combined queues.
fn channels(path: &str, text: &str) -> Known<Option<Queues>> {
    let mut found = [None, None];
    let mut section = None;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.starts_with("Pre-set maximums") {
            section = Some(0);
        } else if line.starts_with("Current hardware settings") {
            section = Some(1);
        } else if let Some(value) = line.strip_prefix("Combined:") {
            let bad =
                || FactError::malformed(path, at, line, "a number of combined queues, below its heading");
            let value = match value.trim() {
                "n/a" => 0,
                value => value.parse::<u32>().map_err(|_| bad())?,
            };
            found[section.ok_or_else(bad)?] = Some(value);
        }
    }
    match found {
        [Some(0), _] => Ok(None),
        [Some(most), Some(now)] => Ok(Some(Queues { now, most })),
        _ => Err(FactError::malformed(path, 0, text, "the combined queues at most and now, of ethtool -l")),
    }
}

/// Interrupts of an interface: those of its PCI function or, if that lists none, those labelled with its own or
/// its device's name.
fn of_interface(
    irqs: &[Irq],
    name: &str,
    device: Option<&str>,
    listed: &[u32],
    all: &[String],
) -> Vec<InterfaceIrq> {
    let words = |irq: &Irq| -> Vec<String> { irq.name.split([' ', ',']).map(str::to_owned).collect() };
    let ours = |word: &str| belongs(word, name) || device.is_some_and(|device| belongs(word, device));
    // One function may have several interfaces, each with interrupts labelled with its name.
    let of_another =
        |word: &str| all.iter().any(|other| other != name && belongs(word, other)) && !belongs(word, name);
    let is_its = |irq: &&Irq| match listed.is_empty() {
        false => listed.contains(&irq.number) && !words(irq).iter().any(|word| of_another(word)),
        true => words(irq).iter().any(|word| ours(word)),
    };
    let queue = |irq: &Irq| words(irq).iter().find_map(|word| queue_of(word, name));
    let mut found: Vec<InterfaceIrq> =
        irqs.iter().filter(is_its).map(|irq| InterfaceIrq { irq: irq.number, queue: queue(irq) }).collect();
    // A device with a single interrupt does not name the queue.
    if let [only] = found.as_mut_slice() {
        only.queue = only.queue.or(Some(0));
    }
    found.sort_by_key(|irq| (irq.queue.is_none(), irq.queue, irq.irq));
    found
}

/// `eth0-TxRx-1` and `ice-eth0-TxRx-1` belong to `eth0`, not to `eth`.
fn belongs(word: &str, name: &str) -> bool {
    let end = |rest: &str| rest.is_empty() || rest.starts_with(['-', '.', ':', '@']);
    word.match_indices(name).any(|(at, _)| {
        let head = &word[..at];
        (head.is_empty() || head.ends_with(['-', ':', '@'])) && end(&word[at + name.len()..])
    })
}

/// Words that drivers put before the queue number in interrupt names.
const QUEUE_WORDS: [&str; 12] =
    ["rx", "tx", "txrx", "rxtx", "input", "output", "comp", "fp", "q", "queue", "blk", "block"];

/// The queue of an interrupt, from its name: `eth0-TxRx-3`, `virtio2-input.3`, `mlx5_comp3@pci:...`,
/// `eth0-q3-rx`, `eth0-3`.
fn queue_of(name: &str, interface: &str) -> Option<u32> {
    let name = name.split('@').next().unwrap_or(name);
    // Vectors of flow filters are not queues.
    if name == interface || name.contains("fdir") {
        return None;
    }
    let lower = name.to_ascii_lowercase();
    // Xen puts the direction last.
    let head = lower.strip_suffix("-tx").or_else(|| lower.strip_suffix("-rx")).unwrap_or(&lower);
    let stem = head.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = head[stem.len()..].parse().ok()?;
    let stem = stem.trim_end_matches(['-', '.', '_', ':']);
    let last = stem.rsplit(['-', '.', '_', ':']).next().unwrap_or(stem);
    let named_after = stem == interface.to_ascii_lowercase() || stem == "mlx4";
    (named_after || QUEUE_WORDS.contains(&last)).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read, told};
    use super::*;

    #[test]
    fn queues_from_driver_names() {
        let cases = [
            ("eth0-TxRx-3", Some(3)),
            ("i40e-eth0-TxRx-3", Some(3)),
            ("ice-eth0-TxRx-12", Some(12)),
            ("ens5-Tx-Rx-3", Some(3)),
            ("eth0-rx-1", Some(1)),
            ("eth0-tx-1", Some(1)),
            ("eth0-rxtx-1", Some(1)),
            ("eth0-fp-2", Some(2)),
            ("eth0-3", Some(3)),
            ("eth0-q2-tx", Some(2)),
            ("virtio2-input.3", Some(3)),
            ("virtio2-output.0", Some(0)),
            ("mlx5_comp11@pci:0000:3b:00.0", Some(11)),
            ("mlx4-5@0000:04:00.0", Some(5)),
            ("mana_q4@pci:7870:00:00.0", Some(4)),
            ("gve-ntfy-blk7@pci:0000:00:04.0", Some(7)),
            ("eth0-ntfy-block.7", Some(7)),
            ("eth0", None),
            ("virtio2", None),
            ("virtio2-config", None),
            ("virtio2-control", None),
            ("mlx5_async0@pci:0000:3b:00.0", None),
            ("ena-mgmnt@pci:0000:00:05.0", None),
            ("i40e-0000:3b:00.0:misc", None),
            ("i40e-0000:3b:00.0:fdir-TxRx-0", None),
            ("eth0-event-4", None),
            ("", None),
            ("7", None),
        ];
        for (name, queue) in cases {
            assert_eq!(queue_of(name, "eth0"), queue, "{name}");
        }
        assert!(
            belongs("eth0-TxRx-1", "eth0") && belongs("ice-eth0-TxRx-1", "eth0") && belongs("eth0", "eth0")
        );
        assert!(!belongs("eth01-TxRx-1", "eth0") && !belongs("xeth0-1", "eth0") && !belongs("eth0", "eth"));
    }

    /// A machine with these interrupts, one per line, and these files.
    fn machine(irqs: &[(u32, &str)], files: &str) -> super::super::Topology {
        let lines: String =
            irqs.iter().map(|(irq, name)| format!("{irq}: 1 PCI-MSI 1-edge      {name}\n")).collect();
        read(&format!("=== /sys/devices/system/cpu/online\n0\n=== /proc/interrupts\n CPU0\n{lines}{files}"))
    }

    fn irqs(interface: &Interface) -> Vec<(u32, Option<u32>)> {
        interface.irqs.iter().map(|irq| (irq.irq, irq.queue)).collect()
    }

    #[test]
    fn a_pci_device() {
        let machine = machine(
            &[
                (24, "mlx5_async0@pci:0000:3b:00.0"),
                (26, "mlx5_comp0@pci:0000:3b:00.0"),
                (25, "mlx5_comp1@pci:0000:3b:00.0"),
                (27, "nvme0q0"),
            ],
            "=== /sys/class/net : eth0 lo bonding_masters\n\
             === /sys/class/net/eth0 -> ../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/net/eth0\n\
             === /sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/driver -> ../../../../bus/pci/drivers/mlx5_core\n\
             === /sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/numa_node\n1\n\
             === /sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0/msi_irqs : 24 25 26\n\
             === /sys/class/net/eth0/flags\n0x1003\n=== /sys/class/net/eth0/operstate\nup\n\
             === /sys/class/net/eth0/threaded\n1\n\
             === /sys/class/net/eth0/queues/rx-[0,10,2]/rps_cpus\n00,00000002\n\
             === /sys/class/net/eth0/queues/rx-[0,10,2]/rps_flow_cnt\n4096\n\
             === /sys/class/net/eth0/queues/tx-0/xps_cpus\n1\n\
             === /ethtool/eth0\nChannel parameters for eth0:\nPre-set maximums:\nRX:\t\tn/a\nTX:\t\tn/a\nOther:\t\tn/a\n\
             Combined:\t63\nCurrent hardware settings:\nRX:\t\tn/a\nTX:\t\tn/a\nOther:\t\tn/a\nCombined:\t2\n",
        );
        let [eth0] = machine.interfaces.as_slice() else { panic!("{:?}", machine.interfaces) };
        assert_eq!(eth0.driver.as_deref(), Some("mlx5_core"));
        assert_eq!((eth0.pci.as_deref(), eth0.node), (Some("0000:3b:00.0"), Some(1)));
        assert_eq!(irqs(eth0), [(26, Some(0)), (25, Some(1)), (24, None)]);
        assert_eq!((eth0.up, eth0.threaded, eth0.queues), (true, true, Some(Queues { now: 2, most: 63 })));
        let rx: Vec<u32> = eth0.rx.iter().map(|queue| queue.queue).collect();
        assert_eq!(rx, [0, 2, 10]);
        assert_eq!(eth0.rx[0].rps_cpus.as_ref().unwrap().to_string(), "1");
        assert_eq!((eth0.rx[0].rps_flow_cnt, eth0.tx.len()), (Some(4096), 1));
        assert!(
            !machine.unknown.iter().any(|error| error.to_string().contains("/class/net")),
            "{:?}",
            machine.unknown
        );
    }

    #[test]
    fn a_virtio_device_has_the_node_and_the_interrupts_of_its_pci_function() {
        let names = [
            (37, "virtio2-config"),
            (38, "virtio2-input.0"),
            (39, "virtio2-output.0"),
            (40, "virtio1-req.0"),
        ];
        let at = "/sys/devices/pci0000:00/0000:00:03.0";
        let link = format!(
            "=== /sys/class/net/eth0 -> ../../devices/pci0000:00/0000:00:03.0/virtio2/net/eth0\n\
             === {at}/virtio2/driver -> ../../../../bus/virtio/drivers/virtio_net\n=== {at}/numa_node\n-1\n"
        );
        for files in [format!("{link}=== {at}/msi_irqs : 37 38 39\n"), link] {
            let machine = machine(&names, &files);
            let eth0 = machine.interface("eth0").unwrap();
            assert_eq!((eth0.driver.as_deref(), eth0.node), (Some("virtio_net"), None));
            assert_eq!(eth0.pci.as_deref(), Some("0000:00:03.0"));
            assert_eq!(irqs(eth0), [(38, Some(0)), (39, Some(0)), (37, None)], "{files}");
        }
    }

    #[test]
    fn interrupts_by_name_where_nothing_lists_them() {
        // Virtio over MMIO, Xen, a card with one interrupt, and one function with two interfaces.
        let names = [
            (7, "virtio3"),
            (8, "eth1-q0-tx"),
            (9, "eth1-q0-rx"),
            (10, "eth2"),
            (11, "eth22"),
            (20, "eth3-TxRx-0"),
            (21, "eth4-TxRx-0"),
            (22, "both-misc"),
        ];
        let machine = machine(
            &names,
            "=== /sys/class/net/eth0 -> ../../devices/platform/d0000000.virtio/virtio3/net/eth0\n\
             === /sys/class/net/eth1 -> ../../devices/vif-0/net/eth1\n\
             === /sys/class/net/eth2 -> ../../devices/pci0000:00/0000:00:04.0/net/eth2\n\
             === /sys/class/net/eth[3,4]/device -> ../../../0000:05:00.0\n\
             === /sys/class/net/eth[3,4]/device/msi_irqs : 20 21 22\n\
             === /sys/class/net/veth9 -> ../../devices/virtual/net/veth9\n\
             === /sys/class/net/usb0 -> ../../devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1:1.0/net/usb0\n\
             === /sys/devices/pci0000:00/0000:00:14.0/msi_irqs : 22\n",
        );
        let of = |name| irqs(machine.interface(name).unwrap());
        assert_eq!(of("eth0"), [(7, Some(0))]);
        assert_eq!(of("eth1"), [(8, Some(0)), (9, Some(0))]);
        assert_eq!(of("eth2"), [(10, Some(0))]);
        assert_eq!(
            (of("eth3"), of("eth4")),
            (vec![(20, Some(0)), (22, None)], vec![(21, Some(0)), (22, None)])
        );
        assert_eq!((of("veth9"), of("usb0")), (vec![], vec![]));
        let pci = |name| machine.interface(name).unwrap().pci.as_deref();
        assert_eq!(
            [pci("eth0"), pci("eth2"), pci("eth3"), pci("usb0")],
            [None, Some("0000:00:04.0"), Some("0000:05:00.0"), None]
        );
    }

    #[test]
    fn interfaces_below_a_bond_and_whether_they_are_up() {
        let machine = machine(
            &[],
            "=== /sys/class/net/bond0/lower_eth0 -> ../eth0\n=== /sys/class/net/bond0/lower_eth1 -> ../eth1\n\
             === /sys/class/net/bond0/operstate\nup\n=== /sys/class/net/eth0/flags\n0x1002\n\
             === /sys/class/net/eth0/operstate\ndown\n=== /sys/class/net/eth1/flags\n0x1003\n\
             === /sys/class/net/eth1/operstate\nlowerlayerdown\n=== /sys/class/net/veth1/flags\n0x1043\n\
             === /sys/class/net/veth1/operstate\nunknown\n=== /sys/class/net/bad/flags\n1003\n",
        );
        assert_eq!(machine.interface("bond0").unwrap().lower, ["eth0", "eth1"]);
        let up: Vec<&str> =
            machine.interfaces.iter().filter(|one| one.up).map(|one| one.name.as_str()).collect();
        assert_eq!(up, ["bond0", "veth1"]);
        assert_eq!(
            told(&machine, "/bad/"),
            ["/sys/class/net/bad/flags, line 1: found \"1003\", expected flags, such as 0x1003"]
        );
    }

    #[test]
    fn what_ethtool_prints() {
        let of = |text: &str| channels("/ethtool/eth0", text);
        let old = "Channel parameters for eth0:\nPre-set maximums:\nRX:\t\t4\nTX:\t\t4\nOther:\t\t0\nCombined:\t0\n\
                   Current hardware settings:\nRX:\t\t4\nTX:\t\t4\nOther:\t\t0\nCombined:\t0\n";
        assert_eq!(of(old), Ok(None));
        assert_eq!(
            of("Pre-set maximums:\nCombined: n/a\nCurrent hardware settings:\nCombined: n/a\n"),
            Ok(None)
        );
        for bad in
            ["", "Combined: 4\n", "Pre-set maximums:\nCombined: many\n", "Pre-set maximums:\nCombined: 4\n"]
        {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn where_links_lead() {
        assert_eq!(beside("/sys/class/net/eth0", "../../devices/x/net/eth0"), "/sys/devices/x/net/eth0");
        assert_eq!(beside("/a/b", "../../../.././c"), "/c");
        assert_eq!(beside("/a/b", "/c//d"), "/c/d");
        assert!(is_pci_address("0000:3b:00.0") && is_pci_address("10000:e1:00.0"));
        assert!(!is_pci_address("pci0000:00") && !is_pci_address("1-1:1.0") && !is_pci_address("0000:00:03"));
    }
}
