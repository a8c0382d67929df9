//! `--clickhouse`: two meters, of which either shows the calls of both; killed, and with ClickHouse away for a while.

use super::client::{Answer, request};
use super::process::{FREE_PORTS, Meter, Program, until};
use super::spans::{calls, gap_ns, trace_id};
use super::stores_front::Front;
use prost::Message;
use spangap_meter::report::{CallReport, PairRow, PairsReport, Timeline, WorstReport};
use std::ops::Range;
use std::path::Path;

fn send(meter: &Meter, server: &str, numbers: Range<u64>) {
    let body = calls("web", server, numbers).encode_to_vec();
    let kind = [("Content-Type", "application/x-protobuf")];
    let answer = request(meter.otlp_http, "POST", "/v1/traces", &kind, &body);
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// A meter with a folder of its own, which is killed and started again.
struct Killed<'a> {
    folder: &'a Path,
    meter: Option<Meter>,
}

impl<'a> Killed<'a> {
    fn start(folder: &'a Path, name: &str, front: &Front) -> Killed<'a> {
        let settings = format!("url = \"{}\"\ndatabase = \"spans\"\nname = \"{name}\"\n", front.url);
        std::fs::write(folder.join("clickhouse.toml"), settings).expect("it can be written");
        let mut killed = Killed { folder, meter: None };
        killed.again();
        killed
    }

    /// Kills it, if it runs, and starts it: minutes that were open are closed then.
    fn again(&mut self) {
        if let Some(meter) = self.meter.take() {
            meter.program.signal("KILL");
            assert_eq!(meter.program.wait().code, None);
        }
        let settings = self.folder.join("clickhouse.toml");
        let arguments = ["--data", self.folder.to_str().unwrap(), "--clickhouse", settings.to_str().unwrap()];
        self.meter = Some(Meter::start(&[&arguments[..], &["--join-ttl", "100ms"]].concat()));
    }

    fn meter(&self) -> &Meter {
        self.meter.as_ref().unwrap()
    }

    /// Waits until a checkpoint has what was sent, which a kill can then not undo.
    fn stores(&self, wanted: u64) {
        until("a checkpoint with the calls", || {
            let file = rusqlite::Connection::open(self.folder.join("history.sqlite")).ok()?;
            let sum = "SELECT coalesce(sum(calls), 0) FROM (SELECT calls FROM minute UNION ALL SELECT calls FROM open_minute)";
            let stored: i64 = file.query_row(sum, [], |row| row.get(0)).ok()?;
            (stored == wanted as i64).then_some(())
        });
    }

    fn unsent(&self) -> u64 {
        self.meter().coverage().clickhouse.expect("it is given").unsent_rows
    }

    /// The table over all meters, once it has this many calls.
    fn of_all(&self, wanted: u64) -> Vec<PairRow> {
        until(&format!("{wanted} calls of all meters"), || {
            let report: PairsReport = self.meter().api("/api/v1/pairs?window=1h&meters=all&sort=pair");
            let found: u64 = report.pairs.iter().map(|row| row.calls).sum();
            assert!(found <= wanted, "{found} calls of {wanted}: {:#?}", report.pairs);
            (found == wanted).then_some(report.pairs)
        })
    }
}

fn metric(meter: &Meter, name: &str) -> u64 {
    let text = String::from_utf8(meter.get("/metrics").body).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ').map(String::from));
    line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

#[test]
fn either_of_two_meters_shows_the_calls_of_both_whoever_is_killed() {
    let [first, second, tables] = [(); 3].map(|()| tempfile::tempdir().expect("a temporary directory"));
    let Some(mut front) = Front::start(tables.path(), &[]) else { return };
    let mut first = Killed::start(first.path(), "first", &front);
    let mut second = Killed::start(second.path(), "second", &front);

    send(first.meter(), "cart", 0..300);
    send(second.meter(), "cart", 300..500);
    send(second.meter(), "stock", 500..550);
    first.stores(300);
    second.stores(250);
    // What is open is not shared, and the answer says whose minutes it has.
    let own: PairsReport = first.meter().api("/api/v1/pairs?window=1h&meters=this");
    assert_eq!(own.pairs[0].calls, 300);
    assert!(own.of_meters.expect("it is told").note.contains("this meter alone"));
    front.lose_answer_of(2);
    first.again();
    second.again();
    let rows = second.of_all(550);
    assert_eq!(front.sql("SELECT uniq(meter) FROM spans.spangap_intervals").trim(), "2");
    let sums: Vec<_> = rows.iter().map(|row| (&row.server[..], row.calls, row.lost_ns_total)).collect();
    let sum = |numbers: Range<u64>| numbers.map(gap_ns).sum::<u64>();
    assert_eq!(sums, [("cart", 500, sum(0..500)), ("stock", 50, sum(500..550))]);
    // Match ratios are those of the meter that is asked.
    let without_match = |rows: Vec<PairRow>| -> Vec<PairRow> {
        let plain = |row| PairRow { client_match_ratio: None, server_match_ratio: None, ..row };
        rows.into_iter().map(plain).collect()
    };
    assert_eq!(without_match(first.of_all(550)), without_match(rows), "both say the same");
    let report: PairsReport = first.meter().api("/api/v1/pairs?window=1h");
    let of_meters = report.of_meters.expect("all meters are meant, unless told otherwise");
    assert_eq!(of_meters.meters.iter().map(|one| &one.name[..]).collect::<Vec<_>>(), ["first", "second"]);
    let timeline: Timeline = first.meter().api("/api/v1/timeline?window=1h");
    assert_eq!(timeline.points.iter().map(|point| point.calls).sum::<u64>(), 550);
    let pair: spangap_meter::report::PairOverTime =
        first.meter().api("/api/v1/pair?client=web&server=stock&window=1h");
    assert_eq!((pair.total.calls, pair.points.iter().map(|point| point.gap.count).sum::<u64>()), (50, 50));
    // The other meter's worst call, with its spans.
    let worst: WorstReport = first.meter().api("/api/v1/worst?window=1h&limit=3");
    assert_eq!(
        worst.calls.iter().map(|one| one.call.gap_ns).collect::<Vec<_>>(),
        [549, 548, 547].map(gap_ns)
    );
    let id: String = trace_id(549).iter().map(|byte| format!("{byte:02x}")).collect();
    let call: CallReport = first.meter().api(&format!("/api/v1/call?trace_id={id}"));
    assert!(call.client_span.is_some() && call.server_span.is_some());
    let nothing = first.meter().api_error(&format!("/api/v1/traces/{id}"), 404);
    assert!(nothing.contains("the Collector's table"), "{nothing}");

    // ClickHouse is away: rows wait, also across kills, and answers say that they lack the other meter.
    front.kill();
    send(first.meter(), "cart", 550..650);
    first.stores(400);
    for _ in 0..2 {
        first.again();
        until("an attempt that fails", || {
            (metric(first.meter(), "spangap_clickhouse_failing") == 1).then_some(())
        });
    }
    until("rows that wait", || (first.unsent() > 0).then_some(()));
    assert!(metric(first.meter(), "spangap_clickhouse_unsent_rows") > 0);
    assert!(metric(first.meter(), "spangap_clickhouse_failed_requests_total") > 0);
    let notes = first.meter().coverage().notes;
    assert!(notes.iter().any(|note| note.contains("ClickHouse: nothing can be sent since")), "{notes:?}");
    let own: PairsReport = first.meter().api("/api/v1/pairs?window=1h");
    assert_eq!(own.pairs.iter().map(|row| row.calls).sum::<u64>(), 400);
    assert!(own.of_meters.expect("it is told").note.contains("because ClickHouse does not answer"));
    let refused: Answer = first.meter().get("/api/v1/pairs?window=1h&meters=all");
    assert_eq!(refused.status, 503, "{refused:?}");

    front.restart();
    for meter in [&first, &second] {
        let lost: u64 = meter.of_all(650).iter().map(|row| row.lost_ns_total).sum();
        assert_eq!(lost, sum(0..650));
    }
    until("nothing waits any more", || (first.unsent() == 0).then_some(()));
    assert_eq!(metric(first.meter(), "spangap_clickhouse_failing"), 0);
    assert_eq!(metric(first.meter(), "spangap_clickhouse_lost_rows_total"), 0);
}

#[test]
fn without_a_history_on_disk_or_without_settings_it_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let settings = folder.path().join("clickhouse.toml");
    std::fs::write(&settings, "url = \"http://127.0.0.1:1\"\n").expect("it can be written");
    let arguments = ["--clickhouse", settings.to_str().unwrap()];
    let ended = Program::start(&[&["meter"], &FREE_PORTS[..], &arguments].concat()).wait();
    assert!(ended.code == Some(1) && ended.err.join("\n").contains("expected --data DIR"), "{ended:?}");
    let alone = Meter::start(&[]);
    let told = alone.api_error("/api/v1/pairs?meters=all", 400);
    assert!(told.contains("--clickhouse"), "{told}");
    let told = alone.api_error("/api/v1/pairs?meters=some", 400);
    assert!(told.contains("all"), "{told}");
}
