use super::*;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const NEVER: Duration = Duration::from_secs(86_400);
const CROWD: Peer = Peer::of_v4([10, 0, 0, 1]);
const ALONE: Peer = Peer::of_v4([10, 0, 0, 2]);

fn limits(places: usize, stalled_after: Duration, slow_after: Duration) -> Limits {
    Limits { places, line: 64, stalled_after, slow_after, long_after: NEVER }
}

/// As [`Readers::enter`], by a task that waits in line when this returns.
async fn queue(readers: &Arc<Readers>, peer: Peer) -> JoinHandle<Result<Place, LineFull>> {
    let before = readers.state().next;
    let task = tokio::spawn({
        let readers = readers.clone();
        async move { readers.enter(peer).await }
    });
    while readers.state().next == before {
        tokio::task::yield_now().await;
    }
    task
}

async fn got(task: JoinHandle<Result<Place, LineFull>>) -> Place {
    timeout(Duration::from_secs(60), task)
        .await
        .expect("a place in time")
        .expect("no panic")
        .expect("a place")
}

/// Each has a place at some time, in whichever order.
async fn all_get(tasks: Vec<JoinHandle<Result<Place, LineFull>>>) {
    let of = |task| tokio::spawn(async move { drop(got(task).await) });
    for done in tasks.into_iter().map(of).collect::<Vec<_>>() {
        done.await.expect("no panic");
    }
}

async fn nobody_reads(readers: &Arc<Readers>) {
    let state = readers.state();
    assert!(state.reading.is_empty() && state.waiting.is_empty(), "{state:?}");
}

#[tokio::test]
async fn a_stalled_reader_makes_room_and_one_that_reads_does_not() {
    let readers = Readers::of(limits(2, Duration::ZERO, NEVER));
    let (first, second) = (readers.enter(ALONE).await.unwrap(), readers.enter(ALONE).await.unwrap());
    first.waits_for_reader();
    first.goes_on();
    second.waits_for_reader();
    let third = queue(&readers, ALONE).await;
    second.told_to_go().await;
    assert!(!third.is_finished(), "it has not gone yet");
    drop(second);
    let third = got(third).await;
    assert_eq!(readers.displaced.load(Relaxed), 1);
    assert!(timeout(Duration::ZERO, first.told_to_go()).await.is_err(), "one is enough");
    drop((first, third));
    nobody_reads(&readers).await;
}

/// Its answer is still being made: the reader cannot be blamed.
#[tokio::test]
async fn whoever_has_been_sent_nothing_yet_keeps_the_place() {
    let readers = Readers::of(limits(1, Duration::ZERO, Duration::ZERO));
    let first = readers.enter(ALONE).await.unwrap();
    let waits = timeout(Duration::from_millis(20), readers.enter(ALONE));
    assert!(waits.await.is_err());
    assert_eq!(readers.displaced.load(Relaxed), 0);
    drop(first);
    readers.enter(ALONE).await.unwrap();
    nobody_reads(&readers).await;
}

#[tokio::test]
async fn a_peer_alone_comes_before_the_crowd_of_another() {
    let readers = Readers::of(limits(1, NEVER, NEVER));
    let reads = readers.enter(CROWD).await.unwrap();
    let mut crowd = Vec::new();
    for _ in 0..50 {
        crowd.push(queue(&readers, CROWD).await);
    }
    let alone = queue(&readers, ALONE).await;
    drop(reads);
    drop(got(alone).await);
    all_get(crowd).await;
    nobody_reads(&readers).await;
}

/// Readers that dawdle may come from as many addresses as they like: each loses its place once, and then comes last.
#[tokio::test]
async fn peers_that_lost_a_place_come_after_those_that_did_not() {
    let readers = Readers::of(limits(1, Duration::ZERO, NEVER));
    let peer = |at: u8| Peer::of_v4([127, 0, 0, at]);
    let mut reads = readers.enter(peer(1)).await.unwrap();
    for at in 2..20 {
        reads.waits_for_reader();
        let next = queue(&readers, peer(at)).await;
        reads.told_to_go().await;
        drop(reads);
        reads = got(next).await;
    }
    // All but the last come again, and before the newcomer.
    let mut again = Vec::new();
    for at in 1..19 {
        again.push(queue(&readers, peer(at)).await);
    }
    let alone = queue(&readers, ALONE).await;
    again.push(queue(&readers, peer(1)).await);
    drop(reads);
    drop(got(alone).await);
    all_get(again).await;
}

#[tokio::test]
async fn among_equals_the_newest_and_the_oldest_come_in_turn() {
    let readers = Readers::of(limits(1, NEVER, NEVER));
    let mut reads = readers.enter(CROWD).await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..5 {
        tasks.push(Some(queue(&readers, CROWD).await));
    }
    let mut order = Vec::new();
    for _ in 0..5 {
        drop(reads);
        let at = loop {
            let done = |task: &Option<JoinHandle<_>>| task.as_ref().is_some_and(JoinHandle::is_finished);
            if let Some(at) = tasks.iter().position(done) {
                break at;
            }
            tokio::task::yield_now().await;
        };
        reads = got(tasks[at].take().expect("once")).await;
        order.push(at);
    }
    assert_eq!(order, [4, 0, 3, 1, 2]);
}

