//! The kubelet: which pod a process belongs to, and which CPUs the kubelet gave away.

use super::super::{Cpus, FactError, Known};
use std::collections::BTreeMap;

/// Where the kubelet keeps its decisions about CPUs.
pub const STATE: &str = "/var/lib/kubelet/cpu_manager_state";

/// Quality of service of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Qos {
    /// Requests equal limits.
    Guaranteed,
    /// Some requests.
    Burstable,
    /// None.
    BestEffort,
}

/// A pod, as its cgroup tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its number.
    pub uid: String,
    /// Its class.
    pub qos: Qos,
}

/// Finds the pod in the name of a cgroup: `/kubepods/burstable/podUID/...`, or as systemd spells it
/// `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/...`, also below other cgroups.
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

/// What the kubelet's CPU manager decided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuManager {
    /// `none` or `static`.
    pub policy: String,
    /// CPUs that all others share.
    pub shared: Cpus,
    /// CPUs of one container alone, by pod and container.
    pub exclusive: BTreeMap<String, BTreeMap<String, Cpus>>,
}

/// Reads `cpu_manager_state`.
///
/// # Errors
/// It is no such document.
pub fn parse(path: &str, text: &str) -> Known<CpuManager> {
    let bad = |expected| FactError::malformed(path, 0, text, expected);
    let state: serde_json::Value = serde_json::from_str(text).map_err(|_| bad("JSON"))?;
    let cpus = |value: &serde_json::Value| {
        let list = value.as_str().and_then(Cpus::parse_list);
        list.ok_or_else(|| bad("lists of CPUs in defaultCpuSet and entries"))
    };
    let policy = state["policyName"].as_str().ok_or_else(|| bad("policyName"))?.to_owned();
    let shared =
        if state["defaultCpuSet"].is_null() { Cpus::default() } else { cpus(&state["defaultCpuSet"])? };
    let mut exclusive: BTreeMap<String, BTreeMap<String, Cpus>> = BTreeMap::new();
    for (pod, containers) in state["entries"].as_object().into_iter().flatten() {
        for (container, list) in containers.as_object().into_iter().flatten() {
            exclusive.entry(pod.clone()).or_default().insert(container.clone(), cpus(list)?);
        }
    }
    Ok(CpuManager { policy, shared, exclusive })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*|[/a-z.-]{0,40}|\\{\"policyName\":\"[a-z]*\",\"entries\":\\{\"a\":\\{\"b\":\"[0-9,-]*\"\\}\\}\\}") {
            let _ = (pod(&text), parse("/p", &text));
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

    #[test]
    fn the_kubelets_state() {
        let text =
            r#"{"policyName":"static","defaultCpuSet":"0,4-7","entries":{"u":{"app":"1-3"}},"checksum":1}"#;
        let state = parse(STATE, text).unwrap();
        assert_eq!((state.policy.as_str(), state.shared.to_string()), ("static", "0,4-7".to_owned()));
        assert_eq!(state.exclusive["u"]["app"].to_string(), "1-3");
        assert_eq!(
            parse(STATE, r#"{"policyName":"none","defaultCpuSet":"","checksum":1}"#).unwrap().policy,
            "none"
        );
        assert!(parse(STATE, "{}").unwrap_err().to_string().contains("policyName"));
    }
}
