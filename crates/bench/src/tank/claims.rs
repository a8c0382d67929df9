//! Claims that these runs on this machine do not support, in words. Pure.

use crate::report::{Asked, Noise, Run};
use spangap_model::duration::format_ns;
use spangap_report::figures::{counted, percent};

/// Quantiles that tables show, and the number of calls that each needs.
const NEEDS: [(&str, u64); 3] = [("p99", 100), ("p99.9", 1_000), ("p99.99", 10_000)];

/// Sentences that begin with the unsupported claim.
pub fn cannot_claim(noise: &Noise, runs: &[Run]) -> Vec<String> {
    if runs.is_empty() {
        return Vec::new();
    }
    let mut claims = vec![differences(noise, runs), tail(noise)];
    claims.extend(lateness(noise, runs));
    claims.extend(shared_cpus(noise, runs));
    claims.extend(network(runs));
    claims.extend(quantiles(runs));
    claims
}

/// Ratio of the largest to the smallest p50 of equal runs.
fn spread(runs: &[Run]) -> Option<f64> {
    let mut widest: Option<f64> = None;
    let mut known: Vec<&Asked> = Vec::new();
    for run in runs {
        if known.contains(&&run.asked) {
            continue;
        }
        known.push(&run.asked);
        let equal: Vec<u64> = runs
            .iter()
            .filter(|other| other.asked == run.asked)
            .filter_map(|other| other.latency.p50_ns)
            .collect();
        if let (2.., Some(&low @ 1..), Some(&high)) = (equal.len(), equal.iter().min(), equal.iter().max()) {
            let ratio = high as f64 / low as f64;
            widest = Some(widest.map_or(ratio, |widest| widest.max(ratio)));
        }
    }
    widest
}

fn differences(noise: &Noise, runs: &[Run]) -> String {
    // A duration is the difference of two readings.
    let clock = format_ns(noise.clock_read_ns + noise.clock_step_ns);
    match spread(runs) {
        Some(ratio) => format!(
            "differences of p50 below {}, by which equal runs differed; nor below {clock}, the clock's own \
             error",
            percent(ratio - 1.0)
        ),
        None => format!(
            "any difference between single runs: without --repeat, how much equal runs differ is unknown; \
             differences below {clock} are within the clock's own error in any case"
        ),
    }
}

fn tail(noise: &Noise) -> String {
    format!(
        "that client, network or target delayed a single call by up to {}: a thread that never sleeps was kept from \
         running for that long, in only {} of watching",
        format_ns(noise.longest_pause_ns),
        format_ns(noise.watched_ns)
    )
}

fn lateness(noise: &Noise, runs: &[Run]) -> Option<String> {
    let late = noise.timer_lateness.p99_ns?;
    runs.iter().any(|run| run.lateness.is_some()).then(|| {
        format!(
            "lateness below {}: an exact sleep of 1 ms ends that late once in 100 times on this machine",
            format_ns(late)
        )
    })
}

fn shared_cpus(noise: &Noise, runs: &[Run]) -> Option<String> {
    let local = runs.iter().filter(|run| run.on_this_host());
    let full = |run: &&Run| {
        let used = run.cpu_client_s + run.cpu_target_s.unwrap_or(0.0);
        used > 0.8 * run.duration_s * f64::from(noise.cpus.min(2)) || noise.cpus <= 2
    };
    let count = local.filter(full).count();
    (count > 0).then(|| {
        format!(
            "whether client or target limits the throughput: in {count} of {} runs both share this host, and the \
             target may also use {} of the client's",
            runs.len(),
            counted(noise.cpus, "CPU")
        )
    })
}

fn network(runs: &[Run]) -> Option<String> {
    let distant = runs.iter().filter(|run| !run.on_this_host()).count();
    (distant > 0).then(|| {
        format!(
            "that everything above the floor comes from the stacks: the floor is over loopback, and {distant} of {} \
             runs are not",
            runs.len()
        )
    })
}

fn quantiles(runs: &[Run]) -> Option<String> {
    let few = |needs: u64| runs.iter().filter(|run| run.ok < needs).count();
    let (name, needs) = NEEDS.into_iter().find(|&(_, needs)| few(needs) > 0)?;
    let above: Vec<_> = NEEDS.iter().filter(|(_, more)| *more > needs).map(|(name, _)| *name).collect();
    let above =
        if above.is_empty() { String::new() } else { format!(", still less {}", above.join(" and ")) };
    Some(format!("{name} of {} of {} runs{above}: it needs {needs} OK calls", few(needs), runs.len()))
}
