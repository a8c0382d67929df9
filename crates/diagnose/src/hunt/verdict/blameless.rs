//! Owners of most of an excess that are not to blame for it, as far as calls show: what remains if every other owner has its
//! time goes by a name, and these look-alikes go by the same.

use super::named::{MOMENTS, Named};
use crate::claims::{hits_at_once, is_remainder};
use crate::hunt::Asked;
use crate::hunt::answer::Answered;
use spangap_model::Cause;

/// A path varies if some calls take longer on it by this much of what it takes anyway. Any long path takes a little longer now
/// and then.
const VARIES: f64 = 0.5;
/// Sending takes longer because of the size if messages are so many times as large.
const LARGER: f64 = 1.25;

/// What so many ordinary calls do as well does not make the others slow.
const ALSO: f64 = 0.5;

/// Whether slow calls have more of it for no reason that its name would tell.
pub fn is_blameless(named: &Named, answered: &Answered) -> bool {
    if answered.asked == Asked::All {
        return false;
    }
    match named.culprit.cause {
        Cause::NetworkJitter => !varies(named, answered),
        // Messages of the same size take as long to send, unless something holds them up.
        Cause::LargePayload => answered.larger < LARGER,
        // Where ordinary calls open connections as well, something holds up the opening of some.
        Cause::ConnectionPerCall | Cause::TlsHandshake => {
            answered.present.get(&named.owner).is_some_and(|present| present.ordinary_share > ALSO)
        }
        _ => false,
    }
}

fn varies(named: &Named, answered: &Answered) -> bool {
    let present = answered.present.get(&named.owner);
    present.is_none_or(|present| present.ns - present.ordinary_ns >= VARIES * present.ordinary_ns)
}

/// Whether it acted on all of a host, on a path or in a whole application at once, and in so few moments that it may have been
/// anything.
pub fn is_of_few_moments(named: &Named, answered: &Answered) -> bool {
    let moments = answered.present.get(&named.owner).map_or(0.0, |present| present.moments);
    let is_at_once = match answered.asked {
        Asked::Slow => hits_at_once(named.culprit.cause) || is_remainder(named.culprit.cause),
        // Of everything, or beside a reference, a remainder is what calls consist of at any moment.
        Asked::All | Asked::Against => hits_at_once(named.culprit.cause),
    };
    is_at_once && moments < MOMENTS
}

#[cfg(test)]
mod tests {
    use crate::hunt::innocents::{by_thread, running};
    use crate::hunt::tests::{call, leg, lost, of};
    use crate::hunt::{CallRecord, Hunt, Kind};
    use spangap_model::{Cause, Culprit, Leg, Legs, Side};

    fn named(hunt: &Hunt) -> Option<Cause> {
        hunt.culprits.first().map(|one| one.culprit.cause)
    }

    fn place(hunt: &Hunt) -> Option<Legs> {
        hunt.place.as_ref().map(|place| place.leg)
    }

    /// Every fifth call takes so long both ways, the others 20 ms each.
    fn over_a_path(slow_ms: i64) -> Hunt {
        of((0..300).map(|n| {
            let ms = if n % 5 == 0 { slow_ms } else { 20 };
            let legs = vec![leg(Leg::RequestWire, ms), leg(Leg::ServerApp, 1), leg(Leg::ResponseWire, ms)];
            call(n * 10, "/a", [vec![leg(Leg::ClientAppOut, 0)], legs].concat(), Vec::new())
        }))
    }

    #[test]
    fn a_long_path_that_takes_a_little_longer_now_and_then_is_a_place_and_no_jitter() {
        let little = over_a_path(26);
        assert_eq!((little.verdict, named(&little)), (Kind::Place, None), "{little:#?}");
        assert!(little.place.as_ref().is_some_and(|place| place.both_ways), "{little:#?}");
        assert!(little.words.contains("both directions; no single cause"), "{}", little.words);
        assert_eq!(named(&over_a_path(45)), Some(Cause::NetworkJitter));
    }

    #[test]
    fn a_path_that_stalled_once_is_no_jitter() {
        // Thirty calls of one second wait until its end.
        let hunt = of((0..900).map(|n| {
            let back = if n < 30 { 1_000 - n * 10 } else { 1 };
            let legs = vec![leg(Leg::ClientAppOut, 0), leg(Leg::ServerApp, 1), leg(Leg::ResponseWire, back)];
            call(n, "/a", legs, Vec::new())
        }));
        assert_eq!((hunt.verdict, named(&hunt)), (Kind::Unknown, None), "{hunt:#?}");
    }

