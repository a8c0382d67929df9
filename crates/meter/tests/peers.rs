//! Several meters behind a balancer by trace id whose list changes: halves whose mates went elsewhere are told from halves that have none.

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use proptest::prelude::*;
use prost::Message;
use spangap_meter::engine::{Meter, Settings};
use spangap_meter::peers::ROUND_MS;
use spangap_meter::report::PeerState;
use spangap_model::Accounting;

const SERVER: i32 = 2;
const CLIENT: i32 = 3;
const TTL_MS: u64 = 2_000;
const STEP_MS: u64 = 200;

fn half(kind: i32, call: u64) -> Vec<u8> {
    let value = Some(AnyValue { value: Some(any_value::Value::StringValue(format!("s{kind}"))) });
    let name = KeyValue { key: "service.name".into(), value, ..KeyValue::default() };
    let is_client = kind == CLIENT;
    let span = Span {
        kind,
        trace_id: [call.to_be_bytes(), [7; 8]].concat(),
        span_id: if is_client { call } else { 1_000_000 + call }.to_be_bytes().to_vec(),
        parent_span_id: if is_client { Vec::new() } else { call.to_be_bytes().to_vec() },
        start_time_unix_nano: 1000,
        end_time_unix_nano: if is_client { 2000 } else { 1500 },
        ..Span::default()
    };
    let resource = Resource { attributes: vec![name], ..Resource::default() };
    let scope = ScopeSpans { spans: vec![span], ..ScopeSpans::default() };
    let spans =
        ResourceSpans { resource: Some(resource), scope_spans: vec![scope], ..ResourceSpans::default() };
    ExportTraceServiceRequest { resource_spans: vec![spans] }.encode_to_vec()
}

/// Meters that ask each other; each has a clock of its own, some minutes apart.
struct Fleet {
    meters: Vec<Option<Meter>>,
    now_ms: u64,
}

impl Fleet {
    fn new(count: usize) -> Fleet {
        Fleet { meters: (0..count).map(|_| Some(Fleet::meter())).collect(), now_ms: 0 }
    }

    fn meter() -> Meter {
        Meter::new(Settings {
            join_ttl_ms: Some(TTL_MS as u32),
            peers_secret: Some(b"a secret of at least 32 characters".into()),
            lanes: 2,
            max_pending_bytes: 8 << 20,
            ..Settings::default()
        })
    }

    fn clock_ms(&self, number: usize) -> u64 {
        self.now_ms + 100_000 * number as u64
    }

    fn running(&self) -> impl Iterator<Item = (usize, &Meter)> {
        self.meters.iter().enumerate().filter_map(|(number, meter)| Some((number, meter.as_ref()?)))
    }

    fn send(&self, to: usize, kind: i32, call: u64) {
        if let Some(meter) = &self.meters[to] {
            meter.ingest(&half(kind, call), self.clock_ms(to)).unwrap();
        }
    }

    fn step(&mut self) {
        self.now_ms += STEP_MS;
        for (number, meter) in self.running() {
            meter.tick(self.clock_ms(number));
        }
        if self.now_ms.is_multiple_of(ROUND_MS) {
            self.running().for_each(|(number, meter)| self.ask(number, meter));
        }
    }

    /// One asks all, also itself, as addresses of a shared name are.
    fn ask(&self, number: usize, meter: &Meter) {
        let addresses: Vec<String> = (0..self.meters.len()).map(address).collect();
        let now_ms = self.clock_ms(number);
        let asked = meter.peers().unwrap().list(&addresses, now_ms);
        for address in asked {
            let other: usize = address.parse().unwrap();
            loop {
                let after = meter.peers().unwrap().after(&address);
                let asked = self.meters[other].as_ref();
                let answer = asked.map(|asked| asked.peers().unwrap().tell(after, self.clock_ms(other)));
                let mut peers = meter.peers().unwrap();
                match answer {
                    Some(answer) if peers.hear(&address, after, &answer, now_ms, now_ms).unwrap() => {}
                    Some(_) => break,
                    None => break peers.miss(&address, "connection refused".into(), true, now_ms),
                }
            }
        }
    }

    fn steps(&mut self, ms: u64) {
        (0..ms / STEP_MS).for_each(|_| self.step());
    }

    /// After everything is settled.
    fn accounting(&mut self) -> Vec<Option<Accounting>> {
        self.steps(3 * TTL_MS + 10_000);
        let one = |meter: &Meter| {
            let accounting = meter.accounting();
            assert!(accounting.holds() && accounting.pending == 0, "{accounting:?}");
            let services = meter.overview().services;
            let unmatched: u64 = services.iter().map(|(_, c)| c.client_unmatched + c.server_unmatched).sum();
            let alone = accounting.expired_client_only + accounting.expired_server_only;
            assert_eq!(unmatched, alone);
            accounting
        };
        self.meters.iter().map(|meter| meter.as_ref().map(one)).collect()
    }
}

fn address(number: usize) -> String {
    number.to_string()
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    at_ms: u64,
    later_ms: u64,
    /// Where each half goes.
    to: [usize; 2],
    /// Whether only one half is ever sent.
    lost: Option<bool>,
}

