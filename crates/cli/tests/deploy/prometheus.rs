//! Rules and dashboards, checked by promtool and by a Prometheus that scrapes a meter with calls.

use crate::process::{FREE_PORTS, Meter, Program, until};
use crate::server::{Prometheus, Scrape, installed};
use crate::{done, here};
use serde_json::Value;
use std::collections::BTreeSet;

const RULES: [&str; 2] = ["deploy/prometheus/rules.yaml", "deploy/prometheus/alerts.yaml"];

#[test]
fn promtool_accepts_the_rules_and_their_tests_pass() {
    let Some(said) = done("promtool", &[&["check", "rules"], &RULES[..]].concat()) else {
        return println!("not run: the rules of deploy/prometheus: there is no promtool");
    };
    assert!(said.contains("rules found"), "{said}");
    done("promtool", &["test", "rules", "deploy/prometheus/tests.yaml"]);
}

/// Every alert has a case in which it fires: its `alertname` is followed by expected alerts.
#[test]
fn every_alert_is_tested() {
    let read = |path: &str| std::fs::read_to_string(here(path)).expect("text");
    let (alerts, tests) = (read(RULES[1]), read("deploy/prometheus/tests.yaml"));
    let mut named = 0;
    for name in alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        named += 1;
        let fires = tests.split("alertname: ").skip(1).any(|case| {
            case.lines().next() == Some(name)
                && case.lines().nth(2).is_some_and(|line| line.trim() == "exp_alerts:")
        });
        assert!(fires, "{name} has no case in which it fires");
    }
    assert!(named > 10, "{named} alerts");
}

#[test]
fn dashboards_match_their_script() {
    if done("node", &["deploy/grafana/dashboards.mjs", "--check"]).is_none() {
        println!("not run: the dashboards of deploy/grafana: there is no node");
    }
}

/// The queries of a dashboard with their variables filled in, by panel title.
fn queries(dashboard: &str) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(here(&format!("deploy/grafana/{dashboard}.json"))).expect("text");
    let document: Value = serde_json::from_str(&text).expect("JSON");
    let mut queries = Vec::new();
    for panel in document["panels"].as_array().expect("panels") {
        let title = panel["title"].as_str().expect("a title");
        for target in panel["targets"].as_array().expect("targets") {
            let mut expr = target["expr"].as_str().expect("an expression").to_owned();
            for (variable, value) in
                [("$client", ".*"), ("$server", ".*"), ("$instance", ".*"), ("$__rate_interval", "1m")]
            {
                expr = expr.replace(variable, value);
            }
            assert!(!expr.contains('$'), "{title}: a variable that nobody fills in: {expr}");
            queries.push((title.to_owned(), expr));
        }
    }
    queries
}

/// Names of the metrics in an expression.
fn metrics(expr: &str) -> BTreeSet<String> {
    let words = expr.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    words.filter(|word| word.starts_with("spangap") && !word.ends_with(':')).map(str::to_owned).collect()
}

/// Series that exist only after something has gone wrong that no healthy run does.
const OF_TROUBLE: [&str; 2] = ["spangap_negative_calls_total", "spangap_whole_span_horizon_seconds"];

