//! Bounds of what agents send: texts are truncated, lists shortened, and what was cut is counted.

use crate::report::Refused;
use spangap_fleet::v1::{Hello, Inventory};

/// Maximum bytes of addresses, containers and texts of one agent.
pub(super) const MOST_BYTES: usize = 1 << 20;
/// The same limit for all agents together.
const MOST_BYTES_OF_ALL: usize = 64 << 20;
/// Maximum bytes of any one text.
pub(super) const MOST_TEXT: usize = 512;
/// Maximum number of texts, rings, instruments of one agent.
pub(super) const MOST_LINES: usize = 64;

/// Cuts an inventory down to the room that those of the other agents, `others` bytes together, leave for it. Returns how many texts and
/// entries were cut.
pub(super) fn fit(inventory: &mut Inventory, others: usize) -> u64 {
    let room = MOST_BYTES.min(MOST_BYTES_OF_ALL.saturating_sub(others));
    let mut cut = 0;
    for text in inventory.addresses.iter_mut() {
        cut += u64::from(shorten(text));
    }
    for one in &mut inventory.containers {
        for text in [&mut one.id, &mut one.pod_uid, &mut one.cgroup] {
            cut += u64::from(shorten(text));
        }
    }
    while bytes_of(inventory) > room {
        // Drops the last quarter repeatedly: an excess is a lie or a mistake.
        let keep = |len: usize| len - len.div_ceil(4);
        let (addresses, containers) = (inventory.addresses.len(), inventory.containers.len());
        inventory.addresses.truncate(keep(addresses));
        inventory.containers.truncate(keep(containers));
        cut += (addresses - inventory.addresses.len() + containers - inventory.containers.len()) as u64;
    }
    cut
}

/// Truncates the texts of a hello, and removes the inventory from it.
pub(super) fn bounded_hello(hello: &mut Hello, refused: &mut Refused) -> Inventory {
    for text in [
        &mut hello.spangap,
        &mut hello.host_name,
        &mut hello.machine_id,
        &mut hello.boot_id,
        &mut hello.kernel,
    ] {
        refused.texts_cut += u64::from(shorten(text));
    }
    refused.texts_cut += lines(&mut hello.instruments) + lines(&mut hello.lacks) + lines(&mut hello.allows);
    hello.inventory.take().unwrap_or_default()
}

/// Truncates a list and its texts. Returns how many were cut.
pub(super) fn lines(lines: &mut Vec<String>) -> u64 {
    let over = lines.len().saturating_sub(MOST_LINES) as u64;
    lines.truncate(MOST_LINES);
    over + lines.iter_mut().map(|line| u64::from(shorten(line))).sum::<u64>()
}

/// Whether the text had to be truncated.
pub(super) fn shorten(text: &mut String) -> bool {
    let is_long = text.len() > MOST_TEXT;
    if is_long {
        let end = (0..=MOST_TEXT).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or(0));
        text.shrink_to_fit();
    }
    is_long
}

/// Bytes that an inventory occupies.
pub(super) fn bytes_of(inventory: &Inventory) -> usize {
    let text = |text: &String| text.len() + size_of::<String>();
    inventory.addresses.iter().map(text).sum::<usize>()
        + inventory
            .containers
            .iter()
            .map(|one| text(&one.id) + text(&one.pod_uid) + text(&one.cgroup))
            .sum::<usize>()
}