prop_compose! {
    fn sent()(
        // A step past the time to live, one meter may still join.
        step in 0u64..40, later in (0u64..16).prop_filter("undecided", |later| later * STEP_MS != TTL_MS + STEP_MS), client in 0usize..3, server in 0usize..3, together: bool,
        lost in prop_oneof![6 => Just(None), 1 => any::<bool>().prop_map(Some)],
    ) -> Sent {
        let to = [client, if together { client } else { server }];
        Sent { at_ms: step * STEP_MS, later_ms: later * STEP_MS, to, lost }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// While all meters answer, every half gets the class that the truth has for it: wherever the halves of calls go, however far apart
    /// they arrive, and whatever the meters' clocks say.
    #[test]
    fn every_half_is_told_apart_from_those_without_a_mate(calls in prop::collection::vec(sent(), 1..150)) {
        let mut fleet = Fleet::new(3);
        let mut truth = [Accounting::default(); 3];
        let last_ms = 56 * STEP_MS;
        while fleet.now_ms <= last_ms {
            for (id, call) in (1..).zip(&calls) {
                if call.at_ms == fleet.now_ms && call.lost != Some(true) {
                    fleet.send(call.to[0], CLIENT, id);
                }
                if call.at_ms + call.later_ms == fleet.now_ms && call.lost != Some(false) {
                    fleet.send(call.to[1], SERVER, id);
                }
            }
            fleet.step();
        }
        for call in &calls {
            let in_time = call.later_ms <= TTL_MS;
            let [client, server] = call.to;
            match call.lost {
                Some(true) => truth[server].expired_server_only += 1,
                Some(false) => truth[client].expired_client_only += 1,
                None if !in_time => {
                    truth[client].expired_client_only += 1;
                    truth[server].expired_server_only += 1;
                }
                None if client == server => truth[client].joined += 2,
                None => {
                    truth[client].apart += 1;
                    truth[server].apart += 1;
                }
            }
        }
        for truth in &mut truth {
            truth.received = truth.classified();
        }
        prop_assert_eq!(fleet.accounting(), truth.map(Some).to_vec());
    }
}

#[test]
fn what_a_dead_meter_took_along_is_unresolved_and_nothing_else_is() {
    let mut fleet = Fleet::new(3);
    fleet.steps(3 * ROUND_MS);
    // Settled before it dies.
    fleet.send(0, CLIENT, 1);
    fleet.send(2, SERVER, 1);
    fleet.send(0, CLIENT, 2);
    fleet.steps(3 * TTL_MS);
    // Their mates die with it, or never were: nobody can tell.
    fleet.send(2, SERVER, 3);
    fleet.send(0, CLIENT, 3);
    fleet.send(1, CLIENT, 4);
    // Apart at two that live.
    fleet.send(0, CLIENT, 5);
    fleet.send(1, SERVER, 5);
    fleet.step();
    fleet.meters[2] = None;
    // Long after its end it is out of the question.
    fleet.steps(2 * TTL_MS + 2 * ROUND_MS);
    fleet.send(1, CLIENT, 6);
    let all = fleet.accounting();
    let of = |number: usize| {
        let a = all[number].unwrap();
        (a.expired_client_only, a.expired_server_only, a.apart, a.unresolved)
    };
    assert_eq!((of(0), of(1)), ((1, 0, 2, 1), (1, 0, 1, 1)));
}

#[test]
fn a_meter_that_is_added_is_asked_from_its_start_and_a_wrong_answer_is_no_answer() {
    let mut fleet = Fleet::new(2);
    let second = fleet.meters[1].take();
    fleet.steps(3 * TTL_MS);
    fleet.send(0, CLIENT, 1);
    fleet.step();
    fleet.meters[1] = second;
    fleet.send(1, SERVER, 1);
    fleet.send(0, SERVER, 2);
    let all = fleet.accounting();
    assert_eq!(
        (all[0].unwrap().apart, all[0].unwrap().expired_server_only, all[1].unwrap().apart),
        (1, 1, 1)
    );

    let first = fleet.meters[0].as_ref().unwrap();
    let mut peers = first.peers().unwrap();
    assert!(peers.knows(peers.token().as_bytes()) && !peers.knows(b"") && !peers.knows(&[b'0'; 64]));
    assert!(peers.hear(&address(1), 0, b"something else", 0, 0).is_err());
    peers.miss(&address(7), "no route".into(), false, 0);
    let coverage = peers.coverage(fleet.now_ms);
    let states: Vec<_> = coverage.peers.iter().map(|peer| peer.state).collect();
    assert_eq!(states, [PeerState::Answers, PeerState::Unheard]);
    assert_eq!((coverage.held, coverage.given_up), (0, 0));
}

#[test]
fn a_meter_that_was_started_anew_at_its_address_tells_everything_anew() {
    let mut fleet = Fleet::new(2);
    for call in 1..6 {
        fleet.send(1, SERVER, call);
    }
    fleet.steps(TTL_MS + 2 * ROUND_MS);
    assert_eq!(fleet.meters[0].as_ref().unwrap().peers().unwrap().after(&address(1)), 5);
    // Between two rounds of questions.
    fleet.step();
    fleet.meters[1] = Some(Fleet::meter());
    for call in 10..20 {
        fleet.send(0, CLIENT, call);
        fleet.send(1, SERVER, call);
    }
    let all = fleet.accounting();
    assert_eq!((all[0].unwrap().apart, all[1].unwrap().apart), (10, 10));
}

#[test]
fn a_meter_with_several_addresses_is_one() {
    let fleet = Fleet::new(2);
    let [first, second] = [0, 1].map(|number: usize| fleet.meters[number].as_ref().unwrap());
    let mut peers = first.peers().unwrap();
    let answer = second.peers().unwrap().tell(0, 0);
    for address in [address(1), address(8), address(1)] {
        assert_eq!(peers.hear(&address, 0, &answer, 0, 0), Ok(false));
    }
    assert_eq!(peers.coverage(0).peers.len(), 1);
}
