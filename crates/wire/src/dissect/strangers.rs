//! Captures without a common connection: a loud warning, with what each of them contains.

use super::Dissection;
use crate::tcp::ConnectionFacts;
use spangap_model::count::grouped;
use spangap_model::duration::format_ns;

/// Servers named of one capture.
const SERVERS: usize = 3;

/// A sentence for each capture without a connection in common, and what may be the matter.
pub(super) fn warnings(dissection: &Dissection) -> Vec<String> {
    let captures = &dissection.captures;
    let joined = |capture: usize| {
        let of = |section: &&super::SectionTotals| section.captures.contains(&(capture as u8));
        dissection.sections.iter().filter(of).any(|section| section.matched > 0)
    };
    let strangers: Vec<usize> = (0..captures.len()).filter(|capture| !joined(*capture)).collect();
    if captures.len() < 2 || strangers.is_empty() {
        return Vec::new();
    }
    let links = dissection.hops.as_ref().map_or(0, |hops| hops.calls);
    let mut sentences = Vec::new();
    if captures.len() == 2 {
        sentences.push("The two captures have no connection in common.".to_owned());
    }
    for capture in strangers {
        let reading = &captures[capture].reading;
        let which = if captures.len() == 2 {
            "has"
        } else {
            "has no connection in common with any other capture; it has"
        };
        sentences.push(format!("{} {which} {}.", reading.file, what(capture, dissection)));
    }
    if let [first, second] = &captures[..]
        && let (Some(a), Some(b)) = (
            first.reading.first_ns.zip(first.reading.last_ns),
            second.reading.first_ns.zip(second.reading.last_ns),
        )
    {
        let apart_ns = (b.0 - a.1).max(a.0 - b.1);
        sentences.push(match apart_ns {
            apart if apart > 0 => format!(
                "By their clocks, one ended {} before the other began.",
                format_ns(apart.unsigned_abs())
            ),
            _ => "By their clocks, they overlap.".to_owned(),
        });
    }
    if links > 0 {
        sentences.push(format!(
            "{} calls are linked across proxies by their content: a proxy is between these captures. Captures at \
             the proxy, on both its sides, would tell its own time from the network's.",
            grouped(links)
        ));
    } else if let Some(method) = common_method(dissection) {
        sentences.push(format!(
            "Both have calls of {method}: a proxy or load balancer that opens its own connections may be between \
             them. A capture there, on both its sides, would show that."
        ));
    } else {
        sentences.push(
            "Check that they were taken at the same time and of the same traffic, and that their filters have the right port."
                .to_owned(),
        );
    }
    vec![sentences.join(" ")]
}

/// `120 calls to 10.0.0.2:80 from 10.0.0.1 and 3 others`
fn what(capture: usize, dissection: &Dissection) -> String {
    let number = capture as u8;
    let mut servers: Vec<(String, u64, Vec<String>)> = Vec::new();
    let mut others = 0;
    for connection in &dissection.connections {
        let Some(ConnectionFacts { ends: [client, server], .. }) = connection.seen_by(number) else {
            continue;
        };
        let (server, client) = (server.to_string(), client.ip().to_string());
        let known = servers.iter().position(|known| known.0 == server);
        if known.is_none() && servers.len() >= SERVERS {
            others += 1;
            continue;
        }
        let place = known.unwrap_or_else(|| {
            servers.push((server, 0, Vec::new()));
            servers.len() - 1
        });
        servers[place].1 += connection.sums.calls;
        if !servers[place].2.contains(&client) {
            servers[place].2.push(client);
        }
    }
    let said: Vec<String> = servers
        .iter()
        .map(|(server, calls, clients)| {
            let more =
                if clients.len() > 1 { format!(" and {} more", clients.len() - 1) } else { String::new() };
            format!("{} calls from {}{more} to {server}", grouped(*calls), clients[0])
        })
        .collect();
    match (said.is_empty(), others) {
        (true, _) => "no call".to_owned(),
        (false, 0) => said.join(", "),
        (false, others) => format!("{}, and {} more connections", said.join(", "), grouped(others)),
    }
}

/// A method that calls of both captures have, of those shown.
fn common_method(dissection: &Dissection) -> Option<String> {
    let of = |capture: u8| {
        let of_capture = dissection.methods.iter().filter(move |((number, ..), _)| *number == capture);
        of_capture.map(|(_, text)| text)
    };
    let text = of(0).find(|text| of(1).any(|other| path(other) == path(text)))?;
    Some(path(text).to_owned())
}

/// `/a` of `GET /a`.
fn path(method: &str) -> &str {
    method.split_once(' ').map_or(method, |(_, path)| path)
}