#[test]
fn every_query_has_an_answer_for_a_real_run() {
    if let Err(why) = installed() {
        return println!("not run: the queries of deploy/ on a real Prometheus: {why}");
    }
    let demo = Meter::ready(Program::start(&[&["demo", "--interval", "2ms"], &FREE_PORTS[..]].concat()));
    let rules = RULES.map(|path| here(path).to_str().expect("a plain path").to_owned());
    let prometheus =
        Prometheus::start_with_rules(demo.http, Scrape::Classic, &rules.each_ref().map(String::as_str));
    let answer = |expr: &str| {
        let data = prometheus.api("query", &[("query", expr)]);
        data["result"].as_array().cloned().unwrap_or_default()
    };
    // A minute closes one time to live after its end; from then on the pair has rising counters.
    until("calls in the recording rules", || {
        answer("spangap:calls:rate5m > 0").into_iter().next().filter(|row| row["metric"]["client"] == "tank")
    });
    for dashboard in ["fleet", "pair", "meter"] {
        for (title, expr) in queries(dashboard) {
            if !metrics(&expr).iter().any(|name| OF_TROUBLE.contains(&name.as_str())) {
                eprintln!("{dashboard}, {title}");
                // Rules are evaluated after the scrapes they depend on, and rules that depend on rules later
                // still.
                prometheus.query(&expr);
            }
        }
    }
    let groups = prometheus.api("rules", &[]);
    let mut rules = 0;
    for group in groups["groups"].as_array().expect("groups") {
        for rule in group["rules"].as_array().expect("rules") {
            rules += 1;
            assert!(rule["lastError"].is_null(), "{rule:#}");
            // A healthy run fires no alert. Whether its calls are fast depends on who else uses the CPU.
            let of_speed = group["name"] == "spangap-slo";
            assert!(of_speed || rule["type"] != "alerting" || rule["state"] == "inactive", "{rule:#}");
        }
    }
    assert!(rules > 30, "{rules} rules");
    assert_eq!(demo.stop().code, Some(0));
}

/// The capabilities that the systemd unit and the chart's pod give the agent, and no others.
const CAPABILITIES: &str = "-all,+net_raw,+bpf,+perfmon,+sys_ptrace,+syslog";

#[test]
fn an_agent_with_the_capabilities_of_the_chart_fills_its_dashboard() {
    for file in ["deploy/systemd/spangap-agent.service", "deploy/kustomize/base/spangap.yaml"] {
        let text = std::fs::read_to_string(here(file)).expect("text");
        for name in CAPABILITIES.split(',').skip(1) {
            let name = name.trim_start_matches('+').to_uppercase();
            assert!(
                text.contains(&format!("CAP_{name}")) || text.contains(&format!("- {name} ")),
                "{file}: {name}"
            );
        }
    }
    if let Err(why) = installed() {
        return println!("not run: the dashboard of the agents on a real Prometheus: {why}");
    }
    if !rustix::process::geteuid().is_root() || crate::output("setpriv", &["--version"]).is_none() {
        return println!("not run: an agent with the capabilities of the chart: it needs root and setpriv");
    }
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("it").port();
    let address: std::net::SocketAddr = ([127, 0, 0, 1], port).into();
    let mut command = crate::command("setpriv", &[]);
    command.args([format!("--bounding-set={CAPABILITIES}"), format!("--inh-caps={CAPABILITIES}")]);
    command.args(["--no-new-privs", env!("CARGO_BIN_EXE_spangap"), "agent", "--interface", "lo"]);
    // Nobody accepts its slices; it records all the same.
    command.args(["--meter", "http://127.0.0.1:1", "--health", &address.to_string()]);
    let agent = Program::spawn(command);
    until("the agent's health port", || std::net::TcpStream::connect(address).ok());
    let health = || -> Value {
        let answer = crate::server::get(address, "/metrics", "text/plain");
        String::from_utf8_lossy(&answer).into_owned().into()
    };
    let is_recorded = |instrument: &str| {
        let seen = format!("spangap_agent_ring_canaries_seen_total{{instrument=\"{instrument}\"}} ");
        health().as_str().expect("text").contains(&seen).then_some(())
    };
    until("packets in its ring", || is_recorded("capture"));
    // Without the right to trace there would be none. Its programs are loaded only once packets are being
    // recorded.
    if spangap_host::kernel::Kernel::look().lost().is_empty() {
        until("events of the host in its ring", || is_recorded("host-record"));
    }
    let prometheus = Prometheus::start(address, Scrape::Classic);
    for (title, expr) in queries("hosts") {
        eprintln!("hosts, {title}");
        prometheus.query(&expr);
    }
    agent.signal("TERM");
    assert_eq!(agent.wait().code, Some(0));
}
