//! Two samples of each pair's calls, with both complete spans: one drawn by call, in which every call has the
//! same probability, and one drawn by lost time, in which every nanosecond of the gaps has. An attribute on 6
//! % of the calls and on 80 % of the lost time is then 6 % of the one sample and 80 % of the other.
//!
//! Both are drawn without inspecting most calls: until the next selection, a call costs a decrement and a
//! subtraction. By call: algorithm L (K.-H. Li, "Reservoir-sampling algorithms of time complexity
//! O(n(1+log(N/n)))", 1994). By time: A-ExpJ with the gap as weight (P. Efraimidis, P. Spirakis, "Weighted
//! random sampling with a reservoir", 2006), on logarithms of its keys, so that gaps of any size keep their
//! precision.
//!
//! The samples cover the most recent interval: a new one begins every [`Samples::STRETCH_MS`], and its
//! predecessor is retained until it ends.
//!
//! Each lane draws its own samples. [`drawn`] makes of them what one lane would have drawn: the calls with the largest keys
//! of all, and by call a sample of the samples, in proportion to the calls of each.

use fastrand::Rng;
use spangap_model::KeptCall;
use spangap_model::shared::Account;

/// Samples that include a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// The sample by call.
    pub by_call: bool,
    /// The sample by lost time.
    pub by_time: bool,
}

impl Taken {
    /// Whether any sample includes it.
    #[inline]
    pub fn any(self) -> bool {
        self.by_call | self.by_time
    }
}

/// A call in a sample. A call that turns out to have several attempts leaves its slot empty: a replacement
/// would be overrepresented.
type Place<K> = (K, Option<KeptCall>);

/// The samples of one pair over one interval, in one lane.
#[derive(Clone, Debug, Default)]
struct Stretch {
    by_call: Vec<Place<()>>,
    /// With the logarithms of their keys; the calls with the largest keys stay.
    by_time: Vec<Place<f64>>,
    /// Logarithm of algorithm L's `W`.
    log_w: f64,
}

/// What one lane has of a pair over one interval.
#[derive(Clone, Debug, Default)]
pub struct Part {
    stretch: Stretch,
    /// Calls that it was drawn from, and those of them that were retracted.
    calls: u64,
    retracted: u64,
    lost_ns: u64,
    /// Sample size.
    size: usize,
}

/// What one lane has of a pair: of the previous interval, and of the current one.
pub type Parts = [Option<Part>; 2];

/// Fields read for every call come first, on one cache line.
#[derive(Clone, Debug, Default)]
struct PairSamples {
    /// Calls to skip before the next selection by call.
    calls_to_pass: u64,
    /// Lost time to skip before the next selection by time.
    time_to_pass: f64,
    calls: u64,
    lost_ns: u64,
    retracted: u64,
    now: Option<Box<Stretch>>,
    before: Option<Box<Part>>,
}

/// The samples of one pair over one interval.
#[derive(Clone, Debug, Default)]
pub struct Drawn {
    /// Number of calls they were drawn from.
    pub calls: u64,
    /// Sum of their gaps, nanoseconds.
    pub lost_ns: u64,
    /// Every call had the same probability.
    pub by_call: Vec<KeptCall>,
    /// Every nanosecond of the gaps had the same probability, except that no call is drawn twice; with the
    /// lost time that each call represents, nanoseconds.
    pub by_time: Vec<(KeptCall, f64)>,
}

/// The samples of all pairs.
#[derive(Debug)]
pub struct Samples {
    pairs: Vec<PairSamples>,
    /// Sample size per pair and interval.
    size: usize,
    /// A pair with a larger sample by call, and its size.
    followed: Option<(u32, usize)>,
    rng: Rng,
    since_ms: u64,
    /// Bytes of complete spans in the samples of all lanes.
    pub account: Account,
    /// Limit of these bytes.
    pub limit_bytes: u64,
    /// Spans rejected for lack of room: the samples contain their calls without them.
    pub refused: u64,
}

