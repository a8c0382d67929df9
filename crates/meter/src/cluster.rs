//! Pods and nodes of a Kubernetes cluster, as its API lists them: what a resource leaves out about where its spans come from.
//!
//! A uid or a container id is never given to a second pod. An address or a name is, once its owner has ended; those find a pod
//! only while the API is being heard, and only if they fit exactly one. Whatever the resource states must agree with the pod found.

use core::net::IpAddr;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Most pods remembered. Further ones are counted, and name nobody.
const MOST_PODS: usize = 50_000;
/// Most nodes remembered.
const MOST_NODES: usize = 10_000;
/// Most addresses and containers of a pod.
const MOST_OF_A_POD: usize = 64;
/// How long a pod is remembered after its end: exporters deliver the last spans late.
const ENDED_KEPT_MS: u64 = 600_000;
/// How long the address and the name of an ended pod may still be meant.
const ENDED_MEANT_MS: u64 = 60_000;
/// Silence of the API after which addresses and names find nobody: their owners may have changed.
const SILENCE_MS: u64 = 120_000;
/// How often answers are compared with those given before: each comparison reads every resource again.
const COMPARED_MS: u64 = 5_000;
/// Shortest prefix that identifies a container; runtimes print the first twelve digits.
const CONTAINER_DIGITS: usize = 12;

/// A pod as the API describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Pod {
    /// Unique over time and namespaces.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Unique within the namespace, at one time.
    pub name: String,
    /// Node that it was assigned to; empty before that.
    pub node: String,
    /// Host name inside of it.
    pub host_name: String,
    /// Label `app.kubernetes.io/version`.
    pub version: Option<String>,
    /// Its addresses; none of its own if it uses its node's network.
    pub addresses: Vec<IpAddr>,
    /// Ids of its containers, without the runtime's name.
    pub containers: Vec<String>,
    /// Whether all of its containers have ended: its address is free again.
    pub has_ended: bool,
}

/// What a resource states about its pod.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stated<'a> {
    /// `k8s.pod.uid`.
    pub uid: Option<&'a str>,
    /// `container.id`.
    pub container: Option<&'a str>,
    /// `k8s.pod.ip`.
    pub address: Option<&'a str>,
    /// `k8s.pod.name`.
    pub name: Option<&'a str>,
    /// `k8s.namespace.name`.
    pub namespace: Option<&'a str>,
    /// `k8s.node.name`.
    pub node: Option<&'a str>,
    /// `host.name`: inside a pod its own, unless a Collector overwrote it.
    pub host_name: Option<&'a str>,
}

/// Result of looking for a resource's pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// One pod, by an id that no other pod will ever have.
    ById,
    /// One pod, by an address or a name that another may have later.
    ByName,
    /// The API lists no such pod.
    Unlisted,
    /// Several pods have, or lately had, that address or name.
    Several,
    /// The pod found differs from what the resource states.
    Contradicted,
    /// The API has been silent for too long to trust addresses and names.
    Silent,
}

/// What the API adds to a resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Found {
    /// How the look-up ended; `None` if the resource states nothing to look for.
    pub outcome: Option<Outcome>,
    /// The pod.
    pub pod: Option<Arc<Pod>>,
    /// Zone of the pod's node, or of the node that the resource states.
    pub zone: Option<String>,
}

/// State of the directory, for the coverage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterFigures {
    /// Pods known, including lately ended ones.
    pub pods: u64,
    /// Nodes known.
    pub nodes: u64,
    /// Pods and nodes past the limits.
    pub refused: u64,
    /// Time since the API was last heard, milliseconds; `None` if never.
    pub silent_ms: Option<u64>,
    /// Why pods or nodes cannot be listed or watched at the moment.
    pub problems: Vec<String>,
}

/// Kinds of objects that are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Pods of all namespaces.
    Pods,
    /// Nodes.
    Nodes,
}

