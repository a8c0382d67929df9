//! Third-party programs between the client and the serving program, on the server's host: a proxy, a packet
//! filter.

use super::python::Wait;
use super::{BEHIND_PORT, PATIENCE, PORT, Program, Stage, Surroundings, program};
use crate::{LabError, hosts};
use spangap_model::Side;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Of the run's folder.
const PROXY_LOG: &str = "proxy.waits";
const PROXY_SETTINGS: &str = "proxy.conf";
const PROXY_PID: &str = "proxy.pid";
const TABLE: &str = "lab";

impl Stage<'_> {
    /// Puts nginx in front of the server; with `passes`, it forwards this many requests per second and queues
    /// the rest.
    ///
    /// # Errors
    /// It is not installed, or does not listen.
    pub fn proxy(&mut self, passes: Option<u64>) -> Result<(), LabError> {
        available("nginx", &["-v"], "a proxy")?;
        let folder = self.file("").display().to_string();
        let (zone, limit) = match passes {
            Some(passes) => (
                format!("limit_req_zone $server_port zone=calls:1m rate={passes}r/s;"),
                "limit_req zone=calls burst=10000;",
            ),
            None => (String::new(), ""),
        };
        let (server, folders) = (hosts::SERVER, ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]);
        let folders: String =
            folders.iter().map(|name| format!("{name}_temp_path {folder}proxy-{name};\n")).collect();
        let settings = format!(
            "daemon off; master_process off; pid {folder}{PROXY_PID}; error_log stderr;\nevents {{}}\nhttp {{\n{folders}{zone}\n\
             log_format waits '$http_traceparent $msec $request_time $upstream_response_time';\n\
             access_log {folder}{PROXY_LOG} waits; keepalive_requests 100000;\n\
             upstream behind {{ server {server}:{BEHIND_PORT}; keepalive 64; }}\n\
             server {{ listen {server}:{PORT} backlog=512; {limit}\n\
             location / {{ proxy_pass http://behind; proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }}\n}}\n"
        );
        let path = self.file(PROXY_SETTINGS);
        fs::write(&path, settings).map_err(LabError::file("write", &path))?;
        let mut command = self.on(Side::Server, &Surroundings::default(), Path::new("nginx"));
        command.args(["-p", &folder, "-c"]).arg(&path);
        let proxy = Program::start("proxy", command, &self.folder)?;
        // It writes its pid file once it listens.
        let listening = self.file(PROXY_PID);
        program::until("nginx", PATIENCE, &self.settings.interrupted, || listening.exists().then_some(()))?;
        self.proxy = Some(proxy.pid());
        self.ambient.push(proxy);
        Ok(())
    }

    /// Time that each request spent in the proxy rather than the server, as logged.
    ///
    /// # Errors
    /// The log is empty or malformed.
    pub fn proxy_waits(&self) -> Result<Vec<Wait>, LabError> {
        let path = self.file(PROXY_LOG);
        let text = fs::read_to_string(&path).map_err(LabError::file("read", &path))?;
        Ok(text.lines().filter_map(waited).collect())
    }

    /// Adds a packet filter rule on a host: for segments to the target that match `matches` (in nftables
    /// syntax), it counts each and applies `verdict`. Captures see packets before it.
    ///
    /// # Errors
    /// nftables fails.
    pub fn filter(&mut self, side: Side, matches: &str, verdict: &str) -> Result<(), LabError> {
        available("nft", &["-v"], "a packet filter")?;
        let rules = format!(
            "table inet {TABLE} {{ counter met {{ }}; chain in {{ type filter hook input priority 0; \
             tcp dport {PORT} {matches} counter name \"met\" {verdict}; }}; }}"
        );
        self.nft(side, &[&rules]).map(drop)
    }

    /// Number of segments that matched the rule.
    ///
    /// # Errors
    /// nftables fails.
    pub fn filtered(&self, side: Side) -> Result<f64, LabError> {
        let told = self.nft(side, &["list", "counter", "inet", TABLE, "met"])?;
        let mut words = told.split_whitespace().skip_while(|word| *word != "packets").skip(1);
        let count = words.next().and_then(|word| word.parse().ok());
        count.ok_or_else(|| LabError::program("nft", format!("no count of packets: {told}")))
    }

    fn nft(&self, side: Side, arguments: &[&str]) -> Result<String, LabError> {
        let mut command = self.on(side, &Surroundings::default(), Path::new("nft"));
        let output = command.args(arguments).output();
        let output = output.map_err(|error| LabError::program("nft", error.to_string()))?;
        match output.status.success() {
            true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            false => Err(LabError::program("nft", String::from_utf8_lossy(&output.stderr).trim())),
        }
    }
}

fn available(program: &str, arguments: &[&str], what: &str) -> Result<(), LabError> {
    let found = Command::new(program).args(arguments).output();
    match found.is_ok_and(|output| output.status.success()) {
        true => Ok(()),
        false => Err(LabError::Unavailable {
            what: what.into(),
            why: format!("it needs the program {program}, which a package of that name has"),
        }),
    }
}

/// `00-TRACE-SPAN-01 END REQUEST UPSTREAM`, times in seconds with three digits.
fn waited(line: &str) -> Option<Wait> {
    let words: Vec<&str> = line.split(' ').collect();
    let [context, end, request, upstream] = words[..] else { return None };
    let ns = |seconds: &str| Some((seconds.parse::<f64>().ok()? * 1e3).round() as u64 * 1_000_000);
    let (end, request, upstream) = (ns(end)?, ns(request)?, ns(upstream)?);
    let from_unix_ns = end.checked_sub(request)?;
    Some(Wait {
        what: "proxy".into(),
        trace_id: context.split('-').nth(1)?.to_owned(),
        from_unix_ns,
        to_unix_ns: from_unix_ns + request.saturating_sub(upstream),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_log_line_yields_a_wait() {
        let line = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 1795383490.442 0.030 0.004";
        let wait = waited(line).expect("a line of ours");
        assert_eq!(wait.trace_id, "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(wait.from_unix_ns, 1_795_383_490_412_000_000);
        assert_eq!(wait.to_unix_ns - wait.from_unix_ns, 26_000_000);
        assert_eq!(waited("- 1795383490.442 0.030 -"), None);
    }
}
