//! The machine's own noise: threads that waited for a CPU behind many programs, none of which caused most of
//! the wait. Nobody is to blame, and slow calls are hit only because they last longer.

use super::Owner;
use super::account::Account;
use super::logical::Logical;
use crate::claims::{host_of, of_host};
use spangap_model::{Cause, Culprit, Side, Taker};
use std::collections::BTreeMap;

/// From this share of the waits on, one program is to blame for them.
const MOST: f64 = 0.5;

/// The ends at which waits for a CPU are noise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noise([bool; 2]);

/// The taker of a CPU: a program with all its processes, a process of unknown name, or something that is not
/// a process.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    Program(String),
    Process(u32),
    Other(String),
}

impl Noise {
    /// Over all calls together, because a program that takes a CPU takes it from whichever call is there.
    pub fn of(calls: &[Logical<'_>]) -> Noise {
        let mut waited: [BTreeMap<Option<Who>, f64>; 2] = Default::default();
        let programs = programs(calls);
        for call in calls {
            for leg in call.record.end_to_end() {
                let parts = leg.host.into_iter().flat_map(|host| &host.parts);
                for part in parts.filter(|part| is_wait(of_host(part, leg.legs))) {
                    let who = part.behind.as_ref().map(|taker| who(taker, &programs));
                    let of = &mut waited[host_of(leg.legs).index()];
                    *of.entry(who).or_default() += call.weight * part.ns as f64;
                }
            }
        }
        Noise(waited.map(|waited| {
            let known = waited.iter().filter(|(who, _)| who.is_some());
            let most = known.map(|(_, ns)| *ns).fold(0.0, f64::max);
            // If some waits have no observed taker, a single program may be behind all of these.
            let unknown = waited.get(&None).copied().unwrap_or(0.0);
            let all: f64 = waited.values().sum();
            all > 0.0 && most + unknown < MOST * all
        }))
    }

    /// The same account, with waits that are noise under [`Owner::Noise`].
    pub fn taken_out(self, account: Account) -> Account {
        let owner = |owner| match owner {
            Owner::Culprit(culprit) if is_wait(Some(culprit)) && self.is_at(culprit.side) => {
                Owner::Noise(culprit)
            }
            owner => owner,
        };
        account.into_iter().map(|(of, ns)| (owner(of), ns)).collect()
    }

    fn is_at(self, side: Option<Side>) -> bool {
        side.is_some_and(|side| self.0[side.index()])
    }
}

fn is_wait(culprit: Option<Culprit>) -> bool {
    culprit.is_some_and(|culprit| culprit.cause == Cause::RunQueue)
}

/// Names of processes, as far as their first threads were seen: a job that consists of many processes is one
/// program.
fn programs<'c>(calls: &[Logical<'c>]) -> BTreeMap<u32, &'c str> {
    let hosts = calls.iter().flat_map(|call| call.record.end_to_end()).filter_map(|leg| leg.host);
    let takers = hosts.flat_map(|host| &host.parts).filter_map(|part| part.behind.as_ref());
    let named = takers.filter_map(|taker| match taker {
        Taker::Task { tid, pid: Some(pid), name: Some(name) } if tid == pid => Some((*pid, name.as_str())),
        _ => None,
    });
    named.collect()
}

fn who(taker: &Taker, programs: &BTreeMap<u32, &str>) -> Who {
    match taker {
        Taker::Task { tid, pid, .. } => {
            let pid = pid.unwrap_or(*tid);
            programs.get(&pid).map_or(Who::Process(pid), |name| Who::Program((*name).to_owned()))
        }
        other => Who::Other(other.to_string()),
    }
}