/// The directory. Empty and unasked unless somebody feeds it.
#[derive(Debug, Default)]
pub struct Cluster {
    is_fed: AtomicBool,
    now_ms: AtomicU64,
    changes: AtomicU64,
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
struct Known {
    pods: HashMap<Arc<str>, Entry>,
    by: HashMap<Key, Vec<Arc<str>>>,
    zones: HashMap<String, Option<String>>,
    refused: u64,
    heard_ms: Option<u64>,
    problems: [Option<String>; 2],
    /// When answers were last compared, and the changes and the silence then.
    compared_ms: u64,
    compared: (u64, bool),
}

#[derive(Debug)]
struct Entry {
    pod: Arc<Pod>,
    ended_ms: Option<u64>,
    /// Whether it ended so long ago that its address and name are another's.
    is_past: bool,
}

/// What else than its uid finds a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Key {
    /// First digits of a container's id.
    Container(String),
    Address(IpAddr),
    Name(String),
    HostName(String),
}

impl Pod {
    fn keys(&self) -> Vec<Key> {
        let container = |id: &String| Some(Key::Container(id.get(..CONTAINER_DIGITS)?.into()));
        let mut keys: Vec<Key> = self.containers.iter().filter_map(container).collect();
        keys.extend(self.addresses.iter().map(|address| Key::Address(address.to_canonical())));
        keys.push(Key::Name(self.name.clone()));
        // A pod with an address of its own also has a host name of its own.
        if !self.addresses.is_empty() {
            keys.push(Key::HostName(self.host_name.clone()));
        }
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Whether the resource says nothing else about its pod. A Collector may have overwritten `host.name`, but only beside ids.
    fn agrees(&self, stated: &Stated, with_host_name: bool) -> bool {
        let same = |stated: Option<&str>, own: &str| stated.is_none_or(|stated| stated == own);
        let host_name =
            |stated: &str| [&self.host_name, &self.node].iter().any(|own| own.eq_ignore_ascii_case(stated));
        same(stated.uid, &self.uid)
            && same(stated.name, &self.name)
            && same(stated.namespace, &self.namespace)
            && same(stated.node, &self.node)
            && (!with_host_name || stated.host_name.is_none_or(host_name))
    }

    fn is_same_place(&self, other: &Pod) -> bool {
        (&self.namespace, &self.name, &self.node) == (&other.namespace, &other.name, &other.node)
    }
}

impl Found {
    /// Whether both add the same names for the same reason.
    pub fn is_like(&self, other: &Found) -> bool {
        let names = |found: &Found| {
            let pod = found.pod.as_ref()?;
            Some((pod.namespace.clone(), pod.name.clone(), pod.node.clone(), pod.version.clone()))
        };
        (self.outcome, &self.zone) == (other.outcome, &other.zone) && names(self) == names(other)
    }
}

impl Stated<'_> {
    /// Whether it has anything by which a pod can be found.
    fn is_something(&self) -> bool {
        [self.uid, self.container, self.address, self.name, self.host_name].iter().any(Option::is_some)
    }
}

impl Cluster {
    /// Declares that the directory is fed from now on.
    pub fn start(&self) {
        self.is_fed.store(true, Relaxed);
    }

    /// Whether anybody feeds it.
    pub fn is_fed(&self) -> bool {
        self.is_fed.load(Relaxed)
    }

    fn read(&self) -> RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Known> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_ms(&self) -> u64 {
        self.now_ms.load(Relaxed)
    }

    fn changed(&self) {
        self.changes.fetch_add(1, Relaxed);
    }

    /// Number of changes so far.
    pub fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// An answer given before the latest change may have missed the comparison that followed it.
    pub fn compare_again_if_changed_since(&self, changes: u64) {
        if self.changes() != changes {
            self.changed();
        }
    }

    /// The API has answered.
    pub fn heard(&self, kind: Kind) {
        let mut known = self.write();
        known.problems[kind as usize] = None;
        if kind == Kind::Pods {
            known.heard_ms = Some(self.now_ms());
        }
    }

    /// The API cannot be asked, or refuses.
    pub fn failed(&self, kind: Kind, why: String) {
        self.write().problems[kind as usize] = Some(why);
    }

    /// A complete list of pods: those missing from it have ended.
    pub fn listed(&self, pods: Vec<Pod>) {
        let now_ms = self.now_ms();
        let mut known = self.write();
        let listed: std::collections::HashSet<&str> = pods.iter().map(|pod| pod.uid.as_str()).collect();
        let gone: Vec<Arc<str>> =
            known.pods.keys().filter(|uid| !listed.contains(&***uid)).cloned().collect();
        gone.iter().for_each(|uid| known.end(uid, now_ms));
        pods.into_iter().for_each(|pod| known.put(pod, now_ms));
        self.changed();
    }

