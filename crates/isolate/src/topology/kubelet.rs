//! The kubelet's CPU manager: which CPUs it has given to containers alone.

use super::reading::Reading;
use super::{ExclusiveCpus, Kubelet};
use serde_json::Value;
use spangap_machine::{FactError, Known};
use spangap_model::Cpus;

const STATE: &str = "/var/lib/kubelet/cpu_manager_state";
/// Where distributions of Kubernetes have its configuration.
const CONFIGURATIONS: [&str; 4] = [
    "/var/lib/kubelet/config.yaml",
    "/etc/kubernetes/kubelet/kubelet-config.json",
    "/etc/kubernetes/kubelet/config.json",
    "/etc/kubernetes/kubelet.conf",
];

/// Reads its state. A state that is not understood is told, and then nothing is known of what it has given away.
pub(super) fn read(reading: &mut Reading) -> Option<Kubelet> {
    let state = reading.parsed(STATE, state)?;
    let reserved = CONFIGURATIONS.iter().find_map(|path| reading.parsed(path, reserved).flatten());
    Some(Kubelet { reserved, ..state })
}

/// Reads `cpu_manager_state`. CPUs given to a container are under the pod and the container's name, and before
/// Kubernetes 1.18 under the container's id alone.
fn state(path: &str, text: &str) -> Known<Kubelet> {
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
    let entries = match &whole["entries"] {
        Value::Null => serde_json::Map::new(),
        Value::Object(entries) => entries.clone(),
        _ => return Err(bad("entries of containers by pod")),
    };
    for (key, value) in &entries {
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
    Ok(Kubelet { policy: policy.to_owned(), shared, exclusive, reserved: None })
}

/// `reservedSystemCPUs` of a configuration in YAML or JSON, where it has that.
fn reserved(path: &str, text: &str) -> Known<Option<Cpus>> {
    const KEY: &str = "reservedSystemCPUs";
    let is_space = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | '{' | '}');
    for (at, line) in text.lines().enumerate() {
        // In JSON all may be in one line.
        let Some((head, rest)) = line.split_once(KEY) else { continue };
        let head = head.trim_end_matches(['"', '\'']).trim_end();
        if !(head.is_empty() || head.ends_with(['{', ','])) {
            continue;
        }
        let bad = || FactError::malformed(path, at, line, "reservedSystemCPUs with a list of CPUs");
        let value = rest.trim_start_matches(['"', '\'']).trim_start().strip_prefix(':').ok_or_else(bad)?;
        let value = value.split('#').next().unwrap_or(value).trim();
        let list = match value.strip_prefix(['"', '\'']) {
            Some(quoted) => quoted.split(['"', '\'']).next().unwrap_or(quoted),
            None => value.trim_matches(is_space),
        };
        return Cpus::parse_list(list).map(Some).ok_or_else(bad);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read, told};
    use super::*;

    #[test]
    fn both_forms_of_the_state() {
        let newer = r#"{"policyName":"static","defaultCpuSet":"0,8-15","entries":{"u-1":{"db":"1-4"},"u-2":{"a":"5","b":"6-7"}},"checksum":1}"#;
        let kubelet = read(&format!(
            "=== {STATE}\n{newer}\n=== /var/lib/kubelet/config.yaml\ncpuManagerPolicy: static\nreservedSystemCPUs: 0,8\n"
        ));
        let kubelet = kubelet.kubelet.unwrap();
        assert_eq!((kubelet.policy.as_str(), kubelet.shared.to_string()), ("static", "0,8-15".to_owned()));
        let exclusive: Vec<_> = kubelet
            .exclusive
            .iter()
            .map(|one| format!("{}/{} {}", one.pod, one.container, one.cpus))
            .collect();
        assert_eq!(exclusive, ["u-1/db 1-4", "u-2/a 5", "u-2/b 6-7"]);
        assert_eq!(kubelet.reserved.unwrap().to_string(), "0,8");
        let older = r#"{"policyName":"static","defaultCpuSet":"0-3","entries":{"77aa":"4-5"},"checksum":2}"#;
        let older = state(STATE, older).unwrap();
        assert_eq!((older.exclusive[0].pod.as_str(), older.exclusive[0].container.as_str()), ("", "77aa"));
        let none = state(STATE, r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#).unwrap();
        assert!(none.shared.is_empty() && none.exclusive.is_empty());
    }

    #[test]
    fn reserved_cpus_in_yaml_and_json() {
        let of = |text: &str| reserved("/x", text).map(|cpus| cpus.map(|cpus| cpus.to_string()));
        for text in [
            "reservedSystemCPUs: \"0-1\"\n",
            "a: b\nreservedSystemCPUs: 0-1  # two\n",
            "{\"kind\":\"K\",\"reservedSystemCPUs\":\"0-1\",\"x\":1}",
            "{\n  \"reservedSystemCPUs\": \"0-1\",\n}",
        ] {
            assert_eq!(of(text), Ok(Some("0-1".to_owned())), "{text}");
        }
        assert_eq!(of("# reservedSystemCPUs: 0\nkind: x\n"), Ok(None));
        assert!(of("reservedSystemCPUs: all\n").is_err() && of("reservedSystemCPUs\n").is_err());
    }

    #[test]
    fn a_state_cut_off_or_of_another_kind_is_told() {
        for bad in [
            "",
            "{",
            "[]",
            "{\"policyName\":\"static\",\"entries\":[]}",
            "{\"policyName\":\"static\",\"entries\":{\"a\":3}}",
        ] {
            let machine = read(&format!("=== {STATE}\n{bad}\n"));
            assert_eq!((machine.kubelet.clone(), told(&machine, STATE).len()), (None, 1), "{bad}");
        }
        assert_eq!(read("=== /x\n").kubelet, None);
    }
}
