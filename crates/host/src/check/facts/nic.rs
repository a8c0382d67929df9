//! Network interfaces: queues, interrupts, steering masks, and NUMA node.

use super::super::{Cpus, Host, Known};
use spangap_machine::facts::cpu_table::Row;
use spangap_machine::facts::{cpu_list, figures};

/// A queue of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// `rx-0`.
    pub name: String,
    /// CPUs that received packets are steered to (RPS), or that transmit through this queue (XPS).
    pub cpus: Known<Cpus>,
}

/// An interrupt of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Irq {
    pub number: u32,
    /// Label in `/proc/interrupts`.
    pub label: String,
    /// CPUs that may handle it.
    pub affinity: Known<Cpus>,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    pub name: String,
    /// Driver; `None` for a virtual interface, such as veth.
    pub driver: Option<String>,
    /// Whether it is up.
    pub up: bool,
    /// NUMA node of the device, if the firmware reports it.
    pub node: Option<u32>,
    pub rx: Vec<Queue>,
    pub tx: Vec<Queue>,
    pub irqs: Vec<Irq>,
    /// How long NAPI may hold packets back to merge them (`gro_flush_timeout`), in nanoseconds.
    pub gro_flush_timeout_ns: Known<i64>,
    /// How often NAPI polls an empty queue before it re-enables interrupts (`napi_defer_hard_irqs`).
    pub defer_hard_irqs: Known<i64>,
    /// Whether NAPI polls in kernel threads; `None` before Linux 5.12.
    pub threaded: Option<bool>,
}

/// Reads all interfaces except `lo`.
///
/// # Errors
/// `/sys/class/net` cannot be read.
pub fn read(host: &Host, interrupts: &Known<Vec<Row>>) -> Known<Vec<Nic>> {
    let names = host.list("/sys/class/net")?;
    let nic =
        |name: &String| (name != "lo" && name != "bonding_masters").then(|| one(host, interrupts, name));
    Ok(names.iter().filter_map(nic).collect())
}

fn one(host: &Host, interrupts: &Known<Vec<Row>>, name: &str) -> Nic {
    let at = format!("/sys/class/net/{name}");
    let number = |file: &str| host.parsed::<i64>(&format!("{at}/{file}"), figures::number);
    let last = |link: &str| {
        let to = host.link(&format!("{at}/{link}")).ok()?;
        to.rsplit('/').next().map(str::to_owned)
    };
    // A virtio device is a child of the PCI function, which owns the vectors and the NUMA node.
    let device = last("device");
    let driver = last("device/driver").or_else(|| device.clone());
    let node = ["device/numa_node", "device/../numa_node"].iter().find_map(|file| number(file).ok());
    let queues = |kind: &str, mask: &str| {
        let names = host.list(&format!("{at}/queues")).unwrap_or_default();
        let queues = names.into_iter().filter(|queue| queue.starts_with(kind));
        queues
            .map(|queue| Queue {
                cpus: host.parsed(&format!("{at}/queues/{queue}/{mask}"), cpu_list::mask),
                name: queue,
            })
            .collect()
    };
    Nic {
        name: name.to_owned(),
        up: host.read(&format!("{at}/carrier")).is_ok_and(|carrier| carrier.trim() == "1"),
        node: node.and_then(|node| u32::try_from(node).ok()),
        rx: queues("rx-", "rps_cpus"),
        tx: queues("tx-", "xps_cpus"),
        irqs: if driver.is_some() { irqs(host, interrupts, name, device.as_deref()) } else { Vec::new() },
        driver,
        gro_flush_timeout_ns: number("gro_flush_timeout"),
        defer_hard_irqs: number("napi_defer_hard_irqs"),
        threaded: number("threaded").ok().map(|threaded| threaded != 0),
    }
}