impl Samples {
    /// Length of an interval, well above an exporter's delay (5 s) and the time until a query.
    pub const STRETCH_MS: u64 = 30_000;

    /// Empty samples of up to `size` calls each (0 disables them), with at most `limit_bytes` of spans.
    pub fn new(size: usize, limit_bytes: u64, account: Account) -> Samples {
        Samples {
            pairs: Vec::new(),
            size,
            followed: None,
            // A fixed seed: guessing the selection gains nobody anything, and a replay draws the same calls.
            rng: Rng::with_seed(0x5ba9),
            since_ms: 0,
            account,
            limit_bytes,
            refused: 0,
        }
    }

    /// Counts a call and returns whether it is drawn; if so, call [`Samples::put`].
    #[inline]
    pub fn offer(&mut self, pair: u32, gap_ns: u64) -> Taken {
        let at = pair as usize;
        if self.size == 0 {
            return Taken::default();
        }
        if self.pairs.len() <= at {
            self.pairs.resize_with(at + 1, PairSamples::default);
        }
        let samples = &mut self.pairs[at];
        samples.calls += 1;
        samples.lost_ns += gap_ns;
        let by_call = samples.calls_to_pass == 0;
        samples.calls_to_pass = samples.calls_to_pass.saturating_sub(1);
        samples.time_to_pass -= weight(gap_ns);
        Taken { by_call, by_time: samples.time_to_pass <= 0.0 }
    }

    /// Inserts a call that was drawn.
    pub fn put(&mut self, pair: u32, call: KeptCall, taken: Taken) {
        let Some(samples) = self.pairs.get_mut(pair as usize) else { return };
        let stretch = samples.now.get_or_insert_default();
        if taken.by_time {
            samples.time_to_pass = stretch.put_by_time(call.clone(), self.size, &mut self.rng);
        }
        if taken.by_call {
            let followed = self.followed.filter(|(number, _)| *number == pair);
            let size = followed.map_or(self.size, |(_, size)| size.max(self.size));
            samples.calls_to_pass = stretch.put_by_call(call, size, &mut self.rng);
        }
    }

    /// Changes the sample size by call of one pair, in each interval from the next call on; `None` restores
    /// the default. Selection remains independent of the gap.
    pub fn follow(&mut self, pair: Option<(u32, usize)>) {
        self.followed = pair;
        if let Some(samples) = pair.and_then(|(number, _)| self.pairs.get_mut(number as usize)) {
            samples.calls_to_pass = 0;
        }
    }

    /// Removes a call that turned out to have several attempts: such calls are not compared.
    pub fn forget(&mut self, pair: u32, gap_ns: u64, trace_id: &[u8; 16], client_span_id: &[u8; 8]) {
        let Some(samples) = self.pairs.get_mut(pair as usize) else { return };
        let is_it = |call: &KeptCall| call.trace_id == *trace_id && call.client_span_id == *client_span_id;
        let before = samples.before.as_deref_mut().map(|part| &mut part.stretch);
        for stretch in samples.now.as_deref_mut().into_iter().chain(before) {
            let places = stretch.by_call.iter_mut().map(|(_, call)| call);
            for place in places.chain(stretch.by_time.iter_mut().map(|(_, call)| call)) {
                place.take_if(|call| is_it(call));
            }
        }
        samples.calls = samples.calls.saturating_sub(1);
        samples.lost_ns = samples.lost_ns.saturating_sub(gap_ns);
        samples.retracted += 1;
    }

    /// Advances the time.
    pub fn tick(&mut self, now_ms: u64) {
        if now_ms.saturating_sub(self.since_ms) < Samples::STRETCH_MS {
            return;
        }
        self.since_ms = now_ms;
        for samples in &mut self.pairs {
            let PairSamples { calls, retracted, lost_ns, now, .. } = std::mem::take(samples);
            samples.before = now.map(|stretch| {
                Box::new(Part { stretch: *stretch, calls, retracted, lost_ns, size: self.size })
            });
        }
    }

