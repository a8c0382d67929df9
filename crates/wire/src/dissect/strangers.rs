//! Captures without a common connection: a loud warning, with what each of them contains.

use super::{Dissection, SectionTotals};
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
    let links = dissection.hops.as_ref().map_or(0, |hops| hops.calls);
    if captures.len() > 2 && strangers.is_empty() && links == 0 {
        return unlinked(dissection).into_iter().collect();
    }
    if captures.len() < 2 || strangers.is_empty() {
        return Vec::new();
    }
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
    } else if let Some(method) =
        common_method(dissection, |capture, _| capture == 0, |capture, _| capture == 1)
    {
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

/// Pairs of captures, each with connections in common, and not one call of a pair linked with one of another: a call
/// through a proxy would count once for each pair. Pairs that share a capture are two clients of one server, or the like.
fn unlinked(dissection: &Dissection) -> Option<String> {
    let all = || dissection.sections.iter().enumerate().filter(|(_, section)| section.matched > 0);
    let apart = |a: &SectionTotals, b: &SectionTotals| !a.captures.iter().any(|own| b.captures.contains(own));
    let (method, one, other) = all().find_map(|(place, one)| {
        all().filter(|(later, other)| *later > place && apart(one, other)).find_map(|(later, other)| {
            let method =
                common_method(dissection, |_, section| section == place, |_, section| section == later)?;
            Some((method, one, other))
        })
    })?;
    let files = |section: &SectionTotals| {
        let of = |capture: &u8| dissection.captures.get(usize::from(*capture));
        let names = section.captures.iter().filter_map(of).map(|capture| capture.reading.file.as_str());
        names.collect::<Vec<_>>().join(" and ")
    };
    Some(format!(
        "No call of {} is linked with one of {}, and both have calls of {method}: if a proxy is between them, each \
         call is counted twice. Calls without a trace context are linked by their content only where one clock times \
         both sides of the proxy: give its captures one name, as in proxy=in.pcap proxy=out.pcap.",
        files(one),
        files(other)
    ))
}

/// A method that calls here and there have, of those shown; where is a matter of capture and section.
fn common_method(
    dissection: &Dissection,
    here: impl Fn(u8, usize) -> bool,
    there: impl Fn(u8, usize) -> bool,
) -> Option<String> {
    let all =
        || dissection.methods.iter().map(|((capture, section, _), text)| (*capture, *section, path(text)));
    let there =
        |wanted: &str| all().any(|(capture, section, text)| there(capture, section) && text == wanted);
    let found = all().find(|(capture, section, text)| here(*capture, *section) && there(text));
    found.map(|(_, _, text)| text.to_owned())
}

/// `/a` of `GET /a`.
fn path(method: &str) -> &str {
    method.split_once(' ').map_or(method, |(_, path)| path)
}
