//! Decides when a pair is worth a case: when it leaves its own baseline, or calls exceed a threshold. Pure; the caller
//! passes in the contents of each window.
//!
//! A window is out of range if one of its figures (median, mean, p90 or p99 of the gaps or client durations) is far beyond the
//! windows of the last ten minutes: beyond their median by a factor *and* by a multiple of their spread, beyond nearly
//! all of them, and by an amount that matters. One such window is noise. Two in a row, in the same figure, mean that
//! the pair left its baseline, unless chance explains them: calls that long must be far more frequent than in the
//! baseline. Windows out of range do not enter the baseline while they are news.
//!
//! The median is what is left where the others are noise: long calls that come and go, as on a host with busy neighbours,
//! spread the mean and the upper quantiles so widely that no window is beyond them.
//!
//! A short baseline has seen little of a pair's noise, so the factor is larger during the first two minutes. A pair that is
//! slower by less than that factor, but by enough for a long baseline, is out of range after four such windows in a row.
//!
//! A few very long calls move neither the mean nor the p90, and a window of few calls has no p99. So calls far beyond
//! the p99 of the whole baseline are counted as well: a window is out of range if their fraction is far larger than in
//! nearly all recent windows. Where each window has too few of them even for that, those of a minute are compared with
//! all before ([`lasting`]).

mod counts;
mod figure;
mod lasting;
mod window;

pub use counts::Counts;
use figure::{FIGURES, LASTING, SLOWEST};
pub use figure::{Figure, Statistic};
use lasting::Lasting;
use std::collections::VecDeque;
use window::Figures;
pub use window::{LEAST_CALLS, Stretch, Window};

/// Windows of the baseline at most: ten minutes of five seconds each.
const MOST_WINDOWS: usize = 120;
/// Fewer are no baseline.
pub const LEAST_WINDOWS: usize = 6;
/// Windows out of the baseline, one after the other, until they are the new usual.
const NEW_USUAL: u32 = 120;
/// Spreads (scaled median absolute deviations, of logarithms) beyond the median.
const SPREADS: f64 = 6.0;
/// Beyond the median at least by this factor, when the baseline is long; one that is short has seen little of the pair's noise.
const FACTOR: f64 = 1.5;
/// Calls far beyond the baseline's p99 that a window has at least, to be out by them.
const LEAST_SLOWEST: u64 = 3;
/// And so many times the share of nearly all late windows.
const TIMES_SHARE: f64 = 2.0;
/// A baseline of so many windows is long.
const LONG: usize = 24;
/// Windows that a long baseline takes in until its p99 is taken anew.
const P99_EVERY: u32 = 6;
/// Number of successive windows, each beyond the median by [`FACTOR`] alone, after which a pair has left a
/// short baseline.
const PATIENT: u8 = 4;
/// Smaller differences are below what verdicts examine, nanoseconds.
const LEAST_NS: f64 = 200_000.0;
/// Permitted probability of a false alarm by chance per pair of windows.
const CHANCE: f64 = 1e-7;
/// And per single window, if it is this far beyond the slowest calls.
const CHANCE_OF_ONE: f64 = 1e-3;
/// Number of calls over the threshold within a minute that makes a case.
const OVER: u64 = 3;
/// Number of the newest windows of the baseline whose calls are kept separately, so that an older time range
/// can be told apart from them.
const RECENT: usize = 18;

/// Statistics by which stretches are compared.
const STATISTICS: [Statistic; 4] = [Statistic::Median, Statistic::Mean, Statistic::P90, Statistic::P99];

fn is_clearly_slower(now_ns: f64, usual_ns: f64) -> bool {
    now_ns > FACTOR * usual_ns && now_ns > usual_ns + LEAST_NS
}

/// A figure that left its baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Left {
    /// Which one.
    pub figure: Figure,
    /// Its median in the baseline, nanoseconds; for the slowest calls, the p99 of the whole baseline.
    pub usual_ns: u64,
    /// Its current value, nanoseconds.
    pub now_ns: u64,
}