    /// The samples of a pair.
    pub fn of(&self, pair: u32) -> Parts {
        let Some(samples) = self.pairs.get(pair as usize) else { return Parts::default() };
        let PairSamples { calls, retracted, lost_ns, .. } = *samples;
        let now = samples.now.as_deref().cloned();
        let now = now.map(|stretch| Part { stretch, calls, retracted, lost_ns, size: self.size });
        [samples.before.as_deref().cloned(), now]
    }
}

/// The samples that one lane would have drawn, from those of several: of each interval that has any.
pub fn drawn(lanes: Vec<Parts>) -> Vec<Drawn> {
    let [mut before, mut now] = [Vec::new(), Vec::new()];
    for [of_before, of_now] in lanes {
        before.extend(of_before);
        now.extend(of_now);
    }
    [before, now].into_iter().filter(|parts| !parts.is_empty()).map(merged).collect()
}

fn merged(parts: Vec<Part>) -> Drawn {
    let size = parts.iter().map(|part| part.size).max().unwrap_or(0);
    let (mut by_call, mut by_time) = (Vec::new(), Vec::new());
    let (mut calls, mut lost_ns) = (0, 0);
    for part in parts {
        calls += part.calls;
        lost_ns += part.lost_ns;
        by_time.extend(part.stretch.by_time);
        by_call.push((part.calls + part.retracted, part.stretch.by_call));
    }
    let by_call = by_call_of_all(by_call, size).into_iter().filter_map(|(_, call)| call).collect();
    Drawn { calls, lost_ns, by_call, by_time: by_time_of_all(by_time, size) }
}

/// A sample of all calls from samples of the lanes, each with the number of calls that it is drawn from: which lane the next
/// one comes from depends on the calls that are left there.
fn by_call_of_all(mut lanes: Vec<(u64, Vec<Place<()>>)>, size: usize) -> Vec<Place<()>> {
    // A followed pair has more.
    let size = lanes.iter().map(|(_, places)| places.len()).fold(size, usize::max);
    if lanes.iter().map(|(_, places)| places.len()).sum::<usize>() <= size {
        return lanes.into_iter().flat_map(|(_, places)| places).collect();
    }
    let mut all: u64 = lanes.iter().map(|(calls, _)| *calls).sum();
    // Asked again, it draws the same.
    let mut rng = Rng::with_seed(0x5ba9 ^ all);
    let mut drawn = Vec::with_capacity(size);
    while drawn.len() < size && all > 0 {
        let mut at = rng.u64(..all);
        let from = lanes.iter_mut().find(|(calls, _)| match at.checked_sub(*calls) {
            Some(rest) => {
                at = rest;
                false
            }
            None => true,
        });
        let Some((calls, places)) = from.filter(|(_, places)| !places.is_empty()) else { break };
        drawn.push(places.swap_remove(rng.usize(..places.len())));
        *calls -= 1;
        all -= 1;
    }
    drawn
}

/// The calls with the largest keys, each with the lost time that it represents.
///
/// A call of weight w is included if its key exceeds the minimum, which has probability 1 - exp(w * least), and represents its gap
/// divided by that; the call with the minimum key itself has determined the threshold (E. Cohen, H. Kaplan, "Summarizing data using
/// bottom-k sketches", 2007). Below capacity all calls are included, and each represents itself.
fn by_time_of_all(mut places: Vec<Place<f64>>, size: usize) -> Vec<(KeptCall, f64)> {
    let mut least = None;
    if places.len() >= size.max(1) {
        if places.len() > size {
            places.select_nth_unstable_by(size, |a, b| b.0.total_cmp(&a.0));
            places.truncate(size);
        }
        let (line, key) = least_of(&places);
        places.remove(line);
        least = Some(key);
    }
    let stands_for = |gap_ns: u64| match least {
        None => gap_ns as f64,
        Some(least) => gap_ns as f64 / -(weight(gap_ns) * least).exp_m1(),
    };
    let calls = places.into_iter().filter_map(|(_, call)| call);
    calls.map(|call| (stands_for(call.gap_ns), call)).map(|(lost_ns, call)| (call, lost_ns)).collect()
}

