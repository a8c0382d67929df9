//! Matches the packets of one tap with those of the other: the arrows of a ladder.
//!
//! Bytes match if their sequence numbers do; bare ACKs match if sequence and acknowledgement number do.
//! Segmentation offload merges several packets into one, or splits one, so one sent packet may arrive as several.

use super::{LadderReport, RungReport, side_name};
use serde::Serialize;
use spangap_model::Side;

/// Fate of a packet in transit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Way {
    /// Seen at both taps.
    Crossed,
    /// Seen only where it was sent, although the other tap saw packets before and after it.
    Lost,
    /// Seen at one tap, and the ladder does not show its fate.
    Unknown,
}

/// One arrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Crossing {
    /// The sender.
    #[serde(serialize_with = "side_name")]
    pub from: Side,
    /// Index of the packet in the ladder where it was sent.
    pub sent: Option<usize>,
    /// Index of the packet in the ladder where it arrived.
    pub arrived: Option<usize>,
    /// Its fate.
    pub way: Way,
}

/// The arrows of a ladder, by the time of their first known end.
pub(super) fn crossings(ladder: &LadderReport) -> Vec<Crossing> {
    let rungs = &ladder.packets;
    let mut all = Vec::new();
    for from in [Side::Client, Side::Server] {
        let at = |seen_at: Side| -> Vec<usize> {
            (0..rungs.len())
                .filter(|place| rungs[*place].from == from && rungs[*place].seen_at == seen_at)
                .collect()
        };
        all.extend(one_way(ladder, from, &at(from), &at(from.other())));
    }
    if all.iter().all(|crossing| crossing.way != Way::Crossed) {
        // Only one end, or numbers rewritten on the path: the fate of all is unknown.
        all.iter_mut().for_each(|crossing| crossing.way = Way::Unknown);
    }
    let time = |crossing: &Crossing| {
        crossing.sent.or(crossing.arrived).map(|place| (rungs[place].since_start_ns, place))
    };
    all.sort_by_key(time);
    all
}

fn one_way(ladder: &LadderReport, from: Side, sent: &[usize], arrived: &[usize]) -> Vec<Crossing> {
    let rungs = &ladder.packets;
    let slack_ns = ladder.correction_bound_ns.map_or(0, |bound| i64::try_from(bound).unwrap_or(i64::MAX));
    let mut crossings: Vec<Crossing> = arrived
        .iter()
        .map(|place| {
            let way_of = |sent: Option<usize>| if sent.is_some() { Way::Crossed } else { Way::Unknown };
            let sent = sender_of(rungs, *place, sent, arrived, slack_ns);
            Crossing { from, sent, arrived: Some(*place), way: way_of(sent) }
        })
        .collect();
    let at_receiver = || rungs.iter().filter(|rung| rung.seen_at != from).map(|rung| rung.since_start_ns);
    let (first_at_receiver, last_at_receiver) = (at_receiver().min(), at_receiver().max());
    let missing =
        sent.iter().filter(|place| !crossings.iter().any(|crossing| crossing.sent == Some(**place)));
    let missing: Vec<Crossing> = missing
        .map(|place| {
            let rung = &rungs[*place];
            let later_seen =
                last_at_receiver.is_some_and(|last| last > rung.since_start_ns.saturating_add(slack_ns));
            // Each end has its own first packet: a packet that arrived before the receiver's first is not in the
            // ladder.
            let earlier_seen =
                first_at_receiver.is_some_and(|first| first <= rung.since_start_ns.saturating_add(slack_ns));
            let sent_again = sent.iter().any(|other| other > place && overlap(&rungs[*other], rung));
            // If packets were left out, its arrival may be among them.
            let lost = later_seen && (sent_again || earlier_seen && ladder.left_out == 0);
            Crossing {
                from,
                sent: Some(*place),
                arrived: None,
                way: if lost { Way::Lost } else { Way::Unknown },
            }
        })
        .collect();
    crossings.extend(missing);
    crossings
}