/// The interrupts that the device lists, and those labelled with the interface's name.
fn irqs(host: &Host, interrupts: &Known<Vec<Row>>, name: &str, device: Option<&str>) -> Vec<Irq> {
    let vectors = ["device/msi_irqs", "device/../msi_irqs"];
    let listed = vectors.iter().find_map(|folder| host.list(&format!("/sys/class/net/{name}/{folder}")).ok());
    let listed = listed.unwrap_or_default();
    let rows = interrupts.as_ref().map(Vec::as_slice).unwrap_or_default();
    let named = |row: &Row| {
        let mut words = row.label.split([' ', ',', '@']);
        words.any(|word| belongs(word, name) || device.is_some_and(|device| belongs(word, device)))
    };
    let its = rows.iter().filter(|row| listed.contains(&row.name) || named(row));
    its.filter_map(|row| {
        let number = row.name.parse().ok()?;
        let affinity = host.parsed(&format!("/proc/irq/{number}/smp_affinity_list"), cpu_list::list);
        let label = row.label.split_whitespace().last().unwrap_or_default().to_owned();
        Some(Irq { number, label, affinity })
    })
    .collect()
}

/// `eth0-TxRx-1` belongs to `eth0`, not to `eth`.
fn belongs(word: &str, name: &str) -> bool {
    word.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.', ':']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_machine::Kept;
    use spangap_machine::facts::cpu_table;

    fn nics(tree: &str, interrupts: &str) -> Vec<Nic> {
        let host = Host::kept(Kept::parse(tree).unwrap());
        let table = cpu_table::parse(cpu_table::INTERRUPTS, interrupts);
        read(&host, &table.and_then(|table| table.whole())).unwrap()
    }

    #[test]
    fn interrupts_by_the_devices_own_list_and_by_name() {
        let interrupts = "  CPU0 CPU1\n 24: 1 2 PCI-MSI 1-edge eth0-TxRx-0\n 25: 1 2 PCI-MSI 2-edge mlx5_comp0@pci:0000:3b:00.0\n\
                          26: 0 0 PCI-MSI 3-edge eth01-TxRx-0\n 27: 0 0 xen-dyn -event eth0-q0-rx\n";
        let nics = nics(
            "=== /sys/class/net/eth0/device -> ../../../0000:3b:00.0\n=== /sys/class/net/eth0/device/driver -> ../../x/mlx5_core\n\
             === /sys/class/net/eth0/device/msi_irqs : 25\n=== /sys/class/net/eth0/carrier\n1\n\
             === /sys/class/net/eth0/queues/rx-0/rps_cpus\n0,00000002\n=== /sys/class/net/eth0/device/numa_node\n1\n\
             === /proc/irq/24/smp_affinity_list\n0-1\n=== /sys/class/net/veth1/carrier\n1\n=== /sys/class/net/lo/carrier\n1\n",
            interrupts,
        );
        assert_eq!(nics.iter().map(|nic| nic.name.as_str()).collect::<Vec<_>>(), ["eth0", "veth1"]);
        let eth0 = &nics[0];
        assert_eq!((eth0.driver.as_deref(), eth0.node, eth0.up), (Some("mlx5_core"), Some(1), true));
        assert_eq!(eth0.irqs.iter().map(|irq| irq.number).collect::<Vec<_>>(), [24, 25, 27]);
        assert_eq!(eth0.irqs[0].affinity.as_ref().unwrap().to_string(), "0-1");
        assert_eq!(eth0.rx[0].cpus.as_ref().unwrap().to_string(), "1");
        assert_eq!((nics[1].driver.as_deref(), nics[1].irqs.len()), (None, 0));
    }

    #[test]
    fn virtio_vectors_belong_to_the_pci_function() {
        let interrupts = "  CPU0\n 37: 1 PCI-MSIX 0-edge virtio2-config\n 38: 1 PCI-MSIX 1-edge virtio2-input.0\n 39: 1 x y virtio20-req\n";
        let tree = "=== /sys/class/net/eth0/device -> ../../../virtio2\n=== /sys/class/net/eth0/device/../msi_irqs : 37 38\n\
                    === /sys/class/net/eth0/device/driver -> ../../../bus/virtio/drivers/virtio_net\n";
        let nics = nics(tree, interrupts);
        assert_eq!(
            nics[0].irqs.iter().map(|irq| irq.label.as_str()).collect::<Vec<_>>(),
            ["virtio2-config", "virtio2-input.0"]
        );
    }
}
