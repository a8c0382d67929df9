//! The Helm chart and the kustomize base.

use crate::process::{FREE_PORTS, Meter, Program};
use crate::{done, here};
use std::fs;

/// Everything that the chart can render, and some configurations with less.
const VALUES: [&[&str]; 7] = [
    &["meter.enabled=true"],
    &["agent.enabled=true", "agent.tokenSecret.name=spangap-agent"],
    &["meter.enabled=false", "agent.enabled=true", "agent.meter=https://meter.example:4317"],
    &[
        "agent.enabled=true",
        "serviceMonitor.enabled=true",
        "prometheusRule.enabled=true",
        "dashboards.enabled=true",
        "meter.persistence.storageClassName=fast",
        "meter.extraArgs={--by,method}",
    ],
    &[
        "agent.enabled=true",
        "serviceMonitor.enabled=true",
        "serviceMonitor.tokenSecret.name=spangap-view",
        "meter.tokenSecret.name=spangap-tokens",
        "meter.tls.secretName=spangap-meter-tls",
        "meter.tls.agentsNeedCertificates=true",
        "agent.tokenSecret.name=spangap-agent",
        "agent.tls.secretName=spangap-agent-tls",
        "agent.tls.showCertificate=true",
    ],
    &[
        "agent.enabled=true",
        "agent.allow={sockets,isolate}",
        "meter.tokenSecret.name=spangap-tokens",
        "agent.tokenSecret.name=spangap-agent",
    ],
    &["meter.kubernetes.enabled=true", "meter.config.by=pod"],
];

fn rendered(values: &[&str]) -> Option<String> {
    let mut arguments = vec![
        "template",
        "here",
        "deploy/helm/spangap",
        // A helm built by `go install` assumes an old Kubernetes.
        "--kube-version",
        "1.34.0",
        "--namespace",
        "spangap",
        "--set",
        "image.repository=example/spangap",
    ];
    for value in values {
        arguments.extend(["--set", *value]);
    }
    done("helm", &arguments)
}

#[test]
fn helm_accepts_the_chart() {
    let Some(said) = done(
        "helm",
        &["lint", "--strict", "deploy/helm/spangap", "--set", "image.repository=example/spangap"],
    ) else {
        return println!("not run: the chart: there is no helm (make test-deploy builds it)");
    };
    assert!(said.contains("0 chart(s) failed"), "{said}");
    let all = rendered(VALUES[3]).expect("helm is there");
    for kind in [
        "StatefulSet",
        "DaemonSet",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "ServiceMonitor",
        "PrometheusRule",
    ] {
        assert!(all.contains(&format!("kind: {kind}\n")), "no {kind}");
    }
    assert!(rendered(VALUES[2]).is_some_and(|text| !text.contains("StatefulSet")));
    // Without an image nothing can be installed, and the error says so.
    let bare =
        crate::output("helm", &["template", "here", "deploy/helm/spangap", "--kube-version", "1.34.0"])
            .expect("helm is there");
    assert!(
        !bare.status.success()
            && String::from_utf8_lossy(&bare.stderr).contains("image.repository: name the image")
    );
}

/// Agents that may change something must be enabled by name, get the rights they need and no more, and obey
/// nobody without a token.
#[test]
fn agents_change_nothing_without_permission() {
    let [usual, allowed] = [VALUES[1], VALUES[5]].map(rendered);
    let (Some(usual), Some(allowed)) = (usual, allowed) else {
        return println!("not run: the chart's agents: there is no helm (make test-deploy builds it)");
    };
    for part in ["privileged: true", "--allow", "hostPath"] {
        assert!(!usual.contains(part), "{part}");
        assert!(allowed.contains(part), "no {part}");
    }
    let sockets = ["agent.enabled=true", "agent.allow={sockets}", "meter.tokenSecret.name=tokens"];
    let sockets = rendered(&sockets).expect("helm is there");
    assert!(sockets.contains("--allow=sockets\n") && !sockets.contains("privileged: true"), "{sockets}");
    let open = ["template", "here", "deploy/helm/spangap", "--kube-version", "1.34.0", "--set"];
    let open = crate::output(
        "helm",
        &[&open[..], &["image.repository=x,agent.enabled=true,agent.allow={sockets}"]].concat(),
    )
    .expect("helm is there");
    let said = String::from_utf8_lossy(&open.stderr);
    assert!(!open.status.success() && said.contains("agent.allow needs meter.tokenSecret"), "{said}");
}