impl Left {
    /// Calls beyond this are far from usual, nanoseconds.
    pub fn level_ns(&self) -> u64 {
        (self.usual_ns.max(1) as f64 * self.now_ns as f64).sqrt() as u64
    }
}

/// The judgement on a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum State {
    /// There is no baseline yet.
    Learning,
    /// As usual.
    Within,
    /// One window out of range: it may be noise.
    Doubtful,
    /// Two or more in a row.
    Out(Left),
}

/// State of one pair.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    baseline: VecDeque<Figures>,
    /// Calls of the baseline's windows: each of the newest separately,
    recent: VecDeque<Stretch>,
    /// then those before them, and those before these.
    older: [Stretch; 2],
    /// Number of windows in the newer of the two.
    newer: usize,
    /// p99 of the gaps and client durations of all of these, nanoseconds; `None` if there are too few calls.
    p99_ns: [Option<f64>; 2],
    /// Windows learned since it was computed.
    p99_age: u32,
    /// The last windows, if they were out of range, or may be the first ones of a row.
    held: Vec<Window>,
    /// Figures in which the last one was out of range, one bit each.
    out: u16,
    /// For each figure, how many successive windows were beyond the factor of a long baseline.
    beyond: [u8; FIGURES.len()],
    /// When their latest row began: see [`Watch::row_began`].
    row_began: [u64; 2],
    /// Number of successive windows out of range.
    row: u32,
    /// Calls over the threshold in the last minute, by window.
    over: VecDeque<u64>,
    lasting: Lasting,
    /// Beyond this is one of the few long calls by which the pair has left its baseline last, nanoseconds.
    lasting_ns: u64,
}

impl Watch {
    /// Judges the next window, and learns from it.
    pub fn take(&mut self, window: Window) -> State {
        self.judge(window, true)
    }

    /// Judges the next window, in which some calls had a remedy on trial: it does not enter the baseline.
    pub fn take_tried(&mut self, window: Window) -> State {
        self.judge(window, false)
    }

    fn judge(&mut self, window: Window, is_usual: bool) -> State {
        if self.baseline.len() < LEAST_WINDOWS {
            if is_usual {
                self.learn(&window);
            }
            return State::Learning;
        }
        let lefts: Vec<Option<Left>> = self.lefts(&window, false).collect();
        let out =
            lefts.iter().enumerate().fold(0, |out, (place, left)| out | (u16::from(left.is_some()) << place));
        let beyond: Vec<Option<Left>> =
            (0..FIGURES.len()).map(|place| self.left(place, &window.figures, true)).collect();
        for (row, left) in self.beyond.iter_mut().zip(&beyond) {
            *row = if left.is_some() { row.saturating_add(1) } else { 0 };
        }
        let again = lefts.into_iter().enumerate().filter(|(place, _)| self.out & (1 << place) != 0);
        let patient = beyond.into_iter().zip(self.beyond).filter(|(_, row)| *row >= PATIENT);
        let mut lefts = again.filter_map(|(_, left)| left).chain(patient.filter_map(|(left, _)| left));
        let left = lefts.find(|left| self.is_no_chance(left, &window));
        let lasting = self.left_for_a_minute(&window);
        let began = lasting.filter(|_| left.is_none()).map(|(_, began)| began);
        let left = left.or(lasting.map(|(left, _)| left));
        if left.is_some() || !is_usual {
            self.lasting.last_is_unusual();
        }
        let is_news = left.is_some() && self.row <= NEW_USUAL;
        let may_be_a_row = self.beyond.iter().any(|row| (1..PATIENT).contains(row));
        if is_news {
            if self.row == 0 {
                self.row_began = began.unwrap_or(self.held.first().unwrap_or(&window).between);
            }
            self.held.clear();
        } else if self.row == 0 || left.is_some() {
            // A single one was noise, and belongs to the baseline.
            let stay = if may_be_a_row { usize::from(PATIENT) - 1 } else { 0 };
            for _ in stay..self.held.len() {
                let before = self.held.remove(0);
                self.learn(&before);
            }
        } else {
            // The last one of a row does not.
            self.held.clear();
        }
        self.out = out;
        self.row = if left.is_some() { self.row + 1 } else { 0 };
        if is_usual && (out != 0 || may_be_a_row || left.is_some()) {
            self.held.push(window);
        } else if is_usual {
            self.learn(&window);
        }
        match left {
            Some(left) => State::Out(left),
            None if out != 0 => State::Doubtful,
            None => State::Within,
        }
    }

