//! Facts about every machine below `fixtures/isolate`, and about this machine, compared with what other
//! programs report.

use spangap_isolate::topology::{Interface, Owner, Queues, Topology, Version};
use spangap_machine::{Host, Kept};
use spangap_model::Cpus;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/isolate")
}

fn kept(name: &str) -> Kept {
    let path = folder().join(name).join("machine.txt");
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Kept::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A machine all of whose facts can be read.
fn machine(name: &str) -> Topology {
    let topology = Topology::read(&Host::kept(kept(name)));
    assert!(topology.unknown.is_empty(), "{name}: {:?}", topology.unknown);
    topology
}

fn interface(topology: &Topology, name: &str) -> Interface {
    topology.interface(name).unwrap_or_else(|| panic!("no {name}: {:?}", topology.interfaces)).clone()
}

fn queue_irqs(interface: &Interface) -> Vec<(u32, Option<u32>)> {
    interface.irqs.iter().map(|irq| (irq.irq, irq.queue)).collect()
}

fn siblings(topology: &Topology, cpu: u32) -> String {
    topology.cpus.iter().find(|one| one.number == cpu).unwrap().siblings.to_string()
}

fn node(topology: &Topology, node: u32) -> String {
    let cpus = topology.cpus.iter().filter(|cpu| cpu.node == Some(node)).map(|cpu| cpu.number);
    cpus.collect::<Cpus>().to_string()
}

fn pinned_users(topology: &Topology) -> Vec<String> {
    let users = topology.pinned.iter().filter(|task| !task.kernel);
    users.map(|task| format!("{} {}", task.comm, task.allowed)).collect()
}

fn same(one: &Topology, other: &Topology, name: &str) {
    let one = serde_json::to_value(one).unwrap();
    let other = serde_json::to_value(other).unwrap();
    for (field, value) in one.as_object().unwrap() {
        assert!(*value == other[field], "{name}: {field} is another");
    }
}

#[test]
fn every_machine_is_read_completely() {
    let mut seen = 0;
    for entry in
        std::fs::read_dir(folder()).unwrap().map(Result::unwrap).filter(|entry| entry.path().is_dir())
    {
        let name = entry.file_name().into_string().unwrap();
        let topology = machine(&name);
        assert!(entry.path().join("README.md").exists(), "{name} has no README.md");
        assert_eq!(topology.load.len(), topology.cpus.len(), "{name}");
        assert!(topology.load.iter().any(|load| load.idle_ticks > 0 && load.net_rx > 0), "{name}");
        assert!(topology.cpus.iter().all(|cpu| cpu.cache.is_some() && cpu.node.is_some()), "{name}");
        assert!(topology.irqs.iter().all(|irq| irq.affinity.is_some() && irq.effective.is_some()), "{name}");
        assert!(!topology.boot.id.is_empty() && !topology.boot.kernel.is_empty(), "{name}");
        for interface in &topology.interfaces {
            assert!(interface.rx.iter().all(|queue| queue.rps_cpus.is_some()), "{name}: {interface:?}");
        }
        let groups = &topology.cpusets.as_ref().unwrap_or_else(|| panic!("{name}")).groups;
        let place = |path: &str| groups.iter().position(|group| group.path == path);
        for group in &groups[1..] {
            let (parent, _) = group.path.rsplit_once('/').unwrap();
            let parent = place(if parent.is_empty() { "/" } else { parent });
            assert!(
                parent.is_some() && parent < place(&group.path),
                "{name}: {} before its parent",
                group.path
            );
        }
        seen += 1;
    }
    assert!(seen >= 14, "{seen}");
}

#[test]
fn a_machine_on_disk_equals_its_text() {
    for name in ["article-2x24x2", "virtio-cloud", "v2-systemd", "bonded"] {
        let folder = tempfile::tempdir().unwrap();
        kept(name).write_below(folder.path()).unwrap();
        let copy = Topology::read(&Host::below(folder.path()));
        same(&copy, &machine(name), name);
    }
}

#[test]
fn the_server_of_the_article() {
    let topology = machine("article-2x24x2");
    assert_eq!(
        (topology.online().to_string(), siblings(&topology, 1)),
        ("0-95".to_owned(), "1,49".to_owned())
    );
    assert_eq!([node(&topology, 0), node(&topology, 1)], ["0-23,48-71", "24-47,72-95"]);
    let eth0 = interface(&topology, "eth0");
    assert_eq!((eth0.node, eth0.driver.as_deref(), eth0.up), (Some(0), Some("ixgbe"), true));
    assert_eq!(queue_irqs(&eth0), [(146, Some(0)), (147, Some(1)), (148, Some(2)), (149, Some(3))]);
    assert_eq!(eth0.queues, Some(Queues { now: 4, most: 63 }));
    let effective = topology.irqs.iter().map(|irq| irq.effective.as_ref().unwrap().to_string());
    assert_eq!(effective.collect::<Vec<_>>(), ["4", "9", "14", "19"]);
    let cpusets = topology.cpusets.as_ref().unwrap();
    assert_eq!((cpusets.version, cpusets.hybrid, cpusets.groups.len()), (Version::V1, true, 10));
    assert_eq!((cpusets.groups[0].tasks, cpusets.groups[0].kernel_tasks), (22, 19));
    assert_eq!(cpusets.groups[0].mems.as_deref(), Some("0-1"));
    assert_eq!(topology.balanced, Some(topology.online()));
    assert_eq!(pinned_users(&topology), Vec::<String>::new());
}

#[test]
fn cores_nodes_and_caches() {
    let plain = machine("no-smt");
    assert!(plain.cpus.iter().all(|cpu| cpu.siblings.len() == 1));
    let nic = interface(&plain, "enp1s0f0");
    assert_eq!(queue_irqs(&nic)[7..], [(71, Some(7)), (72, None)]);
    assert_eq!(nic.tx[3].xps_cpus.as_ref().unwrap().to_string(), "3,11");

    let amd = machine("amd-ccx");
    let nic = interface(&amd, "enp193s0f0np0");
    assert_eq!((nic.node, nic.pci.as_deref()), (Some(3), Some("0000:c1:00.0")));
    assert_eq!((node(&amd, 3), siblings(&amd, 49)), ("48-63,112-127".to_owned(), "49,113".to_owned()));
    assert_eq!(amd.cpus[49].cache.as_ref().unwrap().to_string(), "48-51,112-115");
    assert_eq!((queue_irqs(&nic)[0], queue_irqs(&nic)[16]), ((301, Some(0)), (300, None)));
    assert_eq!(nic.rx[0].rps_cpus.as_ref().unwrap().to_string(), "0-3");

    let odd = machine("nic-on-node-1");
    assert_eq!((node(&odd, 1).split(',').next(), siblings(&odd, 1)), (Some("1"), "1,33".to_owned()));
    assert_eq!((interface(&odd, "eno2").node, odd.cpusets.unwrap().groups.len()), (Some(1), 1));

    assert_eq!(interface(&machine("nic-without-node"), "ens1f0np0").node, None);

    let two = machine("two-nics");
    assert_eq!([interface(&two, "eth0").node, interface(&two, "eth1").node], [Some(0), Some(1)]);
    assert_eq!(interface(&two, "eth1").irqs.len(), 9);
}

#[test]
fn interfaces_of_other_kinds() {
    let virtio = machine("virtio-cloud");
    let ens4 = interface(&virtio, "ens4");
    assert_eq!((ens4.driver.as_deref(), ens4.node), (Some("virtio_net"), None));
    assert_eq!(ens4.pci.as_deref(), Some("0000:00:04.0"));
    assert_eq!(queue_irqs(&ens4)[..3], [(27, Some(0)), (28, Some(0)), (29, Some(1))]);
    assert_eq!((ens4.irqs.len(), queue_irqs(&ens4)[16]), (17, (26, None)));
    assert_eq!(siblings(&virtio, 3), "2-3");

    let one = machine("one-queue");
    let enp3s0 = interface(&one, "enp3s0");
    assert_eq!((queue_irqs(&enp3s0), enp3s0.queues), (vec![(125, Some(0))], None));
    assert_eq!((one.rps_sock_flow_entries, enp3s0.rx[0].rps_flow_cnt), (Some(32768), Some(32768)));
    assert_eq!(enp3s0.tx, []);

    let real = machine("two-cpus-veth");
    let noise = interface(&real, "noise");
    assert_eq!(
        (real.online().to_string(), noise.driver.as_deref(), noise.up),
        ("0-1".to_owned(), None, true)
    );
    assert_eq!((noise.irqs.len(), noise.rx.len(), real.irqs.len()), (0, 1, 19));
    assert_eq!(pinned_users(&real), ["sleep 1"]);
    assert_eq!(real.cpusets.unwrap().mount, "/sys/fs/cgroup/cpuset");

    let bonded = machine("bonded");
    assert_eq!(interface(&bonded, "bond0").lower, ["eth0", "eth1"]);
    assert_eq!(interface(&bonded, "bond0.100").lower, ["bond0"]);
    assert_eq!(queue_irqs(&interface(&bonded, "eth1"))[7..], [(77, Some(7)), (78, None)]);
}

#[test]
fn more_than_256_cpus_and_some_offline() {
    let topology = machine("big-256");
    assert_eq!(topology.online().to_string(), "0-142,144-286");
    assert_eq!((topology.cpus.len(), siblings(&topology, 142)), (286, "142,286".to_owned()));
    let nic = interface(&topology, "ens3f0np0");
    assert_eq!(nic.tx[31].xps_cpus.as_ref().unwrap().to_string(), "103");
    let irq = topology.irqs.iter().find(|irq| irq.number == 432).unwrap();
    assert_eq!(irq.counts.len(), 286);
    assert_eq!(irq.counts.iter().position(|count| *count > 0), Some(103));
    assert_eq!(topology.load[143].cpu, 144);
    assert_eq!(topology.balanced, Some(topology.online()));
}

#[test]
fn groups_and_their_owners() {
    let systemd = machine("v2-systemd");
    let cpusets = systemd.cpusets.as_ref().unwrap();
    assert_eq!((cpusets.version, cpusets.hybrid, cpusets.enabled), (Version::V2, false, true));
    let slice = cpusets.groups.iter().find(|group| group.path == "/machine.slice").unwrap();
    assert_eq!(slice.cpus.as_ref().unwrap().to_string(), "2-15,18-31");
    assert_eq!(slice.owner, Owner::Systemd { unit: "machine.slice".to_owned() });
    let guest = cpusets.groups.iter().find(|group| group.path.ends_with("db.scope/libvirt")).unwrap();
    assert_eq!((guest.tasks, guest.cpus.as_ref().map(Cpus::len)), (4, Some(0)));
    assert_eq!(guest.effective, slice.effective);
    assert_eq!(pinned_users(&systemd), ["CPU 0/KVM 8", "CPU 1/KVM 9", "CPU 2/KVM 10", "CPU 3/KVM 11"]);
    assert_eq!(interface(&systemd, "br0").lower, ["eno1", "vnet0", "vnet1"]);

    let isolated = machine("boot-isolcpus");
    assert_eq!(isolated.boot.isolated.to_string(), "4-11,16-23");
    assert_eq!(isolated.boot.isolated, isolated.boot.rcu_nocbs);
    assert_eq!(isolated.boot.irqaffinity.as_ref().unwrap().to_string(), "0-3,12-15");
    assert_eq!(isolated.balanced.as_ref().unwrap().to_string(), "0-3,12-15");
    assert!(pinned_users(&isolated).contains(&"trader-1 6".to_owned()), "{:?}", isolated.pinned);
    let cpusets = isolated.cpusets.unwrap();
    assert!(!cpusets.enabled && cpusets.groups[1].cpus.is_none());
    assert_eq!(cpusets.groups[1].effective.as_ref().map(Cpus::len), Some(24));

    let balanced = machine("irqbalance-running");
    let irqbalance = balanced.irqbalance.unwrap();
    assert_eq!((irqbalance.pid, irqbalance.banned), (812, Some(vec![44])));
    assert_eq!(irqbalance.unit.as_deref(), Some("irqbalance.service"));
    assert_eq!(balanced.tuned.unwrap().profile.as_deref(), Some("throughput-performance"));
}

#[test]
fn nodes_of_kubernetes() {
    let exclusive = |topology: &Topology| -> Vec<String> {
        let all = &topology.kubelet.as_ref().unwrap().exclusive;
        all.iter().map(|one| format!("{} {}", one.container, one.cpus)).collect()
    };
    for (name, alone, reserved) in [
        ("kubernetes-static-v2", "2-3,18-19", "0-1,16-17"),
        ("kubernetes-exclusive-on-net", "1-2,17-18", "0,16"),
    ] {
        let topology = machine(name);
        let kubelet = topology.kubelet.as_ref().unwrap();
        assert_eq!(
            (kubelet.policy.as_str(), exclusive(&topology)),
            ("static", vec![format!("server {alone}")])
        );
        assert_eq!(kubelet.reserved.as_ref().unwrap().to_string(), reserved);
        let groups = &topology.cpusets.as_ref().unwrap().groups;
        let its = groups.iter().filter(|group| match &group.owner {
            Owner::Kubelet { pod, container } => {
                pod.as_ref() == Some(&kubelet.exclusive[0].pod) && container.is_some()
            }
            _ => false,
        });
        let cpus: Vec<String> = its.map(|group| group.cpus.as_ref().unwrap().to_string()).collect();
        assert_eq!(cpus, [alone]);
        // Limits set by the kubelet do not count as pinned by somebody.
        assert_eq!(pinned_users(&topology), Vec::<String>::new());
    }
    let none = machine("kubernetes-v1-none");
    let kubelet = none.kubelet.as_ref().unwrap();
    assert_eq!((kubelet.policy.as_str(), kubelet.shared.len(), kubelet.exclusive.len()), ("none", 0, 0));
    let cpusets = none.cpusets.unwrap();
    assert_eq!((cpusets.version, cpusets.hybrid), (Version::V1, false));
    let pod = |owner: &Owner| match owner {
        Owner::Kubelet { pod, .. } => pod.clone(),
        _ => None,
    };
    let pods: BTreeSet<String> = cpusets.groups.iter().filter_map(|group| pod(&group.owner)).collect();
    assert_eq!(pods.len(), 3);
    let fixed = machine("kubernetes-v1-static");
    assert_eq!(exclusive(&fixed), ["java 4-5,12-13"]);
    assert_eq!(fixed.kubelet.unwrap().shared.to_string(), "0-3,6-11,14-15");
}

/// The output of a program; `None` where it cannot be run.
fn printed(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success());
    if output.is_none() {
        println!("not run: no {program} here that answers");
    }
    String::from_utf8(output?.stdout).ok()
}

