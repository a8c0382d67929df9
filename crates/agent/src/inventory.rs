//! Addresses and containers of this host, for matching with spans, and the processes that use TCP.

use spangap_fleet::v1;
use spangap_machine::facts::process_cgroup;
use spangap_machine::read_here;
use spangap_sockets::network_namespace;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum number of reported containers.
const MAX_CONTAINERS: usize = 10_000;
/// Maximum number of reported addresses.
const MAX_ADDRESSES: usize = 10_000;

/// Network namespaces of this agent: all if it runs in that of the machine's first process or stands for a node, else its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Those of all pods, and the host's.
    Every,
    /// The one with this inode.
    Own(u64),
}

impl Scope {
    /// The scope of this process; `whole_node` as in the settings.
    pub fn here(whole_node: bool) -> Scope {
        match (network_namespace(std::process::id()), network_namespace(1)) {
            // Without permission to see the first process's namespace there is none to see other processes':
            // the agent can represent only its own.
            (Some(own), first) if first != Some(own) && !whole_node => Scope::Own(own),
            _ => Scope::Every,
        }
    }

    /// Whether a namespace belongs to the scope.
    pub fn has(self, namespace: u64) -> bool {
        match self {
            Scope::Every => true,
            Scope::Own(own) => own == namespace,
        }
    }
}

/// The current inventory. Unreadable parts are omitted.
pub(crate) fn look(scope: Scope) -> v1::Inventory {
    let mut addresses = BTreeSet::new();
    let mut containers = BTreeMap::new();
    let mut namespaces = HashSet::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for pid in [std::process::id()].into_iter().chain(pids) {
        let Some(namespace) = network_namespace(pid).filter(|namespace| scope.has(*namespace)) else {
            continue;
        };
        if namespaces.insert(namespace) {
            addresses.extend(addresses_of(pid));
        }
        let groups = read_here(&format!("/proc/{pid}/{}", process_cgroup::NAME), process_cgroup::parse);
        for group in groups.into_iter().flatten() {
            if let Some((id, pod_uid)) = container(&group.path) {
                containers.entry(id.clone()).or_insert_with(|| v1::Container {
                    id,
                    pod_uid,
                    cgroup: group.path,
                });
            }
        }
    }
    v1::Inventory {
        addresses: addresses.into_iter().take(MAX_ADDRESSES).map(|address| address.to_string()).collect(),
        containers: containers.into_values().take(MAX_CONTAINERS).collect(),
    }
}

/// Externally reachable addresses of a process's namespace.
fn addresses_of(pid: u32) -> BTreeSet<IpAddr> {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/net/{file}")).unwrap_or_default();
    let four = local_ipv4(&read("fib_trie")).into_iter().map(IpAddr::V4);
    four.chain(local_ipv6(&read("if_inet6")).into_iter().map(IpAddr::V6)).collect()
}

/// Local addresses in `fib_trie`: an entry `/32 host LOCAL` below `|-- ADDRESS`.
fn local_ipv4(text: &str) -> BTreeSet<Ipv4Addr> {
    let mut last = None;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line == "/32 host LOCAL" {
            found.extend(last.filter(|address| !address.is_loopback()));
        }
    }
    found
}

/// Local addresses in `if_inet6`, except link-local and loopback addresses.
fn local_ipv6(text: &str) -> BTreeSet<Ipv6Addr> {
    let addresses = text.lines().filter_map(|line| u128::from_str_radix(line.split(' ').next()?, 16).ok());
    let addresses = addresses.map(Ipv6Addr::from);
    addresses.filter(|address| !address.is_loopback() && !address.is_unicast_link_local()).collect()
}

/// Container id and pod uid in a control group's path, in the forms of Docker, containerd and CRI-O with both
/// of the kubelet's drivers: `/kubepods/burstable/podUID/ID`,
/// `/kubepods.slice/.../kubepods-burstable-podU_I_D.slice/cri-containerd-ID.scope`, `/docker/ID`,
/// `/system.slice/docker-ID.scope`. The pod's uid is empty if there is none.
fn container(path: &str) -> Option<(String, String)> {
    let id = path.split('/').rev().find_map(|part| {
        let part = part.strip_suffix(".scope").unwrap_or(part);
        let id = part.rsplit(['-', ':']).next()?;
        (id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| id.to_owned())
    })?;
    let pod = path.split('/').find_map(|part| {
        let part = part.strip_suffix(".slice").unwrap_or(part);
        let uid = part.strip_prefix("pod").or_else(|| part.rsplit_once("-pod").map(|(_, uid)| uid))?;
        // If the drivers of kubelet and runtime differ, the slice's name is the first part of the
        // container's.
        let uid = uid.split(['.', ':']).next().unwrap_or(uid);
        (uid.len() >= 32).then(|| uid.replace('_', "-"))
    });
    Some((id, pod.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_of_every_runtime_are_recognised_by_their_control_groups() {
        let id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
        let uid = "2f0e3b5a-1111-4222-8333-444455556666";
        let pod = [
            format!("/kubepods/burstable/pod{uid}/{id}"),
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{}.slice/cri-containerd-{id}.scope",
                uid.replace('-', "_")
            ),
            format!("/kubepods.slice/kubepods-pod{}.slice/crio-{id}.scope", uid.replace('-', "_")),
            format!("/kubelet/kubepods/besteffort/pod{uid}/{id}/init"),
            format!(
                "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/kubelet-kubepods-besteffort-pod{}.slice/cri-containerd-{id}.scope",
                uid.replace('-', "_")
            ),
            format!(
                "/system.slice/containerd.service/kubepods-besteffort-pod{}.slice:cri-containerd:{id}",
                uid.replace('-', "_")
            ),
        ];
        for path in &pod {
            assert_eq!(container(path), Some((id.into(), uid.into())), "{path}");
        }
        for path in [
            format!("/docker/{id}"),
            format!("/system.slice/docker-{id}.scope"),
            format!("/machine.slice/libpod-{id}.scope/container"),
            format!("/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{id}.scope"),
            format!("/system.slice/nerdctl-{id}.scope"),
        ] {
            assert_eq!(container(&path), Some((id.into(), String::new())), "{path}");
        }
        for path in ["/", "/user.slice/user-0.slice/session-1.scope", "/kubepods/burstable/podx/short"] {
            assert_eq!(container(path), None, "{path}");
        }
    }

    #[test]
    fn local_addresses_exclude_loopback() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.1.0.0\n        /24 link UNICAST\n     |-- 10.1.0.7\n        /32 host LOCAL\n     |-- 10.1.0.255\n        /32 link BROADCAST\n     |-- 127.0.0.1\n        /32 host LOCAL\n";
        assert_eq!(local_ipv4(trie), BTreeSet::from([Ipv4Addr::new(10, 1, 0, 7)]));
        let six = "fd000000000000000000000000000001 02 40 00 80     eth0\nfe80000000000000000000000000000a 02 40 20 80     eth0\n00000000000000000000000000000001 01 80 10 80       lo\n";
        assert_eq!(local_ipv6(six), BTreeSet::from(["fd00::1".parse().unwrap()]));
    }
}
