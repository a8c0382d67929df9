//! Experiments through the API, with an honest or a dishonest agent. The agent's changes determine which
//! calls are slow.

use super::agent::{Agent, hello};
use super::meter::{HOSTS, Served};
use serde_json::{Value, json};
use spangap_fleet::v1::{
    Connection, Health, Hello, OrderReport, Socket, Stage, from_agent, from_meter, order,
};
use spangap_meter::serve::access::Access;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, UNIX_EPOCH};
use tokio::sync::watch;

const VIEW: &str = "view-view-view-view";
const CAPTURE: &str = "capture-capture-cap";
const CHANGE: &str = "change-change-change";

/// How an agent treats an order.
#[derive(Clone, Copy, PartialEq)]
enum Word {
    Kept,
    /// It reports success, and does nothing.
    Idle,
    /// It changes another connection, and reports that.
    Other,
    /// It never reports an undo.
    Silent,
    /// All connections end after the first block.
    Ended,
}

/// Interval between checks of a condition.
const PACE: Duration = Duration::from_millis(20);

/// Ports of changed connections.
type Treated = Arc<Mutex<Changed>>;

/// What the agent has changed.
#[derive(Clone, Debug, Default)]
struct Changed {
    ports: BTreeSet<u16>,
    /// Number of orders so far.
    orders: u64,
}

fn now_ns() -> i64 {
    UNIX_EPOCH.elapsed().expect("after 1970").as_nanos() as i64
}

fn allowing(address: &str, session: u64) -> Hello {
    Hello { allows: vec!["sockets".into()], ..hello(address, session) }
}

fn socket(port: u16) -> Socket {
    let connection =
        Connection { local: format!("{}:{port}", HOSTS[0]), peer: format!("{}:50051", HOSTS[1]) };
    Socket { connection: Some(connection), pid: 812, comm: "frontend".into(), not_changed: String::new() }
}

/// Answers orders until the stream ends.
async fn obey(mut agent: Agent, ports: Vec<u16>, treated: Treated, word: Word) {
    let mut second = tokio::time::interval(Duration::from_secs(1));
    let mut last = 0;
    let mut changes = 0;
    loop {
        let said = tokio::select! {
            said = agent.hear_or_end() => said,
            _ = second.tick() => match agent.try_say(from_agent::What::Health(Health::default())).await {
                Some(()) => continue,
                None => return,
            },
        };
        let Some(said) = said else { return };
        let report = match said.what {
            Some(from_meter::What::Order(order)) => match order.what {
                Some(order::What::Look(_)) => {
                    let there = if word == Word::Ended && changes > 0 { &[][..] } else { &ports[..] };
                    let sockets = there.iter().map(|port| socket(*port)).collect();
                    OrderReport {
                        order: order.id,
                        stage: Stage::Looked.into(),
                        sockets,
                        ..Default::default()
                    }
                }
                Some(order::What::Nodelay(set)) => {
                    assert!(set.for_ms <= 60_000 && !set.connections.is_empty(), "{set:?}");
                    changes += 1;
                    treated.lock().unwrap().orders = changes;
                    last = order.id;
                    let of = |one: &Connection| one.local.rsplit(':').next().unwrap().parse::<u16>().unwrap();
                    let mut told: Vec<u16> = set.connections.iter().map(of).collect();
                    if word == Word::Other {
                        told = vec![22];
                    }
                    if word != Word::Idle {
                        treated.lock().unwrap().ports.extend(told.iter().copied());
                    }
                    let sockets = told.iter().map(|port| socket(*port)).collect();
                    OrderReport {
                        order: order.id,
                        stage: Stage::Changed.into(),
                        sockets,
                        ..Default::default()
                    }
                }
                other => panic!("an order that nobody asked for: {other:?}"),
            },
            Some(from_meter::What::Undo(undo)) => {
                treated.lock().unwrap().ports.clear();
                if word == Word::Silent || undo.order != last {
                    continue;
                }
                last = 0;
                OrderReport { order: undo.order, stage: Stage::Undone.into(), ..Default::default() }
            }
            _ => continue,
        };
        let report = OrderReport { unix_ns: now_ns(), ..report };
        if agent.try_say(from_agent::What::Report(report)).await.is_none() {
            return;
        }
    }
}