#[tokio::test]
async fn nobody_loses_a_place_to_a_heavier_peer() {
    let readers = Readers::of(limits(3, Duration::ZERO, Duration::ZERO));
    let alone = readers.enter(ALONE).await.unwrap();
    let crowd = [readers.enter(CROWD).await.unwrap(), readers.enter(CROWD).await.unwrap()];
    alone.waits_for_reader();
    let waits = timeout(Duration::from_millis(20), readers.enter(CROWD));
    assert!(waits.await.is_err());
    assert_eq!(readers.displaced.load(Relaxed), 0);
    crowd[0].waits_for_reader();
    let next = queue(&readers, CROWD).await;
    crowd[0].told_to_go().await;
    drop(crowd);
    got(next).await;
}

/// One reads at full speed, another one hardly, and neither has stood still.
#[tokio::test]
async fn whoever_reads_fast_keeps_the_place_until_it_has_had_it_for_long() {
    for (long_after, first_goes) in [(NEVER, false), (Duration::ZERO, true)] {
        let readers = Readers::of(Limits { long_after, ..limits(2, NEVER, Duration::ZERO) });
        let [fast, slow] = [readers.enter(ALONE).await.unwrap(), readers.enter(ALONE).await.unwrap()];
        for (place, pieces) in [(&fast, 1_000_000), (&slow, 0)] {
            place.waits_for_reader();
            (0..pieces).for_each(|_| place.goes_on());
        }
        let next = queue(&readers, ALONE).await;
        let goes = if first_goes { &fast } else { &slow };
        timeout(Duration::from_secs(60), goes.told_to_go()).await.expect("it is told to go");
        drop((fast, slow));
        got(next).await;
    }
}

#[tokio::test]
async fn a_full_line_turns_away_the_peer_with_the_most_requests() {
    let readers = Readers::of(Limits { line: 4, ..limits(1, NEVER, NEVER) });
    let reads = readers.enter(CROWD).await.unwrap();
    let mut crowd = Vec::new();
    for _ in 0..4 {
        crowd.push(queue(&readers, CROWD).await);
    }
    let alone = queue(&readers, ALONE).await;
    let oldest = crowd.remove(0).await.expect("no panic");
    assert_eq!(oldest.map(drop), Err(LineFull));
    assert_eq!(readers.turned_away.load(Relaxed), 1);
    drop(reads);
    drop(got(alone).await);
    all_get(crowd).await;
    nobody_reads(&readers).await;
}

#[tokio::test]
async fn a_crowd_of_new_addresses_sends_away_nobody_who_has_been_served_before() {
    let readers = Readers::of(limits(1, NEVER, NEVER));
    drop(readers.enter(ALONE).await.unwrap());
    let reads = readers.enter(CROWD).await.unwrap();
    // Several at once, as a page asks, and before all others: the oldest go first.
    let mut known = Vec::new();
    for _ in 0..3 {
        known.push(queue(&readers, ALONE).await);
    }
    let mut crowd = Vec::new();
    for at in 0..3 * readers.limits.line as u32 {
        crowd.push(queue(&readers, Peer::of(std::net::Ipv4Addr::from(0x0b00_0000 + at).into())).await);
    }
    drop(reads);
    let leaves = |task: JoinHandle<Result<Place, LineFull>>| {
        tokio::spawn(async move { task.await.expect("no panic").map(drop) })
    };
    let crowd: Vec<_> = crowd.into_iter().map(leaves).collect();
    all_get(known).await;
    let mut refused = 0;
    for task in crowd {
        refused += usize::from(task.await.expect("no panic") == Err(LineFull));
    }
    assert_eq!(refused, 2 * readers.limits.line + 3);
    nobody_reads(&readers).await;
}

#[tokio::test]
async fn a_request_that_is_given_up_leaves_the_line() {
    let readers = Readers::of(limits(1, NEVER, NEVER));
    let reads = readers.enter(CROWD).await.unwrap();
    let gone = queue(&readers, ALONE).await;
    let next = queue(&readers, CROWD).await;
    gone.abort();
    assert!(gone.await.is_err());
    assert_eq!(readers.state().waiting.len(), 1);
    drop(reads);
    drop(got(next).await);
    nobody_reads(&readers).await;
}

#[test]
fn who_comes_regularly_stays_known_however_many_come_once() {
    let (mut state, now) = (State::default(), Instant::now());
    state.serves(ALONE, now);
    for at in 0..2 * REMEMBERED as u32 {
        state.serves(Peer::of(std::net::Ipv4Addr::from(0x0b00_0000 + at).into()), now);
    }
    assert_eq!(state.served.len(), REMEMBERED);
    state.serves(ALONE, now + KNOWN_FOR / 2);
    state.serves(CROWD, now + KNOWN_FOR);
    assert!(state.served.contains_key(&ALONE) && state.served.contains_key(&CROWD));
    assert_eq!(state.served.len(), 2, "the others may come again");
}

#[test]
fn lost_places_are_forgotten_and_bounded() {
    let (mut state, now) = (State::default(), Instant::now());
    for at in 0..2 * REMEMBERED as u32 {
        state.loses(Peer::of(std::net::Ipv4Addr::from(at).into()), now);
    }
    assert_eq!(state.lost.len(), REMEMBERED);
    assert_eq!(state.burden(Peer::of_v4([0, 0, 0, 1]), now), 100);
    let later = now + 2 * HALF_LIFE;
    assert_eq!(state.burden(Peer::of_v4([0, 0, 0, 1]), later), 25);
    state.loses(ALONE, later);
    assert_eq!(state.lost.len(), 1, "those of long ago make room");
}