/// The place with the smallest key, and that key.
fn least_of(places: &[Place<f64>]) -> (usize, f64) {
    let keys = places.iter().map(|(key, _)| *key).enumerate();
    keys.min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, 0.0))
}

/// A gap of zero also has a nonzero probability.
#[inline]
fn weight(gap_ns: u64) -> f64 {
    gap_ns.max(1) as f64
}

/// A random number above 0 and below 1.
fn unit(rng: &mut Rng) -> f64 {
    rng.f64().max(f64::MIN_POSITIVE)
}

impl Stretch {
    /// Returns the number of calls to skip.
    fn put_by_call(&mut self, call: KeptCall, size: usize, rng: &mut Rng) -> u64 {
        if self.by_call.len() < size {
            self.by_call.push(((), Some(call)));
            if self.by_call.len() < size {
                return 0;
            }
        } else {
            // The sample may exceed `size` if the pair is no longer followed.
            let at = rng.usize(..self.by_call.len());
            self.by_call[at].1 = Some(call);
        }
        self.log_w += unit(rng).ln() / size as f64;
        // Saturates if selections are so rare that none follows in this interval.
        (unit(rng).ln() / (-self.log_w.exp()).ln_1p()) as u64
    }

    /// Returns the lost time to skip.
    fn put_by_time(&mut self, call: KeptCall, size: usize, rng: &mut Rng) -> f64 {
        let weight = weight(call.gap_ns);
        if self.by_time.len() < size {
            self.by_time.push((unit(rng).ln() / weight, Some(call)));
            if self.by_time.len() < size {
                return 0.0;
            }
        } else {
            // Its key exceeds the minimum, or it would not have been drawn.
            let (at, least) = least_of(&self.by_time);
            let beaten = (least * weight).exp();
            let key = (beaten + unit(rng) * (1.0 - beaten)).ln() / weight;
            self.by_time[at] = (key, Some(call));
        }
        let (_, least) = least_of(&self.by_time);
        // A key of 0 is the maximum: nothing exceeds it.
        if least < 0.0 { unit(rng).ln() / least } else { f64::INFINITY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spangap_model::CallStatus;
    use spangap_model::pair::KeptSide;

    fn call(gap_ns: u64, id: u64) -> KeptCall {
        let side = KeptSide { start_unix_ns: id, duration_ns: gap_ns, host: None, whole: None };
        let mut trace_id = [0; 16];
        trace_id[..8].copy_from_slice(&id.to_le_bytes());
        KeptCall {
            gap_ns,
            trace_id,
            client_span_id: id.to_le_bytes(),
            status: CallStatus::UNSET,
            legs: None,
            client: side.clone(),
            server: side,
        }
    }

    const SAMPLED: usize = 64;

    fn new(seed: u64) -> Samples {
        let mut samples = Samples::new(SAMPLED, 0, Account::default());
        samples.rng = Rng::with_seed(seed);
        samples
    }

    fn of(samples: &Samples, pair: u32) -> Vec<Drawn> {
        drawn(vec![samples.of(pair)])
    }

    /// As several lanes draw; the first of them gets half of the calls.
    fn draw(gaps: impl Iterator<Item = u64>, seed: u64, lanes: usize) -> Drawn {
        let mut rng = Rng::with_seed(seed);
        let mut all: Vec<Samples> = (0..lanes).map(|_| new(rng.u64(..))).collect();
        for (id, gap_ns) in gaps.enumerate() {
            let samples = &mut all[rng.usize(..2 * lanes).saturating_sub(lanes)];
            let taken = samples.offer(3, gap_ns);
            if taken.any() {
                samples.put(3, call(gap_ns, id as u64), taken);
            }
        }
        drawn(all.iter().map(|samples| samples.of(3)).collect()).remove(0)
    }

    #[test]
    fn every_call_and_every_nanosecond_is_equally_likely() {
        [1, 2, 7].into_iter().for_each(all_are_equally_likely);
    }

    fn all_are_equally_likely(lanes: usize) {
        // One call in twenty is nineteen times slower, which makes half of the lost time. These are spread
        // evenly.
        let gaps = || (0..4_000u64).map(|i| if i % 20 == 7 { 19_000_000 } else { 1_000_000 });
        let (mut slow_by_call, mut slow_ns, mut all_ns, mut late_by_call, mut late_ns) =
            (0, 0.0, 0.0, 0, 0.0);
        const ROUNDS: u64 = 100;
        for seed in 0..ROUNDS {
            let drawn = draw(gaps(), seed, lanes);
            assert_eq!((drawn.by_call.len(), drawn.by_time.len()), (SAMPLED, SAMPLED - 1));
            assert_eq!((drawn.calls, drawn.lost_ns), (4_000, 200 * 19_000_000 + 3_800 * 1_000_000));
            let is_slow = |call: &KeptCall| call.gap_ns > 1_000_000;
            let is_late = |call: &KeptCall| call.client.start_unix_ns >= 2_000;
            slow_by_call += drawn.by_call.iter().filter(|call| is_slow(call)).count();
            late_by_call += drawn.by_call.iter().filter(|call| is_late(call)).count();
            let sum = |wanted: &dyn Fn(&KeptCall) -> bool| -> f64 {
                drawn.by_time.iter().filter(|(call, _)| wanted(call)).map(|(_, lost_ns)| lost_ns).sum()
            };
            slow_ns += sum(&is_slow);
            late_ns += sum(&is_late);
            all_ns += sum(&|_| true);
        }
        // 6,400 draws: five standard errors are 3 % of the total for a half, 1.4 % for a twentieth.
        let share = |count: usize| count as f64 / (ROUNDS as usize * SAMPLED) as f64;
        assert!((share(slow_by_call) - 0.05).abs() < 0.014, "{}", share(slow_by_call));
        assert!((share(late_by_call) - 0.5).abs() < 0.035, "{}", share(late_by_call));
        let truth_ns = (ROUNDS * (200 * 19_000_000 + 3_800 * 1_000_000)) as f64;
        assert!((all_ns / truth_ns - 1.0).abs() < 0.08, "{}", all_ns / truth_ns);
        assert!((slow_ns / all_ns - 0.5).abs() < 0.035, "{}", slow_ns / all_ns);
        assert!((late_ns / all_ns - 0.5).abs() < 0.035, "{}", late_ns / all_ns);
    }

    #[test]
    fn lanes_with_few_calls_have_the_sample_of_one() {
        let mut gaps: Vec<u64> = (0..SAMPLED as u64 - 1).map(|i| 1_000 * i).collect();
        let sorted = |drawn: Drawn| {
            let mut calls: Vec<_> = drawn.by_call.iter().map(|call| call.gap_ns).collect();
            let mut times: Vec<_> =
                drawn.by_time.iter().map(|(call, lost)| (call.gap_ns, *lost as u64)).collect();
            calls.sort_unstable();
            times.sort_unstable();
            (calls, times, drawn.calls, drawn.lost_ns)
        };
        for lanes in [2, 7] {
            assert_eq!(
                sorted(draw(gaps.iter().copied(), 5, lanes)),
                sorted(draw(gaps.iter().copied(), 1, 1))
            );
        }
        // Two more, and the sample is full: by time, the call with the least key only draws the line.
        gaps.extend([7, 9]);
        let drawn = draw(gaps.iter().copied(), 5, 3);
        assert_eq!((drawn.by_call.len(), drawn.by_time.len(), drawn.calls), (SAMPLED, SAMPLED - 1, 65));
    }

    #[test]
    fn every_call_of_a_followed_pair_is_sampled() {
        let mut samples = new(0x5ba9);
        let mut next = 0;
        let mut offer = |samples: &mut Samples, calls: u64| {
            for id in next..next + calls {
                let taken = samples.offer(3, 1_000);
                if taken.any() {
                    samples.put(3, call(1_000, id), taken);
                }
            }
            next += calls;
            of(samples, 3).remove(0).by_call.len()
        };
        assert_eq!(offer(&mut samples, 1_000), SAMPLED);
        samples.follow(Some((3, 600)));
        assert_eq!(offer(&mut samples, 500), SAMPLED + 500, "all that came since");
        assert_eq!(offer(&mut samples, 5_000), 600, "and no more than asked for");
        samples.follow(None);
        assert_eq!(offer(&mut samples, 500), 600);
        samples.tick(Samples::STRETCH_MS);
        offer(&mut samples, 500);
        assert_eq!(of(&samples, 3)[1].by_call.len(), SAMPLED);
    }

    #[test]
    fn few_calls_are_all_sampled_and_old_ones_dropped() {
        let drawn = draw((0..40).map(|i| i * 1000), 1, 1);
        assert_eq!((drawn.by_call.len(), drawn.by_time.len(), drawn.calls), (40, 40, 40));
        assert!(drawn.by_time.iter().all(|(call, lost_ns)| call.gap_ns as f64 == *lost_ns));

        let mut samples = new(0x5ba9);
        let offer = |samples: &mut Samples, id| {
            let taken = samples.offer(0, 5);
            samples.put(0, call(5, id), taken);
        };
        let calls = |samples: &Samples| of(samples, 0).iter().map(|drawn| drawn.calls).sum::<u64>();
        offer(&mut samples, 1);
        samples.tick(Samples::STRETCH_MS);
        offer(&mut samples, 2);
        assert_eq!((calls(&samples), of(&samples, 0).len()), (2, 2));
        samples.tick(2 * Samples::STRETCH_MS - 1);
        assert_eq!(calls(&samples), 2, "the stretch is not over");
        samples.tick(2 * Samples::STRETCH_MS);
        assert_eq!(calls(&samples), 1);
        samples.forget(0, 5, &call(5, 2).trace_id, &call(5, 2).client_span_id);
        assert!(of(&samples, 0).iter().all(|drawn| drawn.by_call.is_empty() && drawn.by_time.is_empty()));
        samples.tick(3 * Samples::STRETCH_MS);
        assert_eq!(calls(&samples), 0);
        assert!(of(&samples, 77).is_empty(), "a pair that nobody has seen");
    }

    #[test]
    fn the_slot_of_a_retracted_call_stays_empty() {
        let mut samples = new(0x5ba9);
        let mut offer = |id: u64| {
            let taken = samples.offer(0, 5);
            if taken.any() {
                samples.put(0, call(5, id), taken);
            }
            samples.forget(0, 5, &call(5, id / 2).trace_id, &call(5, id / 2).client_span_id);
            taken.by_call
        };
        // Half of 2,000 calls are removed. If their slots were reused, more than every second call would be
        // drawn.
        let taken = (0..2_000).filter(|id| offer(*id)).count();
        assert!((SAMPLED..6 * SAMPLED).contains(&taken), "{taken}");
    }

    #[test]
    fn gaps_of_any_size_are_sampled() {
        for gap_ns in [0, 1, u32::MAX as u64, 1 << 47] {
            let drawn = draw(std::iter::repeat_n(gap_ns, 3_000), 9, 1);
            assert_eq!((drawn.by_call.len(), drawn.by_time.len()), (SAMPLED, SAMPLED - 1), "{gap_ns}");
            let late = drawn.by_time.iter().filter(|(call, _)| call.client.start_unix_ns >= 1_500).count();
            assert!((12..=52).contains(&late), "{late} of the later half, of gaps of {gap_ns} ns");
        }
    }
}