    /// A pod is new or has changed.
    pub fn put(&self, pod: Pod) {
        let mut known = self.write();
        if known.pods.get(pod.uid.as_str()).is_none_or(|entry| *entry.pod != pod) {
            known.put(pod, self.now_ms());
            self.changed();
        }
    }

    /// A pod was deleted.
    pub fn deleted(&self, uid: &str) {
        self.write().end(uid, self.now_ms());
        self.changed();
    }

    /// A complete list of nodes with their zones.
    pub fn nodes_listed(&self, nodes: Vec<(String, Option<String>)>) {
        let mut known = self.write();
        known.zones.clear();
        nodes.into_iter().for_each(|(name, zone)| known.put_node(name, zone));
        self.changed();
    }

    /// A node is new or has changed.
    pub fn put_node(&self, name: String, zone: Option<String>) {
        let mut known = self.write();
        if known.zones.get(&name) != Some(&zone) {
            known.put_node(name, zone);
            self.changed();
        }
    }

    /// A node was deleted.
    pub fn node_deleted(&self, name: &str) {
        self.write().zones.remove(name);
        self.changed();
    }

    /// Advances the time and forgets pods that ended long ago. True if answers may differ from those before the last such call.
    pub fn tick(&self, now_ms: u64) -> bool {
        self.now_ms.fetch_max(now_ms, Relaxed);
        if !self.is_fed() {
            return false;
        }
        let mut known = self.write();
        if now_ms.saturating_sub(known.compared_ms) < COMPARED_MS {
            return false;
        }
        known.compared_ms = now_ms;
        if known.forget(now_ms) {
            self.changed();
        }
        let state = (self.changes(), known.is_silent(now_ms));
        std::mem::replace(&mut known.compared, state) != state
    }

    /// What the API adds to a resource.
    pub fn find(&self, stated: &Stated) -> Found {
        let known = self.read();
        let (outcome, pod) = match known.pod(stated, self.now_ms()) {
            None => (None, None),
            Some(Ok((outcome, pod))) => (Some(outcome), Some(pod)),
            Some(Err(why)) => (Some(why), None),
        };
        let node = stated.node.or(pod.as_ref().map(|pod| pod.node.as_str()));
        // The host name of a pod in its node's network, and of a program beside the pods, is that of the node.
        let node = node.or(stated.host_name);
        let zone = node.and_then(|node| known.zones.get(node)).cloned().flatten();
        Found { outcome, pod, zone }
    }

    /// Its state.
    pub fn figures(&self) -> ClusterFigures {
        let known = self.read();
        ClusterFigures {
            pods: known.pods.len() as u64,
            nodes: known.zones.len() as u64,
            refused: known.refused,
            silent_ms: known.heard_ms.map(|heard_ms| self.now_ms().saturating_sub(heard_ms)),
            problems: known.problems.iter().flatten().cloned().collect(),
        }
    }
}

impl Known {
    fn put(&mut self, mut pod: Pod, now_ms: u64) {
        pod.containers.truncate(MOST_OF_A_POD);
        pod.addresses.truncate(MOST_OF_A_POD);
        let before = self.remove(&pod.uid);
        if before.is_none() && self.pods.len() >= MOST_PODS {
            self.refused += 1;
            return;
        }
        let ended_before = before.and_then(|before| before.ended_ms);
        let ended_ms = pod.has_ended.then(|| ended_before.unwrap_or(now_ms));
        let is_past = ended_ms.is_some_and(|ended_ms| now_ms.saturating_sub(ended_ms) > ENDED_MEANT_MS);
        let uid: Arc<str> = pod.uid.as_str().into();
        for key in pod.keys() {
            self.by.entry(key).or_default().push(uid.clone());
        }
        self.pods.insert(uid, Entry { pod: Arc::new(pod), ended_ms, is_past });
    }

    fn put_node(&mut self, name: String, zone: Option<String>) {
        if self.zones.len() >= MOST_NODES && !self.zones.contains_key(&name) {
            self.refused += 1;
            return;
        }
        self.zones.insert(name, zone);
    }

