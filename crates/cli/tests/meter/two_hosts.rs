//! The commands of `docs/two-hosts.md`, run as written, with addresses of this machine: certificates, meter,
//! agent.

use super::process::{Meter, Program};
use std::path::Path;
use std::process::Command;

const PAGE: &str = include_str!("../../../../docs/two-hosts.md");

/// The shell blocks of the page.
fn blocks() -> Vec<&'static str> {
    PAGE.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh\n")).collect()
}

/// The arguments of the line that starts `spangap`, with these replacements.
fn arguments(block: &str, replaced: &[(&str, &str)]) -> Vec<String> {
    let line = block.lines().find_map(|line| line.strip_prefix("spangap ")).expect("a line with spangap");
    let line = replaced.iter().fold(line.to_owned(), |line, (from, to)| {
        assert!(line.contains(from), "{from} is not in {line}");
        line.replace(from, to)
    });
    line.split_whitespace().map(str::to_owned).collect()
}

fn start(folder: &Path, arguments: &[String]) -> Program {
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    Program::start_with(&arguments, |command| {
        command.current_dir(folder);
    })
}

fn shell(folder: &Path, script: &str) {
    let done = Command::new("sh").args(["-ec", script]).current_dir(folder).output().expect("sh is there");
    assert!(done.status.success(), "{script}\n{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn the_pages_commands_start_a_meter_with_an_agent() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let [papers, meter, services, agent] = blocks().try_into().expect("four blocks for a shell");
    shell(folder, &papers.replace("METER=meter.example", "METER=localhost"));
    let here = [
        ("0.0.0.0:4317", "127.0.0.1:0"),
        ("0.0.0.0:4318", "127.0.0.1:0"),
        ("0.0.0.0:7070", "127.0.0.1:0"),
        ("$METER", "localhost"),
    ];
    let meter = Meter::ready(start(folder, &arguments(meter, &here)));
    // What a service's SDK then finds: the authority, and the token of its role in a header.
    let check = r#"grep -q CERTIFICATE "$OTEL_EXPORTER_OTLP_CERTIFICATE"
grep -qx "ingest ${OTEL_EXPORTER_OTLP_HEADERS#authorization=Bearer%20}" tokens
case $OTEL_RESOURCE_ATTRIBUTES in *host.name=?*) ;; *) exit 1 ;; esac"#;
    shell(folder, &format!("{services}\n{check}"));
    let address = format!("localhost:{}", meter.otlp_grpc.port());
    let agent = start(folder, &arguments(agent, &[("$METER:4317", &address)]));
    let mut said = Vec::new();
    while !said.iter().any(|line: &String| line.contains("attached to")) {
        match agent.error_line() {
            Some(line) => said.push(line),
            // Without rights it cannot record anything, and does not start.
            None => return println!("not run: an agent: {said:?}"),
        }
    }
    let last = said.last().expect("a line");
    assert_eq!(*last, format!("attached to https://{address}"), "{said:?}");
    let url = format!("https://localhost:{}/api/v1/agents", meter.http.port());
    let script = format!(
        "curl -sS --fail --max-time 60 --cacert ca.pem -H \"authorization: Bearer $(cat view.token)\" {url} > agents.json"
    );
    shell(folder, &script);
    let agents = std::fs::read_to_string(folder.join("agents.json")).expect("it was written");
    assert!(agents.contains(r#""connected":true"#), "{agents}");
    // `hunt` knows the meter and the token, too, but there is no such pair.
    let url = format!("https://localhost:{}", meter.http.port());
    let line = PAGE.lines().find(|line| line.starts_with("spangap hunt ")).expect("the line");
    let words = line.split_whitespace().skip(1).map(|word| word.trim_matches('\''));
    let hunt: Vec<String> = words.map(|word| word.replace("https://meter.example:7070", &url)).collect();
    let ended = start(folder, &hunt).wait();
    assert!(ended.err.iter().any(|line| line.contains("frontend") && line.contains("checkout")), "{ended:?}");
}