/// A meter may read pods and nodes only if it was told to name them, and then nothing else.
#[test]
fn the_meter_asks_the_api_for_nothing_unless_it_is_told_to() {
    let [usual, naming] = [VALUES[0], VALUES[6]].map(rendered);
    let (Some(usual), Some(naming)) = (usual, naming) else {
        return println!("not run: the chart's meter: there is no helm (make test-deploy builds it)");
    };
    for part in [
        "kind: ClusterRole\n",
        "kind: ClusterRoleBinding\n",
        "automountServiceAccountToken: true",
        "kubernetes = ",
        "port: 6443",
    ] {
        assert!(!usual.contains(part), "{part}");
        assert!(naming.contains(part), "no {part}");
    }
    let rules: Vec<&str> = naming.lines().filter(|line| line.contains("apiGroups: [")).collect();
    assert_eq!(rules, [r#"  - { apiGroups: [""], resources: [pods, nodes], verbs: [list, watch] }"#]);
}

/// Kinds that are not part of Kubernetes itself.
const OF_OPERATORS: [&str; 2] = ["ServiceMonitor", "PrometheusRule"];

#[test]
fn rendered_manifests_match_kubernetes_schemas() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut documents = Vec::new();
    for values in VALUES {
        let Some(text) = rendered(values) else {
            return println!("not run: the chart's documents: there is no helm (make test-deploy builds it)");
        };
        documents.extend(text.split("\n---\n").map(str::to_owned));
    }
    let base = fs::read_to_string(here("deploy/kustomize/base/spangap.yaml")).expect("text");
    documents.extend(base.split("\n---\n").map(str::to_owned));
    let own = |text: &&String| {
        text.contains("kind: ") && !OF_OPERATORS.iter().any(|kind| text.contains(&format!("kind: {kind}\n")))
    };
    let text = documents.iter().filter(own).cloned().collect::<Vec<_>>().join("\n---\n");
    let file = folder.path().join("all.yaml");
    fs::write(&file, &text).expect("written");
    for version in ["1.25", "1.34"] {
        let arguments = ["--strict", "--kubernetes-version", version, file.to_str().expect("a plain path")];
        let Some(said) = done("kubernetes-validate", &arguments) else {
            return println!(
                "not run: Kubernetes' schemas: there is no kubernetes-validate (make test-deploy fetches it)"
            );
        };
        assert!(!said.contains("ERROR"), "{said}");
    }
}

#[test]
fn the_kustomize_base_is_what_the_chart_renders() {
    let Some(now) = done("deploy/kustomize/render.sh", &["--check"]) else {
        return println!("not run: the kustomize base: there is no helm (make test-deploy builds it)");
    };
    if now.contains("not run") {
        return println!("{now}");
    }
    let Some(built) = done("kubectl", &["kustomize", "deploy/kustomize/base"]) else {
        return println!("not run: kustomize: there is no kubectl");
    };
    assert!(built.contains("kind: StatefulSet") && built.contains("namespace: spangap"), "{built}");
}

/// The chart writes options by name: the meter must accept them and start.
#[test]
fn the_meter_accepts_the_charts_configuration() {
    let folder = tempfile::tempdir().expect("a folder");
    let base = fs::read_to_string(here("deploy/kustomize/base/spangap.yaml")).expect("text");
    let (_, rest) = base.split_once("meter.toml: |\n").expect("the configuration");
    let text: String = rest
        .lines()
        .take_while(|line| line.starts_with("    "))
        .map(|line| format!("{}\n", line.trim_start()))
        .collect();
    assert!(text.contains("otlp-grpc = ") && text.contains("history-size = "), "{text}");
    let (file, data) = (folder.path().join("meter.toml"), folder.path().join("data"));
    fs::write(&file, &text).expect("written");
    let [file, data] = [&file, &data].map(|path| path.to_str().expect("a plain path"));
    let arguments = ["meter", "--config", file, "--data", data];
    let meter = Meter::ready(Program::start(&[&arguments[..], &FREE_PORTS[..]].concat()));
    assert_eq!(meter.stop().code, Some(0));
}
