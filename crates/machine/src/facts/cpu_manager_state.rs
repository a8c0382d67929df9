//! The kubelet's `cpu_manager_state`: CPUs assigned to containers exclusively, and the shared rest.

use crate::{FactError, Known};
use serde_json::Value;
use spangap_model::Cpus;

/// Where every kubelet writes it, unless started with another root.
pub const PATH: &str = "/var/lib/kubelet/cpu_manager_state";

/// Decisions of the kubelet's CPU manager.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuManagerState {
    /// `none` or `static`.
    pub policy: String,
    /// CPUs shared by all containers without exclusive CPUs.
    pub shared: Cpus,
    /// Exclusive CPUs by container.
    pub exclusive: Vec<ExclusiveCpus>,
}

/// A container with exclusive CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExclusiveCpus {
    /// Pod uid; empty in the format before Kubernetes 1.18, which lacks it.
    pub pod: String,
    /// Container name; in the format before Kubernetes 1.18 its id.
    pub container: String,
    /// CPUs that no other container may run on.
    pub cpus: Cpus,
}

impl ExclusiveCpus {
    /// Whether it belongs to a pod: to this uid or, if the state has only the container's id, to the pod with a
    /// process in this cgroup. A container's cgroup ends in its id with every runtime.
    pub fn is_of(&self, uid: &str, cgroup: &str) -> bool {
        match self.pod.is_empty() {
            true => !self.container.is_empty() && cgroup.contains(&self.container),
            false => self.pod == uid,
        }
    }
}

/// Parses both formats: by pod and container, and before Kubernetes 1.18 by the container's id.
///
/// # Errors
/// Another document, or a format that neither version writes.
pub fn parse(path: &str, text: &str) -> Known<CpuManagerState> {
    let bad = |expected| FactError::malformed(path, 0, text, expected);
    let whole: Value = serde_json::from_str(text).map_err(|_| bad("a state of the CPU manager, as JSON"))?;
    let policy = whole["policyName"].as_str().ok_or_else(|| bad("policyName in it"))?;
    let cpus = |value: &Value| {
        let list = value.as_str().and_then(Cpus::parse_list);
        list.ok_or_else(|| bad("lists of CPUs for everybody (defaultCpuSet) and for containers (entries)"))
    };
    let shared = match &whole["defaultCpuSet"] {
        Value::Null => Cpus::default(),
        list => cpus(list)?,
    };
    let mut exclusive = Vec::new();
    let none = serde_json::Map::new();
    let entries = match &whole["entries"] {
        Value::Null => &none,
        Value::Object(entries) => entries,
        _ => return Err(bad("entries of containers by pod")),
    };
    for (key, value) in entries {
        match value {
            Value::Object(containers) => {
                for (container, list) in containers {
                    let (pod, container) = (key.clone(), container.clone());
                    exclusive.push(ExclusiveCpus { pod, container, cpus: cpus(list)? });
                }
            }
            list => {
                let (pod, container) = (String::new(), key.clone());
                exclusive.push(ExclusiveCpus { pod, container, cpus: cpus(list)? });
            }
        }
    }
    Ok(CpuManagerState { policy: policy.to_owned(), shared, exclusive })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_text_panics(text in "\\PC*|\\{\"policyName\":\"[a-z]*\",\"entries\":\\{\"a\":(\"[0-9,-]*\"|\\{\"b\":\"[0-9,-]*\"\\})\\}\\}") {
            let _ = parse(PATH, &text);
        }
    }

    #[test]
    fn both_forms() {
        let newer = r#"{"policyName":"static","defaultCpuSet":"0,8-15","entries":{"u-1":{"db":"1-4"},"u-2":{"a":"5","b":"6-7"}},"checksum":1}"#;
        let newer = parse(PATH, newer).unwrap();
        assert_eq!((newer.policy.as_str(), newer.shared.to_string()), ("static", "0,8-15".to_owned()));
        let shown = newer.exclusive.iter().map(|one| format!("{}/{} {}", one.pod, one.container, one.cpus));
        assert_eq!(shown.collect::<Vec<_>>(), ["u-1/db 1-4", "u-2/a 5", "u-2/b 6-7"]);
        assert!(
            newer.exclusive[0].is_of("u-1", "/") && !newer.exclusive[0].is_of("u-2", "/kubepods/podu-2/db")
        );

        let older = r#"{"policyName":"static","defaultCpuSet":"0-3","entries":{"77aa":"4-5"},"checksum":2}"#;
        let older = parse(PATH, older).unwrap();
        let [one] = older.exclusive.as_slice() else { panic!("{older:?}") };
        assert_eq!(
            (one.pod.as_str(), one.container.as_str(), one.cpus.to_string()),
            ("", "77aa", "4-5".into())
        );
        assert!(one.is_of("u-1", "/kubepods/podu-1/77aa") && !one.is_of("u-1", "/kubepods/podu-1/88bb"));

        let none = parse(PATH, r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#).unwrap();
        assert!(none.shared.is_empty() && none.exclusive.is_empty());
    }

    #[test]
    fn other_documents_are_rejected() {
        for bad in ["", "{", "[]", "{}", r#"{"policyName":"static","entries":[]}"#] {
            assert!(parse(PATH, bad).is_err(), "{bad}");
        }
        let error = parse(PATH, r#"{"policyName":"static","entries":{"a":3}}"#).unwrap_err().to_string();
        assert!(error.contains("line 1") && error.contains("lists of CPUs"), "{error}");
    }
}