    /// Start and end of the first window of the latest row, Unix milliseconds.
    pub fn row_began(&self) -> [u64; 2] {
        self.row_began
    }

    /// The baseline as of a moment: windows that had ended by then. `None` if there were too few.
    pub fn usual(&self, until_unix_ms: u64) -> Option<Stretch> {
        let mut all = Stretch::default();
        let passed = |stretch: &&Stretch| stretch.windows > 0 && stretch.to_unix_ms <= until_unix_ms;
        self.older.iter().chain(&self.recent).filter(passed).for_each(|stretch| all.add(stretch));
        (all.windows >= LEAST_WINDOWS).then_some(all)
    }

    /// Calls after a moment, from the windows that are kept separately and the last one.
    pub fn since(&self, from_unix_ms: u64) -> Stretch {
        let mut all = Stretch::default();
        let since = |stretch: &&Stretch| stretch.to_unix_ms > from_unix_ms;
        self.recent.iter().filter(since).for_each(|stretch| all.add(stretch));
        let held = self.held.iter().map(Window::stretch).collect::<Vec<_>>();
        held.iter().filter(since).for_each(|stretch| all.add(stretch));
        all
    }

    /// Whether calls of one time range took clearly longer than others: in the median, in the mean, at p90 or
    /// at p99, gaps or client durations.
    pub fn are_slower(slow: &[Counts; 2], usual: &[Counts; 2]) -> bool {
        slow.iter().zip(usual).any(|(slow, usual)| {
            STATISTICS.iter().any(|statistic| {
                let both = slow.statistic(*statistic).zip(usual.statistic(*statistic));
                both.is_some_and(|(slow, usual)| is_clearly_slower(slow, usual))
            })
        })
    }

    /// The current baseline, independent of later changes.
    pub fn remembered(&self) -> Remembered {
        Remembered(Watch {
            baseline: self.baseline.clone(),
            recent: self.recent.clone(),
            older: self.older.clone(),
            p99_ns: self.p99_ns,
            lasting_ns: self.lasting_ns,
            ..Watch::default()
        })
    }

    fn learn(&mut self, window: &Window) {
        if self.baseline.len() >= MOST_WINDOWS {
            self.baseline.pop_front();
        }
        self.baseline.push_back(window.figures);
        self.recent.push_back(window.stretch());
        if self.recent.len() > RECENT
            && let Some(aged) = self.recent.pop_front()
        {
            if self.newer >= MOST_WINDOWS / 2 {
                self.older.swap(0, 1);
                self.older[0] = Stretch::default();
                self.newer = 0;
            }
            self.newer += 1;
            self.older[0].add(&aged);
        }
        self.p99_age += 1;
        if self.baseline.len() < LONG || self.p99_age >= P99_EVERY {
            self.p99_age = 0;
            let mut all = Stretch::default();
            self.older.iter().chain(&self.recent).for_each(|stretch| all.add(stretch));
            self.p99_ns = all.counts.map(|counts| counts.statistic(Statistic::P99));
        }
    }

    /// For each figure, in the order of their bits; with `is_patient`, the factor of a long baseline
    /// suffices.
    fn lefts(&self, window: &Window, is_patient: bool) -> impl Iterator<Item = Option<Left>> {
        let own = (0..FIGURES.len()).map(move |place| self.left(place, &window.figures, is_patient));
        own.chain((0..SLOWEST.len()).map(|of| self.left_by_slowest(of, window)))
    }