/// The packet at the sender's tap that arrived as `place`.
fn sender_of(
    rungs: &[RungReport],
    place: usize,
    sent: &[usize],
    arrived: &[usize],
    slack_ns: i64,
) -> Option<usize> {
    let rung = &rungs[place];
    let alike = |among: &[usize]| -> Vec<usize> {
        among.iter().copied().filter(|other| same(&rungs[*other], rung)).collect()
    };
    let (senders, receivers) = (alike(sent), alike(arrived));
    if senders.len() == receivers.len() {
        // Each arrived: the first matches the first, even if it was retransmitted before it arrived.
        let order = receivers.iter().position(|other| *other == place)?;
        return senders.get(order).copied();
    }
    let mut candidates =
        sent.iter().filter(|other| same(&rungs[**other], rung) || overlap(&rungs[**other], rung));
    let latest = rung.since_start_ns.saturating_add(slack_ns);
    candidates.rfind(|other| rungs[**other].since_start_ns <= latest).copied()
}

fn same(a: &RungReport, b: &RungReport) -> bool {
    (a.seq, a.bytes, &a.flags) == (b.seq, b.bytes, &b.flags) && (a.bytes > 0 || a.ack == b.ack)
}

/// Whether two packets of one direction share bytes; sequence numbers wrap.
fn overlap(a: &RungReport, b: &RungReport) -> bool {
    let ahead = b.seq.wrapping_sub(a.seq);
    let behind = a.seq.wrapping_sub(b.seq);
    a.bytes > 0 && b.bytes > 0 && (ahead < a.bytes || behind < b.bytes)
}

#[cfg(test)]
mod tests {
    use super::super::samples::rung;
    use super::*;

    fn ladder(packets: Vec<RungReport>) -> LadderReport {
        let packets = packets.into_iter().map(|rung| RungReport { notes: Vec::new(), ..rung }).collect();
        LadderReport {
            correction_ns: Some(0),
            correction_bound_ns: Some(1_000),
            packets,
            left_out: 0,
            ..LadderReport::default()
        }
    }

    const C: Side = Side::Client;
    const S: Side = Side::Server;

    fn ends(ladder: &LadderReport) -> Vec<(Option<usize>, Option<usize>, Way)> {
        crossings(ladder)
            .into_iter()
            .map(|crossing| (crossing.sent, crossing.arrived, crossing.way))
            .collect()
    }

    #[test]
    fn lost_and_retransmitted_packets_are_matched() {
        let ladder = ladder(vec![
            rung(C, C, 1, 0, 100, 50),
            rung(C, C, 2, 200_000_000, 100, 50),
            rung(S, C, 1, 200_050_000, 100, 50),
            rung(S, S, 2, 200_060_000, 900, 10),
            rung(C, S, 3, 200_110_000, 900, 10),
        ]);
        let lost = (Some(0), None, Way::Lost);
        assert_eq!(ends(&ladder), [lost, (Some(1), Some(2), Way::Crossed), (Some(3), Some(4), Way::Crossed)]);
    }

    #[test]
    fn a_retransmission_before_the_first_arrival_is_matched() {
        let ladder = ladder(vec![
            rung(C, C, 1, 0, 100, 50),
            rung(C, C, 2, 10_000, 100, 50),
            rung(S, C, 1, 20_000, 100, 50),
            rung(S, C, 2, 30_000, 100, 50),
        ]);
        assert_eq!(ends(&ladder), [(Some(0), Some(2), Way::Crossed), (Some(1), Some(3), Way::Crossed)]);
    }

    #[test]
    fn one_super_frame_arrives_in_pieces_across_the_wrap() {
        let start = u32::MAX - 999;
        let ladder = ladder(vec![
            rung(C, C, 1, 0, start, 3_000),
            rung(S, C, 1, 50_000, start, 1_500),
            rung(S, C, 2, 51_000, start.wrapping_add(1_500), 1_500),
        ]);
        assert_eq!(ends(&ladder), [(Some(0), Some(1), Way::Crossed), (Some(0), Some(2), Way::Crossed)]);
    }

    #[test]
    fn one_end_or_left_out_packets_prove_no_loss() {
        let one_end = ladder(vec![rung(C, C, 1, 0, 100, 50), rung(C, S, 2, 90, 900, 10)]);
        assert!(crossings(&one_end).iter().all(|crossing| crossing.way == Way::Unknown));
        let mut cut = ladder(vec![
            rung(C, C, 1, 0, 100, 50),
            rung(S, C, 1, 50, 100, 50),
            rung(C, C, 2, 60, 150, 50),
            rung(S, C, 9, 500_000, 700, 50),
        ]);
        assert_eq!(crossings(&cut)[1].way, Way::Lost);
        cut.left_out = 5;
        assert_eq!(crossings(&cut)[1].way, Way::Unknown);
    }
}