/// A case with a culprit that has a lever, calls that continue on these connections, and an agent with this
/// behaviour.
struct Scene {
    meter: Arc<Served>,
    case: String,
    treated: Treated,
    token: Option<&'static str>,
    _calls: watch::Sender<()>,
    _folder: tempfile::TempDir,
}

impl Scene {
    async fn new(ports: &[u16], word: Word) -> Scene {
        Scene::with(
            ports,
            word,
            Access::default(),
            None,
            |port, changed, _| {
                if changed.ports.contains(&port) { 1 } else { 40 }
            },
        )
        .await
    }

    async fn with(
        ports: &[u16],
        word: Word,
        access: Access,
        token: Option<&'static str>,
        gap_ms: impl Fn(u16, &Changed, u64) -> u64 + Send + 'static,
    ) -> Scene {
        let folder = tempfile::tempdir().expect("a folder");
        let meter = Arc::new(Served::with(&folder.path().join("cases"), access, |_| ()).await);
        let mut client = Agent::attach_with(&meter, allowing(HOSTS[0], 1), token).await.expect("welcome");
        let mut server = Agent::attach_with(&meter, hello(HOSTS[1], 2), token).await.expect("welcome");
        meter.calls(40);
        let bearer = token.map(|token| format!("Bearer {token}"));
        let headers: Vec<(&str, &str)> =
            bearer.iter().map(|bearer| ("Authorization", bearer.as_str())).collect();
        let (status, answer) = meter.post("tank", &headers).await;
        assert_eq!(status, 202, "{answer}");
        let case = answer["id"].as_str().expect("an id").to_owned();
        tokio::join!(
            client.replay("nagle-client.client.pcapng"),
            server.replay("nagle-client.server.pcapng")
        );
        let treated = Treated::default();
        tokio::spawn(obey(client, ports.to_vec(), treated.clone(), word));
        tokio::spawn(obey(server, Vec::new(), Treated::default(), word));
        let (calls, mut ended) = watch::channel(());
        let (of, by, ports) = (meter.clone(), treated.clone(), ports.to_vec());
        tokio::spawn(async move {
            let mut tick = tokio::time::interval(Duration::from_millis(10));
            for number in 0.. {
                tokio::select! {
                    _ = ended.changed() => return,
                    _ = tick.tick() => {}
                }
                let treated = by.lock().unwrap().clone();
                let port = ports[number % ports.len()];
                of.call(port, gap_ms(port, &treated, number as u64));
            }
        });
        let scene = Scene { meter, case, treated, token, _calls: calls, _folder: folder };
        let case = scene.until(|case| case["state"] != "open").await;
        assert_eq!(
            (&case["state"], &case["verdict"]["culprit"]),
            (&json!("explained"), &json!("nagle-delayed-ack"))
        );
        scene
    }

    async fn ask(&self, method: &str, token: Option<&str>, body: &str) -> (u16, Value) {
        let bearer = token.map(|token| format!("Bearer {token}"));
        let mut headers = vec![("Content-Type", "application/json")];
        headers.extend(bearer.iter().map(|bearer| ("Authorization", bearer.as_str())));
        let path = format!("/api/v1/cases/{}/experiment", self.case);
        let (status, body) = self.meter.request(method, &path, &headers, body).await;
        (status, serde_json::from_slice(&body).unwrap_or_default())
    }

    /// The plan, once calls have revealed the connections.
    async fn plan(&self, design: &str) -> Value {
        let begun = std::time::Instant::now();
        let mut pace = tokio::time::interval(PACE);
        while begun.elapsed() < super::meter::PATIENCE {
            pace.tick().await;
            let (status, plan) = self.ask("GET", self.token, "").await;
            if status == 200 && plan["design"] == design {
                return plan;
            }
        }
        panic!("no plan of {design}: {:?}", self.ask("GET", self.token, "").await);
    }

    async fn start(&self, plan: &Value) -> (u16, Value) {
        self.ask("POST", self.token, &json!({ "plan": plan["plan"] }).to_string()).await
    }

    async fn case(&self) -> Value {
        let bearer = self.token.map(|token| format!("Bearer {token}"));
        let headers: Vec<(&str, &str)> =
            bearer.iter().map(|bearer| ("Authorization", bearer.as_str())).collect();
        let path = format!("/api/v1/cases/{}", self.case);
        let (status, body) = self.meter.request("GET", &path, &headers, "").await;
        assert_eq!(status, 200);
        serde_json::from_slice(&body).expect("JSON")
    }