    /// Calls beyond this are far beyond the p99 of the baseline.
    fn far_ns(&self, of: usize) -> Option<u64> {
        let p99_ns = self.p99_ns[of]?;
        Some((p99_ns * Watch::factor(self.baseline.len())).max(p99_ns + LEAST_NS) as u64)
    }

    /// Whether a few calls take very long since a minute, with the first window of these; of a long baseline alone.
    fn left_for_a_minute(&mut self, window: &Window) -> Option<(Left, [u64; 2])> {
        let levels_ns = [self.far_ns(0)?, self.far_ns(1)?];
        if self.baseline.len() < LONG {
            return None;
        }
        self.lasting.take(window, levels_ns);
        let left = (0..LASTING.len()).find_map(|of| self.lasting.left(of, self.p99_ns[of]?))?;
        self.lasting_ns = left.0.level_ns();
        Some(left)
    }

    /// Whether far more calls of a window than usual lie far beyond the p99 of the baseline.
    fn left_by_slowest(&self, of: usize, window: &Window) -> Option<Left> {
        let (counts, p99_ns, level_ns) = (&window.counts[of], self.p99_ns[of]?, self.far_ns(of)?);
        let share = |counts: &Counts| counts.over(level_ns) as f64 / counts.calls.max(1) as f64;
        let now = share(counts);
        if counts.over(level_ns) < LEAST_SLOWEST {
            return None;
        }
        let mut late: Vec<f64> = self.recent.iter().map(|window| share(&window.counts[of])).collect();
        late.sort_by(f64::total_cmp);
        // Beyond nearly all: one in nine may have been noise, or the first of these.
        if late.iter().rev().nth(late.len() / 9).is_some_and(|late| now <= TIMES_SHARE * late) {
            return None;
        }
        if self.chance(of, level_ns, &[counts]) >= CHANCE_OF_ONE {
            return None;
        }
        let now_ns = counts.quantile_ns(1.0 - now / 2.0) as u64;
        Some(Left { figure: SLOWEST[of], usual_ns: p99_ns as u64, now_ns })
    }

    /// Minimum factor beyond the baseline, for a baseline of this many windows.
    fn factor(windows: usize) -> f64 {
        match windows {
            ..12 => 2.0 * FACTOR,
            12..LONG => 4.0 / 3.0 * FACTOR,
            _ => FACTOR,
        }
    }

    /// Whether calls that long are too frequent in this window and the held ones to belong to the baseline:
    /// if both had the same distribution, each such call would be in one of them in proportion to their
    /// numbers of calls.
    fn is_no_chance(&self, left: &Left, window: &Window) -> bool {
        let (of, level_ns) = (left.figure.of(), left.level_ns());
        let held = self.held.iter().chain([window]).map(|window| &window.counts[of]);
        self.chance(of, level_ns, &held.collect::<Vec<_>>()) < CHANCE
    }

    /// The probability that this many of these calls exceed a level, if they belong to the baseline.
    fn chance(&self, of: usize, level_ns: u64, these: &[&Counts]) -> f64 {
        let count = |counts: &[&Counts]| -> (u64, u64) {
            (counts.iter().map(|one| one.over(level_ns)).sum(), counts.iter().map(|one| one.calls).sum())
        };
        let (now, calls) = count(these);
        let baseline: Vec<&Counts> =
            self.older.iter().chain(&self.recent).map(|all| &all.counts[of]).collect();
        let (usual, calls_usual) = count(&baseline);
        at_least(now, now + usual, calls as f64 / (calls + calls_usual).max(1) as f64)
    }

