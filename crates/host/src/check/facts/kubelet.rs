//! The kubelet: which pod a process belongs to.

/// Quality of service of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Qos {
    /// Requests equal limits for every container.
    Guaranteed,
    /// At least one request or limit.
    Burstable,
    /// Neither requests nor limits.
    BestEffort,
}

/// A pod, identified by its cgroup's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub uid: String,
    /// Quality-of-service class.
    pub qos: Qos,
}

/// Recognises the pod in a cgroup's path: `/kubepods/burstable/podUID/...`, or with systemd's naming
/// `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/...`. Either may be nested in
/// other cgroups.
pub fn pod(cgroup: &str) -> Option<Pod> {
    let mut inside = false;
    let mut qos = Qos::Guaranteed;
    for part in cgroup.split('/') {
        let part = part.strip_suffix(".slice").unwrap_or(part);
        let part = part.rsplit_once("kubepods").map_or(part, |(_, rest)| {
            inside = true;
            rest
        });
        if !inside {
            continue;
        }
        for word in part.splitn(3, '-') {
            match word {
                "burstable" => qos = Qos::Burstable,
                "besteffort" => qos = Qos::BestEffort,
                _ => {}
            }
        }
        let uid = part.strip_prefix("pod").or_else(|| part.split_once("-pod").map(|(_, uid)| uid));
        if let Some(uid) = uid.filter(|uid| !uid.is_empty()) {
            return Some(Pod { uid: uid.replace('_', "-"), qos });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*|[/a-z.-]{0,40}") {
            let _ = pod(&text);
        }
    }

    #[test]
    fn pods_by_the_name_of_their_cgroup() {
        let uid = "8a3c1d2e-0000-4c1b-9d3e-111122223333";
        let spelled = uid.replace('-', "_");
        for (cgroup, qos) in [
            (format!("/kubepods/pod{uid}/0a1b"), Qos::Guaranteed),
            (format!("/kubepods/burstable/pod{uid}/0a1b"), Qos::Burstable),
            (
                format!("/kubepods.slice/kubepods-pod{spelled}.slice/cri-containerd-0a1b.scope"),
                Qos::Guaranteed,
            ),
            (
                format!(
                    "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{spelled}.slice/x.scope"
                ),
                Qos::BestEffort,
            ),
            (
                format!(
                    "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{spelled}.slice"
                ),
                Qos::Burstable,
            ),
        ] {
            assert_eq!(pod(&cgroup), Some(Pod { uid: uid.into(), qos }), "{cgroup}");
        }
        assert_eq!(pod("/system.slice/podman-7.scope"), None);
        assert_eq!(pod("/kubepods.slice"), None);
    }
}
