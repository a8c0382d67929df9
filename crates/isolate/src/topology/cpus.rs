//! CPUs: cores, packages, nodes, caches.

use super::Cpu;
use super::reading::Reading;
use spangap_machine::facts::cpu_list;
use spangap_model::Cpus;

const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";

/// Reads the online CPUs.
pub(super) fn read(reading: &mut Reading) -> Vec<Cpu> {
    let online = reading.needed(cpu_list::ONLINE, cpu_list::list).unwrap_or_default();
    let nodes = nodes(reading);
    let node = |number| nodes.iter().find(|(_, cpus)| cpus.contains(number)).map(|(node, _)| *node);
    online.iter().map(|number| one(reading, number, node(number))).collect()
}

/// The CPUs of each NUMA node.
fn nodes(reading: &mut Reading) -> Vec<(u32, Cpus)> {
    let names = reading.names(NODES);
    let numbers = names.iter().filter_map(|name| name.strip_prefix("node")?.parse().ok());
    numbers
        .filter_map(|node: u32| Some((node, reading.list(&format!("{NODES}/node{node}/cpulist"))?)))
        .collect()
}

fn one(reading: &mut Reading, number: u32, node: Option<u32>) -> Cpu {
    let at = format!("{CPUS}/cpu{number}");
    // The first is the older name of the second, and both exist.
    let siblings = reading
        .list(&format!("{at}/topology/thread_siblings_list"))
        .or_else(|| reading.list(&format!("{at}/topology/core_cpus_list")));
    let itself = Cpus::from_iter([number]);
    let package: Option<i64> = reading.number(&format!("{at}/topology/physical_package_id"));
    Cpu {
        number,
        siblings: siblings.unwrap_or_default().either(&itself),
        // -1 if the firmware does not say.
        package: package.and_then(|package| u32::try_from(package).ok()),
        node,
        cache: last_cache(reading, &at).map(|cache| cache.either(&itself)),
    }
}

/// CPUs that share the highest-level cache.
fn last_cache(reading: &mut Reading, cpu: &str) -> Option<Cpus> {
    let indices = reading.names(&format!("{cpu}/cache"));
    let indices = indices.iter().filter(|name| name.starts_with("index"));
    let levels: Vec<(u32, String)> = indices
        .filter_map(|index| {
            let at = format!("{cpu}/cache/{index}");
            Some((reading.number(&format!("{at}/level"))?, at))
        })
        .collect();
    let (_, last) = levels.into_iter().max_by_key(|(level, _)| *level)?;
    reading.list(&format!("{last}/shared_cpu_list"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read, told};

    #[test]
    fn cores_packages_nodes_and_the_last_cache() {
        let machine = read(
            "=== /sys/devices/system/cpu/online\n0-1,3\n\
             === /sys/devices/system/cpu/cpu[0-1]/topology/thread_siblings_list\n0-1\n\
             === /sys/devices/system/cpu/cpu3/topology/core_cpus_list\n2-3\n\
             === /sys/devices/system/cpu/cpu[0-3]/topology/physical_package_id\n0\n\
             === /sys/devices/system/cpu/cpu[0-1]/cache/index0/level\n1\n\
             === /sys/devices/system/cpu/cpu[0-1]/cache/index0/shared_cpu_list\n0\n\
             === /sys/devices/system/cpu/cpu[0-1]/cache/index3/level\n3\n\
             === /sys/devices/system/cpu/cpu[0-1]/cache/index3/shared_cpu_list\n0-3\n\
             === /sys/devices/system/node/node0/cpulist\n0-1\n\
             === /sys/devices/system/node/node1/cpulist\n2-3\n\
             === /sys/devices/system/node/possible\n0-1\n",
        );
        assert_eq!(machine.online().to_string(), "0-1,3");
        let [zero, one, three] = machine.cpus.as_slice() else { panic!("{:?}", machine.cpus) };
        assert_eq!((zero.siblings.to_string(), zero.package, zero.node), ("0-1".into(), Some(0), Some(0)));
        assert_eq!(one.cache.as_ref().unwrap().to_string(), "0-3");
        assert_eq!((three.siblings.to_string(), three.node, &three.cache), ("2-3".into(), Some(1), &None));
        assert_eq!(told(&machine, "/cpu/"), Vec::<String>::new());
    }

    #[test]
    fn sparse_machine() {
        let machine = read("=== /sys/devices/system/cpu/online\n0\n");
        let cpu = &machine.cpus[0];
        assert_eq!((cpu.siblings.to_string(), cpu.package, cpu.node), ("0".into(), None, None));
    }

    #[test]
    fn malformed_files_are_reported() {
        let machine = read(
            "=== /sys/devices/system/cpu/online\n0-1\n\
             === /sys/devices/system/cpu/cpu0/topology/thread_siblings_list\n0-\n\
             === /sys/devices/system/cpu/cpu0/topology/physical_package_id\nnone\n\
             === /sys/devices/system/cpu/cpu1/topology/physical_package_id\n-1\n\
             === /sys/devices/system/cpu/cpu0/cache/index0/level\n3\n\
             === /sys/devices/system/cpu/cpu0/cache/index0/shared_cpu_list\n0:1\n",
        );
        assert_eq!((machine.cpus[0].package, machine.cpus[1].package), (None, None));
        for path in ["thread_siblings_list, line 1", "physical_package_id, line 1", "shared_cpu_list, line 1"]
        {
            assert_eq!(told(&machine, path).len(), 1, "{path}: {:?}", machine.unknown);
        }
        let none = read("=== /proc/x\n");
        assert!(none.cpus.is_empty());
        assert_eq!(
            told(&none, "/cpu/"),
            ["cannot read /sys/devices/system/cpu/online: there is no such file"]
        );
    }
}