    fn left(&self, place: usize, window: &Figures, is_patient: bool) -> Option<Left> {
        let now = f64::from(window[place]);
        let usual = self.baseline.iter().map(|figures| f64::from(figures[place]));
        let mut usual: Vec<f64> = usual.filter(|ns| !ns.is_nan()).map(|ns| ns.max(1.0)).collect();
        if now.is_nan() || usual.len() < LEAST_WINDOWS {
            return None;
        }
        let windows = usual.len();
        let nth = |values: &mut [f64], place: usize| *values.select_nth_unstable_by(place, f64::total_cmp).1;
        // Beyond nearly all: one in fifty may be the excursion of another day.
        let high = nth(&mut usual, windows - 1 - windows / 50);
        let median = nth(&mut usual, windows / 2);
        let factor = if is_patient { FACTOR } else { Watch::factor(windows) };
        // Few windows are beyond these bounds, and the spread takes a logarithm for each window of the baseline.
        let bounds = [median * factor, high * factor.sqrt(), median + LEAST_NS];
        if !bounds.iter().all(|bound| now > *bound) {
            return None;
        }
        let mut away: Vec<f64> = usual.iter().map(|ns| (ns / median).ln().abs()).collect();
        // 1.4826: by this factor, the median absolute deviation of a normal distribution is smaller than its
        // standard deviation.
        let spread = 1.4826 * nth(&mut away, windows / 2);
        (now > median * (SPREADS * spread).exp()).then_some(Left {
            figure: FIGURES[place],
            usual_ns: median as u64,
            now_ns: now as u64,
        })
    }

    /// Counts calls over a threshold in the next time range, of which `stretches` make a minute; returns
    /// whether that makes a case.
    pub fn is_over(&mut self, calls: u64, stretches: usize) -> bool {
        if self.over.len() >= stretches.max(1) {
            self.over.pop_front();
        }
        self.over.push_back(calls);
        self.over.iter().sum::<u64>() >= OVER
    }
}

/// The usual figures of a pair at some moment, whatever became usual afterwards.
#[derive(Clone, Debug)]
pub struct Remembered(Watch);

impl Remembered {
    /// Whether a window is out of their range in this figure.
    pub fn is_out(&self, window: &Window, figure: Figure) -> bool {
        if LASTING.contains(&figure) {
            // One such call is what most of the windows had.
            return window.counts[figure.of()].over(self.0.lasting_ns) > 0;
        }
        self.0.lefts(window, true).flatten().any(|left| left.figure == figure)
    }

    /// All calls it was learned from.
    pub fn stretch(&self) -> Stretch {
        let mut all = Stretch::default();
        let some = self.0.older.iter().chain(&self.0.recent).filter(|stretch| stretch.windows > 0);
        some.for_each(|stretch| all.add(stretch));
        all
    }

    /// Whether these calls, of many windows, take clearly longer in this figure's distribution, in a way that chance does not
    /// explain. Each window by itself may have too few calls to show that.
    pub fn are_slower(&self, counts: &[Counts; 2], of: usize) -> bool {
        let usual = &self.stretch().counts[of];
        let now = &counts[of];
        STATISTICS.iter().any(|statistic| {
            let Some((now_ns, usual_ns)) = now.statistic(*statistic).zip(usual.statistic(*statistic)) else {
                return false;
            };
            let level_ns = (usual_ns.max(1.0) * now_ns).sqrt() as u64;
            is_clearly_slower(now_ns, usual_ns) && self.0.chance(of, level_ns, &[now]) < CHANCE_OF_ONE
        })
    }
}

/// Probability of `least` or more of `of` independent events, each with probability `p`.
fn at_least(least: u64, of: u64, p: f64) -> f64 {
    let (p, mean) = (p.clamp(1e-12, 1.0 - 1e-12), of as f64 * p);
    if least as f64 <= mean {
        return 1.0;
    }
    // The first term by logarithms, the others by their ratios, which are below 1 and decreasing.
    let ln_choose: f64 = (0..least).map(|k| ((of - k) as f64).ln() - ((k + 1) as f64).ln()).sum();
    let mut term = (ln_choose + least as f64 * p.ln() + (of - least) as f64 * (-p).ln_1p()).exp();
    let mut sum = 0.0;
    for k in least..=of {
        sum += term;
        term *= (of - k) as f64 / (k + 1) as f64 * p / (1.0 - p);
        if term < sum * 1e-6 {
            break;
        }
    }
    sum
}

#[cfg(test)]
mod tests;