    async fn until(&self, is_it: impl Fn(&Value) -> bool) -> Value {
        let begun = std::time::Instant::now();
        let mut pace = tokio::time::interval(PACE);
        loop {
            pace.tick().await;
            let case = self.case().await;
            if is_it(&case) {
                return case;
            }
            assert!(begun.elapsed() < 4 * super::meter::PATIENCE, "{case:#}");
        }
    }

    /// Starts the experiment and waits for its end.
    async fn tried(&self, design: &str) -> (Value, Value) {
        let plan = self.plan(design).await;
        assert_eq!(self.start(&plan).await.0, 202);
        let case = self.until(|case| case["experiments"][0]["to_unix_ms"].is_u64()).await;
        assert!(self.treated.lock().unwrap().ports.is_empty(), "all is undone");
        (case["experiments"][0].clone(), case)
    }

    fn audit(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self._folder.path().join("cases/audit.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remedy_that_works_is_proven_on_halves_of_the_connections_and_undone() {
    let scene = Scene::new(&[41001, 41002, 41003, 41004], Word::Kept).await;
    let plan = scene.plan("halves").await;
    assert_eq!(plan["connections"].as_array().unwrap().len(), 4, "{plan:#}");
    assert_eq!((&plan["side"], &plan["lever"]), (&json!("client"), &json!("tcp-nodelay")));
    assert!(plan["words"].as_str().unwrap().contains("random half of the 4 connections of frontend (812)"));
    assert!(
        scene.audit().is_empty() && scene.treated.lock().unwrap().ports.is_empty(),
        "a plan changes nothing"
    );
    let (tried, case) = scene.tried("halves").await;
    assert_eq!(tried["outcome"], "proven", "{tried:#}");
    assert_eq!((&case["state"], &tried["undone"]), (&json!("proven"), &json!(true)));
    let ms = |of: &Value| of.as_f64().unwrap() / 1e6;
    assert!((ms(&tried["control"]["p50_ns"]) - 41.0).abs() < 0.1 && ms(&tried["treated"]["p50_ns"]) < 2.1);
    let effect = &tried["effect_ns"];
    assert!(ms(&effect["low"]) > 38.0 && ms(&effect["high"]) < 40.0, "{effect}");
    // The first look leaves no doubt: six blocks count, and what was begun after them is undone and does not.
    assert_eq!((&tried["is_early"], &tried["plan"]["blocks"]), (&json!(true), &json!(10)), "{tried:#}");
    assert!(
        tried["words"].as_str().unwrap().contains("at its first look, after 6 of 10 blocks"),
        "{tried:#}"
    );
    let made = |block: &&Value| block["to_unix_ms"].as_u64() > Some(0);
    let made: Vec<&Value> = tried["blocks"].as_array().unwrap().iter().filter(made).collect();
    assert!(made.iter().all(|block| block["treated_connections"] == 2), "{made:#?}");
    assert!((6..10).contains(&made.len()), "{made:#?}");
    assert!(tried["probability"].as_f64().unwrap() >= 0.05 - 1e-9, "adjusted for two looks");
    assert!(tried.get("so_far_ns").is_none(), "{tried:#}");
    let audit = scene.audit();
    let events: Vec<&str> = audit.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!((events[0], *events.last().unwrap()), ("started", "concluded"));
    let counted = |which: &str| events.iter().filter(|event| **event == which).count();
    assert!((6..=10).contains(&counted("ordered")), "{events:?}");
    assert_eq!(counted("undone"), counted("ordered"), "{events:?}");
    assert!(audit[0]["asked_by"].as_str().unwrap().contains("127.0.0.1"), "{:#}", audit[0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_alone_is_tried_in_blocks_of_time() {
    let scene = Scene::new(&[41001], Word::Kept).await;
    let (tried, _) = scene.tried("blocks").await;
    assert_eq!(tried["outcome"], "proven", "{tried:#}");
    assert!(
        tried["plan"]["words"].as_str().unwrap().contains("as there is only one connection"),
        "{tried:#}"
    );
    assert_eq!(tried["undone"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remedy_without_effect_is_refuted_whatever_the_agent_says() {
    let scene = Scene::new(&[41001, 41002, 41003, 41004, 41005], Word::Idle).await;
    let (tried, case) = scene.tried("halves").await;
    assert_eq!((&tried["outcome"], &case["state"]), (&json!("refuted"), &json!("unknown")), "{tried:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn noise_is_undecided_and_says_so() {
    // Noise far larger than the effect of the remedy: a storm for one half in one block, for the other half in the next. Storms at
    // random would side with one half all of the time in a few of a hundred runs, which is as often as an interval of 95 % errs.
    let noise = |port: u16, changed: &Changed, number: u64| {
        let is_treated = changed.ports.contains(&port);
        let storm =
            if is_treated == changed.orders.is_multiple_of(2) { 300 } else { fastrand_like(number) % 100 };
        storm + if is_treated { 20 } else { 40 }
    };
    let scene = Scene::with(&[41001, 41002], Word::Kept, Access::default(), None, noise).await;
    let (tried, case) = scene.tried("halves").await;
    assert_ne!(tried["outcome"], "proven", "{tried:#}");
    assert!(case["state"] != "proven" && !tried["words"].as_str().unwrap().is_empty());
}

/// A deterministic pseudo-random number.
fn fastrand_like(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_end_meanwhile_leave_it_undecided() {
    let scene = Scene::new(&[41001, 41002, 41003, 41004], Word::Ended).await;
    let (tried, _) = scene.tried("halves").await;
    assert_eq!(tried["outcome"], "undecided");
    assert!(tried["words"].as_str().unwrap().contains("all connections have ended"), "{tried:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_changes_something_else_ends_it() {
    let scene = Scene::new(&[41001, 41002], Word::Other).await;
    let (tried, _) = scene.tried("halves").await;
    assert_eq!((&tried["outcome"], &tried["undone"]), (&json!("undecided"), &json!(true)));
    assert!(tried["words"].as_str().unwrap().contains("without being told to"), "{tried:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_that_nobody_confirms_is_not_called_one() {
    let scene = Scene::new(&[41001, 41002], Word::Silent).await;
    let (tried, _) = scene.tried("halves").await;
    assert_eq!((&tried["outcome"], &tried["undone"]), (&json!("undecided"), &json!(false)));
    assert!(tried["words"].as_str().unwrap().contains("its guard undoes it in time"), "{tried:#}");
    let left = &tried["in_force"];
    assert_eq!((&left["block"], &left["connections"]), (&json!(1), &json!(1)), "{tried:#}");
    assert!(left["guard_unix_ms"].as_u64() > left["until_unix_ms"].as_u64(), "{left}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_experiment_shows_its_progress() {
    let scene = Scene::new(&[41001, 41002, 41003, 41004], Word::Kept).await;
    let plan = scene.plan("halves").await;
    assert_eq!(scene.start(&plan).await.0, 202);
    let running = |case: &Value| case["experiments"][0]["outcome"] == "running";
    let case = scene.until(|case| case["experiments"][0]["in_force"].is_object()).await;
    let in_force = &case["experiments"][0]["in_force"];
    assert!(running(&case) && in_force["connections"] == 2, "{in_force}");
    let times =
        ["since_unix_ms", "until_unix_ms", "guard_unix_ms"].map(|key| in_force[key].as_u64().unwrap());
    assert!(times.is_sorted() && times[1] - times[0] == plan["block_ms"].as_u64().unwrap(), "{in_force}");
    let case = scene
        .until(|case| {
            case["experiments"][0]["blocks"][1]["control"]["calls"].as_u64() > Some(0) || !running(case)
        })
        .await;
    assert!(running(&case), "its blocks are told one by one: {case:#}");
    let case = scene.until(|case| case["experiments"][0]["so_far_ns"].is_i64() || !running(case)).await;
    let tried = &case["experiments"][0];
    assert!(running(&case) && tried.get("effect_ns").is_none(), "an estimate, and no conclusion: {tried:#}");
    assert!((tried["so_far_ns"].as_f64().unwrap() / 1e6 - 39.0).abs() < 1.0, "{tried:#}");
    let case = scene.until(|case| !running(case)).await;
    let tried = &case["experiments"][0];
    assert!(tried.get("in_force").is_none(), "{case:#}");
    // The list of cases contains its start and end, for a time axis.
    let (status, list) = scene.meter.request("GET", "/api/v1/cases", &[], "").await;
    assert_eq!(status, 200);
    let list: Value = serde_json::from_slice(&list).expect("JSON");
    let event = |kind: &str, unix_ms: &Value| json!({ "unix_ms": unix_ms, "case": scene.case, "kind": kind, "lever": "tcp-nodelay" });
    let events = [event("changed", &tried["from_unix_ms"]), event("undone", &tried["to_unix_ms"])];
    assert_eq!(list["events"], json!(events), "{list:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_ends_it_and_what_was_changed_is_undone() {
    let scene = Scene::new(&[41001, 41002, 41003, 41004], Word::Kept).await;
    let plan = scene.plan("halves").await;
    assert_eq!(scene.ask("DELETE", None, "").await.0, 409, "nothing is under way");
    assert_eq!(scene.start(&plan).await.0, 202);
    assert_eq!(scene.start(&plan).await.0, 409, "one at a time");
    while scene.treated.lock().unwrap().ports.is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(scene.ask("DELETE", None, "").await.0, 202);
    let case = scene.until(|case| case["experiments"][0]["to_unix_ms"].is_u64()).await;
    assert!(scene.treated.lock().unwrap().ports.is_empty());
    let tried = &case["experiments"][0];
    assert_eq!((&tried["outcome"], &tried["undone"]), (&json!("undecided"), &json!(true)), "{tried:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_without_the_role_and_a_plan_that_was_not_shown_change_nothing() {
    let tokens = format!("view {VIEW}\ncapture {CAPTURE}\nchange {CHANGE}\n");
    let access = Access::new(Vec::new(), false).with_tokens(&tokens).expect("a file");
    let slow = |_: u16, _: &Changed, _: u64| 40;
    let scene = Scene::with(&[41001, 41002], Word::Kept, access, Some(CHANGE), slow).await;
    let plan = scene.plan("halves").await;
    let body = json!({ "plan": plan["plan"] }).to_string();
    for (token, status) in [(None, 401), (Some(VIEW), 403), (Some(CAPTURE), 403)] {
        for method in ["GET", "POST", "DELETE"] {
            let (found, answer) = scene.ask(method, token, &body).await;
            assert_eq!(found, status, "{method} with {token:?}: {answer}");
        }
    }
    for lie in ["", "0000000000000000"] {
        let (status, answer) = scene.start(&json!({ "plan": lie })).await;
        assert_eq!(status, 409, "{answer}");
        assert!(answer["error"].as_str().unwrap().contains("last shown"), "{answer}");
    }
    let (status, _) = scene.ask("POST", Some(CHANGE), r#"{"plan": "x", "connections": []}"#).await;
    assert_eq!(status, 422, "a plan is named, not sent");
    // A new plan invalidates the first one.
    let newer = scene.plan("halves").await;
    assert_eq!(scene.start(&plan).await.0, 409);
    assert!(scene.treated.lock().unwrap().ports.is_empty() && scene.audit().is_empty());
    assert_eq!(scene.start(&newer).await.0, 202);
    assert_eq!(scene.ask("DELETE", Some(CHANGE), "").await.0, 202);
    let audit = scene.audit();
    assert!(audit[0]["asked_by"].as_str().unwrap().starts_with("a token for change, from 127.0.0.1"));
    assert!(
        !std::fs::read_to_string(scene._folder.path().join("cases/audit.jsonl")).unwrap().contains(CHANGE)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_allows_nothing_is_told_nothing() {
    let meter = Served::start().await;
    let mut client = Agent::attach(&meter, hello(HOSTS[0], 1)).await.expect("welcome");
    let mut server = Agent::attach(&meter, hello(HOSTS[1], 2)).await.expect("welcome");
    meter.calls(40);
    let id = meter.open().await;
    tokio::join!(client.replay("nagle-client.client.pcapng"), server.replay("nagle-client.server.pcapng"));
    meter.concluded(&id).await;
    client.say(from_agent::What::Health(Health::default())).await;
    let path = format!("/api/v1/cases/{id}/experiment");
    let (status, answer) = meter.request("GET", &path, &[], "").await;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(status == 409 && answer.contains("without --allow"), "{status} {answer}");
    let (status, _) = meter.request("GET", "/api/v1/cases/none/experiment", &[], "").await;
    assert_eq!(status, 404);
}