    fn remove(&mut self, uid: &str) -> Option<Entry> {
        let entry = self.pods.remove(uid)?;
        for key in entry.pod.keys() {
            if let Some(uids) = self.by.get_mut(&key) {
                uids.retain(|other| &**other != uid);
                if uids.is_empty() {
                    self.by.remove(&key);
                }
            }
        }
        Some(entry)
    }

    fn end(&mut self, uid: &str, now_ms: u64) {
        if let Some(entry) = self.pods.get_mut(uid) {
            entry.ended_ms.get_or_insert(now_ms);
        }
    }

    /// Whether anything was forgotten, or an ended pod's address can no longer be meant.
    fn forget(&mut self, now_ms: u64) -> bool {
        let ended_for = |entry: &Entry| entry.ended_ms.map_or(0, |ended_ms| now_ms.saturating_sub(ended_ms));
        let old = self.pods.iter().filter(|(_, entry)| ended_for(entry) > ENDED_KEPT_MS);
        let old: Vec<Arc<str>> = old.map(|(uid, _)| uid.clone()).collect();
        old.iter().for_each(|uid| drop(self.remove(uid)));
        let mut has_changed = !old.is_empty();
        for entry in self.pods.values_mut() {
            let is_past = ended_for(entry) > ENDED_MEANT_MS;
            has_changed |= std::mem::replace(&mut entry.is_past, is_past) != is_past;
        }
        has_changed
    }

    fn is_silent(&self, now_ms: u64) -> bool {
        self.heard_ms.is_none_or(|heard_ms| now_ms.saturating_sub(heard_ms) > SILENCE_MS)
    }

    /// The pod that a resource's spans come from; `None` if it states nothing to look for.
    fn pod(&self, stated: &Stated, now_ms: u64) -> Option<Result<(Outcome, Arc<Pod>), Outcome>> {
        if !stated.is_something() {
            return None;
        }
        let id = stated.uid.or(stated.container);
        if id.is_some() {
            // An id that nobody has is one of another cluster, or of long ago. An address would say less, not more.
            let entry = match stated.uid {
                Some(uid) => self.pods.get(uid),
                None => self.of_container(stated.container.unwrap_or_default()),
            };
            return Some(match entry {
                None => Err(Outcome::Unlisted),
                Some(entry) if !entry.pod.agrees(stated, false) => Err(Outcome::Contradicted),
                Some(entry) => Ok((Outcome::ById, entry.pod.clone())),
            });
        }
        let key = match (stated.address, stated.name, stated.host_name) {
            (Some(address), ..) => Key::Address(address.parse::<IpAddr>().ok()?.to_canonical()),
            (_, Some(name), _) => Key::Name(name.into()),
            // A host called like a node is that node.
            (.., Some(host_name)) if !self.zones.contains_key(host_name) => Key::HostName(host_name.into()),
            _ => return None,
        };
        if self.is_silent(now_ms) {
            return Some(Err(Outcome::Silent));
        }
        let uids = self.by.get(&key).into_iter().flatten();
        let having: Vec<&Entry> =
            uids.filter_map(|uid| self.pods.get(uid)).filter(|entry| !entry.is_past).collect();
        let mut fitting = having.iter().filter(|entry| entry.pod.agrees(stated, true));
        Some(match fitting.next() {
            None if having.is_empty() => Err(Outcome::Unlisted),
            None => Err(Outcome::Contradicted),
            Some(first) if fitting.all(|other| other.pod.is_same_place(&first.pod)) => {
                Ok((Outcome::ByName, first.pod.clone()))
            }
            Some(_) => Err(Outcome::Several),
        })
    }

    fn of_container(&self, id: &str) -> Option<&Entry> {
        let uids = self.by.get(&Key::Container(id.get(..CONTAINER_DIGITS)?.to_ascii_lowercase()))?;
        let has =
            |entry: &&Entry| entry.pod.containers.iter().any(|own| own.starts_with(&id.to_ascii_lowercase()));
        uids.iter().filter_map(|uid| self.pods.get(uid)).find(has)
    }
}

#[cfg(test)]
mod tests;
