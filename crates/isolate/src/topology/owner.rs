//! Owner of a cgroup, derived from its path.

use super::Owner;

/// Suffixes of systemd units that have cgroups.
const UNITS: [&str; 6] = [".slice", ".service", ".scope", ".socket", ".mount", ".swap"];

/// Owner of a group: that of the innermost path component that reveals one.
pub(super) fn owner(path: &str) -> Owner {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    match parts.as_slice() {
        [] => Owner::Root,
        ["spangap-net" | "spangap-apps", ..] => Owner::Ours,
        parts => kubelet(parts).or_else(|| systemd(parts)).unwrap_or(Owner::Other),
    }
}

/// Both cgroup drivers: `/kubepods/burstable/podUID/ID`, and
/// `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-ID.scope`. Either
/// may be nested in another group, whose name then prefixes the slice's.
fn kubelet(parts: &[&str]) -> Option<Owner> {
    let is_top =
        |part: &&str| *part == "kubepods" || *part == "kubepods.slice" || part.ends_with("-kubepods.slice");
    let below = &parts[parts.iter().position(is_top)? + 1..];
    let pod = below.iter().enumerate().find_map(|(at, part)| Some((at, pod_uid(part)?)));
    let container = pod.as_ref().and_then(|(at, _)| below.get(at + 1)).map(|part| container_id(part));
    Some(Owner::Kubelet { pod: pod.map(|(_, uid)| uid), container })
}

/// `pod1234-ab`, or `kubepods-burstable-pod1234_ab.slice`.
fn pod_uid(part: &str) -> Option<String> {
    match part.strip_suffix(".slice") {
        Some(slice) => slice.rsplit_once("-pod").map(|(_, uid)| uid.replace('_', "-")),
        None => part.strip_prefix("pod").filter(|uid| !uid.is_empty()).map(str::to_owned),
    }
}

/// `77aa`, or `cri-containerd-77aa.scope`.
fn container_id(part: &str) -> String {
    let scope = part.strip_suffix(".scope").and_then(|scope| scope.rsplit('-').next());
    scope.unwrap_or(part).to_owned()
}

fn systemd(parts: &[&str]) -> Option<Owner> {
    let unit = parts.iter().rev().find(|part| UNITS.iter().any(|suffix| part.ends_with(suffix)))?;
    Some(Owner::Systemd { unit: (*unit).to_owned() })
}

/// The unit that a task belongs to.
pub(super) fn unit(path: &str) -> Option<String> {
    match systemd(&path.split('/').collect::<Vec<_>>()) {
        Some(Owner::Systemd { unit }) => Some(unit),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_both_drivers_of_units_and_of_others() {
        let kubelet = |pod: Option<&str>, container: Option<&str>| Owner::Kubelet {
            pod: pod.map(str::to_owned),
            container: container.map(str::to_owned),
        };
        let unit = |unit: &str| Owner::Systemd { unit: unit.to_owned() };
        let cases = [
            ("/", Owner::Root),
            ("/spangap-net", Owner::Ours),
            ("/spangap-apps/x", Owner::Ours),
            ("/kubepods", kubelet(None, None)),
            ("/kubepods/burstable", kubelet(None, None)),
            ("/kubepods/pod12-ab", kubelet(Some("12-ab"), None)),
            ("/kubepods/besteffort/pod12-ab/77aa", kubelet(Some("12-ab"), Some("77aa"))),
            ("/kubepods.slice/kubepods-pod12_ab.slice", kubelet(Some("12-ab"), None)),
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod12_ab.slice/cri-containerd-77aa.scope",
                kubelet(Some("12-ab"), Some("77aa")),
            ),
            (
                "/kubepods.slice/kubepods-pod1.slice/crio-77aa.scope/system.slice",
                kubelet(Some("1"), Some("77aa")),
            ),
            ("/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod1.slice", kubelet(Some("1"), None)),
            ("/system.slice/containerd.service/kubepods/pod1", kubelet(Some("1"), None)),
            ("/system.slice", unit("system.slice")),
            ("/system.slice/docker-77aa.scope", unit("docker-77aa.scope")),
            ("/system.slice/docker.service/inner", unit("docker.service")),
            ("/docker/77aa", Owner::Other),
            ("/podman", Owner::Other),
        ];
        for (path, expected) in cases {
            assert_eq!(owner(path), expected, "{path}");
        }
        assert_eq!(super::unit("/system.slice/irqbalance.service").as_deref(), Some("irqbalance.service"));
        assert_eq!(super::unit("/"), None);
    }
}