    /// Every tenth call sends for 60 ms, the others for 10.
    fn sends(bytes: u64, slow_bytes: u64) -> Hunt {
        of((0..300).map(|n| {
            let (ms, bytes) = if n % 10 == 0 { (60, slow_bytes) } else { (10, bytes) };
            let legs = vec![leg(Leg::ClientAppOut, 0), leg(Leg::ServerApp, 1), leg(Leg::ServerSend, ms)];
            CallRecord {
                response_bytes: Some(bytes),
                windows: [Some(1 << 20); 2],
                ..call(n * 10, "/a", legs, Vec::new())
            }
        }))
    }

    #[test]
    fn size_is_not_why_some_messages_of_the_same_size_take_longer() {
        let same = sends(600_000, 600_000);
        assert_eq!((named(&same), place(&same)), (None, Some(Legs::one(Leg::ServerSend))), "{same:#?}");
        assert_eq!(named(&sends(300_000, 900_000)), Some(Cause::LargePayload));
    }

    #[test]
    fn size_is_not_to_blame_where_the_receiver_may_not_have_let_it_in() {
        let of = |windows| {
            of((0..100).map(|n| {
                let legs =
                    vec![leg(Leg::ClientAppOut, 0), leg(Leg::ServerApp, 1), leg(Leg::ServerSend, 50 + n % 3)];
                let response_bytes = Some(600_000);
                CallRecord { response_bytes, windows, ..call(n * 10, "/a", legs, Vec::new()) }
            }))
        };
        // The server's own window has nothing to do with what the client lets in.
        assert_eq!(named(&of([Some(1 << 20), None])), Some(Cause::LargePayload));
        for client in [None, Some(16 << 10)] {
            let unknown = of([client, Some(1 << 20)]);
            assert_eq!(
                (named(&unknown), place(&unknown)),
                (None, Some(Legs::one(Leg::ServerSend))),
                "{unknown:#?}"
            );
        }
    }

    /// Every tenth call, and every call if `all` do, opens a connection; every tenth takes 1,000 ms for that, any other 10.
    fn opens(culprit: Culprit, all: bool) -> Hunt {
        of((0..300).map(|n| {
            let (is_slow, is_opened) = (n % 10 == 0, all || n % 10 == 0);
            let ms = if is_slow { 1_000 } else { 10 };
            let legs = vec![leg(Leg::ClientAppOut, if is_opened { ms } else { 0 }), leg(Leg::ServerApp, 1)];
            let mut opened = lost(ms as u64);
            opened.culprit = culprit;
            call(n * 10, "/a", legs, if is_opened { vec![opened] } else { Vec::new() })
        }))
    }

    #[test]
    fn what_ordinary_calls_do_as_well_is_not_why_others_are_slow() {
        let per_call = Culprit::at(Cause::ConnectionPerCall, Side::Client);
        for culprit in [per_call, Culprit::of(Cause::TlsHandshake)] {
            assert_eq!(named(&opens(culprit, false)), Some(culprit.cause));
            let all = opens(culprit, true);
            assert_eq!((named(&all), place(&all)), (None, Some(Legs::one(Leg::ClientAppOut))), "{all:#?}");
        }
    }

    /// An application that stalls so often, for half a second, among quick calls every 10 ms.
    fn stalls(times: i64) -> Hunt {
        of((0..600).map(|n| {
            let within = n % 100;
            let ms = if n / 100 < times && within < 50 { 500 - within * 10 } else { 2 };
            let served = by_thread(Leg::ServerApp, 7 + within as u32, ms, vec![running(ms)]);
            call(n, "/a", vec![leg(Leg::ClientAppOut, 0), served], Vec::new())
        }))
    }

    #[test]
    fn an_application_that_stalled_once_is_not_why_calls_are_slow() {
        let once = stalls(1);
        assert_eq!((once.culprits.len(), once.question), (0, "slow"), "{once:#?}");
        assert!(once.words.contains("fewer than four separate moments"), "{}", once.words);
        let often = stalls(6);
        assert_eq!(
            often.culprits.first().map(|one| one.culprit),
            Some(Culprit::at(Cause::ServerApp, Side::Server)),
            "{often:#?}"
        );
    }
}