#[test]
fn this_machine_as_other_programs_see_it() {
    let host = Host::below("/");
    let topology = Topology::read(&host);
    let text = host.seen().text();
    same(&Topology::read(&Host::kept(Kept::parse(&text).unwrap())), &topology, "this machine when kept");
    if let Some(lines) = printed("lscpu", &["-p=CPU,CORE,SOCKET,NODE"]) {
        let lines = lines.lines().filter(|line| !line.starts_with('#'));
        let rows: Vec<Vec<&str>> = lines.map(|line| line.split(',').collect()).collect();
        let numbers: Vec<u32> = rows.iter().map(|row| row[0].parse().unwrap()).collect();
        assert_eq!(topology.cpus.iter().map(|cpu| cpu.number).collect::<Vec<_>>(), numbers);
        for (cpu, row) in topology.cpus.iter().zip(&rows) {
            let same_core = rows.iter().filter(|other| other[1..3] == row[1..3]);
            let same_core: Cpus = same_core.map(|other| other[0].parse().unwrap()).collect();
            assert_eq!(cpu.siblings, same_core, "CPU {}", cpu.number);
            assert_eq!(cpu.node, row[3].parse().ok(), "CPU {}", cpu.number);
        }
    }
    if let Some(count) = printed("nproc", &["--all"]) {
        assert!(topology.cpus.len() <= count.trim().parse().unwrap(), "{count}");
    }
    if let Some(json) = printed("ip", &["-j", "link"]) {
        let links: serde_json::Value = serde_json::from_str(&json).unwrap();
        let names = links.as_array().unwrap().iter().filter_map(|link| link["ifname"].as_str());
        let names: BTreeSet<&str> = names.filter(|name| *name != "lo").collect();
        let found: BTreeSet<&str> = topology.interfaces.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(found, names);
    }
    assert_eq!(topology.load.len(), topology.cpus.len());
    assert!(topology.load.iter().all(|load| load.idle_ticks + load.tasks_ticks > 0), "{:?}", topology.load);
    assert!(!topology.irqs.is_empty() && !topology.boot.id.is_empty());
}
