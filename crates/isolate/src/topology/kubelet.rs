//! The kubelet's CPU manager: which CPUs it has assigned to containers exclusively.

use super::reading::Reading;
use super::{ExclusiveCpus, Kubelet};
use spangap_machine::facts::cpu_manager_state;
use spangap_machine::{FactError, Known};
use spangap_model::Cpus;

/// Where Kubernetes distributions keep its configuration.
const CONFIGURATIONS: [&str; 4] = [
    "/var/lib/kubelet/config.yaml",
    "/etc/kubernetes/kubelet/kubelet-config.json",
    "/etc/kubernetes/kubelet/config.json",
    "/etc/kubernetes/kubelet.conf",
];

/// Reads its state. A state of unknown format is reported, and its assignments are then unknown.
pub(super) fn read(reading: &mut Reading) -> Option<Kubelet> {
    let state = reading.parsed(cpu_manager_state::PATH, cpu_manager_state::parse)?;
    let reserved = CONFIGURATIONS.iter().find_map(|path| reading.parsed(path, reserved).flatten());
    let exclusive = state.exclusive.into_iter();
    let exclusive = exclusive
        .map(|one| ExclusiveCpus { pod: one.pod, container: one.container, cpus: one.cpus })
        .collect();
    Some(Kubelet { policy: state.policy, shared: state.shared, exclusive, reserved })
}

/// `reservedSystemCPUs` of a configuration in YAML or JSON, if set.
fn reserved(path: &str, text: &str) -> Known<Option<Cpus>> {
    const KEY: &str = "reservedSystemCPUs";
    let is_space = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | ',' | '{' | '}');
    for (at, line) in text.lines().enumerate() {
        // JSON may be on a single line.
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
    use cpu_manager_state::PATH as STATE;

    #[test]
    fn state_and_reserved_cpus() {
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
    fn truncated_or_unknown_state_is_reported() {
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
