//! `README`: describes a run's folder. It contains the command, and with it the truth; a blind judge does not
//! get it.

use super::machine::Machine;
use super::{CLIENT_SPANS, SERVER_SPANS, capture, recording};
use crate::truth::{LineKind, Truth};
use spangap_model::Side;
use std::fmt::Write;

/// The text. `title` is the one-line description of the scenario or its near miss.
pub(crate) fn text(truth: &Truth, title: &str, machine: &Machine) -> String {
    let mut text = format!("A run of the lab of spangap {}, made by\n\n", machine.versions.spangap);
    let mut line = |words: &str| {
        let _ = writeln!(text, "{words}");
    };
    line(&format!("    {}\n", truth.command));
    line(&format!("What happens: {title}."));
    line(&match truth.side.as_deref() {
        _ if truth.culprit == "none" => "What is to blame: nothing.".to_owned(),
        Some(side) => format!("What is to blame: {}, on the {side}'s side.", truth.culprit),
        None => format!("What is to blame: {}.", truth.culprit),
    });
    if let Some(looks_like) = &truth.looks_like {
        line(&looks(looks_like));
    }
    if let Some(second) = &truth.second {
        line(&format!("A second fault beside it: {}, on the {}'s side.", second.culprit, second.side));
    }
    if let Some(leg) = &truth.leg {
        line(&format!("Leg of the calls that is longer: {leg}."));
    }
    match truth.line {
        Some(LineKind::Netem) => line("Between the hosts: a line of the kernel's netem."),
        Some(LineKind::Tun) => line("Between the hosts: a line of TUN devices and a program that forwards."),
        None => {}
    }
    for clock in &truth.clocks {
        line(&format!("Clock of a host, beside this machine's: {clock}."));
    }
    if !truth.acted {
        line(
            "The fault did NOT act as it should; truth.json says what was expected. This run proves nothing.",
        );
    }
    line(
        "
Files:

  truth.json          what was the matter, when, which calls it cost how much, and what proves it
  client.spans.json   CLIENT spans of all calls, OTLP JSON; also those of the time to warm up
  server.spans.json   SERVER spans
  client.pcapng       packets at the client's network device
  server.pcapng       packets at the server's
  client.host         what the client's threads, the scheduler and interrupts did (`spangap host record`)
  server.host         the same for the server's
  tank.json           what the load generator reported
  machine.json        the machine, what else went on there, when each recording began and ended
  README              this text
",
    );
    for missing in &machine.not_recorded {
        line(&format!("Not recorded: {} ({}).", missing.file, missing.why));
    }
    line("To look at it:\n");
    for command in look_at("", machine) {
        line(&format!("    {command}"));
    }
    text
}

/// What a near miss resembles, in a sentence.
pub fn looks(like: &str) -> String {
    let like = if like == "none" { "a run with nothing wrong" } else { like };
    format!("It looks like {like}, and is not.")
}

/// Commands that examine a folder; `before` is prepended to each file name: empty, or the folder with a slash.
pub fn look_at(before: &str, machine: &Machine) -> Vec<String> {
    let has = |file: &&&str| !machine.not_recorded.iter().any(|missing| missing.file == **file);
    let named = |flag: &str, files: [&str; 2]| -> String {
        files.iter().filter(has).map(|file| format!("{flag}{before}{file}")).collect()
    };
    let gaps = format!("spangap gaps{}", named(" ", [CLIENT_SPANS, SERVER_SPANS]));
    let dissect = format!(
        "spangap dissect{}{}{}",
        named(" ", [capture(Side::Client), capture(Side::Server)]),
        named(" --spans ", [CLIENT_SPANS, SERVER_SPANS]),
        named(" --host ", [recording(Side::Client), recording(Side::Server)]),
    );
    vec![gaps, dissect]
}
