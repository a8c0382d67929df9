//! Origins of spans. Resources (and on request methods) are interned as small numbers, services and hosts as
//! smaller ones. Number and bytes are bounded: names are truncated, large resources are reduced, and idle
//! origins are removed and their numbers reused, but never while anything refers to them.
//!
//! A flood of new services must not displace the known ones, which are those that a pair exists of. Some room is theirs
//! alone: where a new instance of such a service finds no other, it is known by its service, and its host is unknown.

use super::named::{Named, Part};
use super::versions::Versions;
use super::walk::OriginSink;
use crate::cluster::{Cluster, Found, Outcome};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use rustc_hash::FxHashMap;
use sha2::{Digest, Sha256};
use spangap_model::pair::OTHER;
use spangap_model::shared::{Account, SharedBytes};
use std::borrow::Cow;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Name number for "not known".
pub const NO_NAME: u32 = u32::MAX;
/// Name number for names rejected for lack of room.
pub const OTHER_NAME: u32 = 0;

/// Limits on interned values.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Resources, times methods if these are separated.
    pub origins: usize,
    /// Services, hosts and methods together.
    pub names: usize,
    /// Bytes of a name; a longer one is truncated and ends in a digest of the whole, so that it stays
    /// distinct.
    pub name_bytes: usize,
    /// Bytes of a resource; a larger one retains only its naming attributes.
    pub resource_bytes: usize,
    /// Bytes of all names and resources together.
    pub bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            origins: 200_000,
            names: 100_000,
            name_bytes: 255,
            resource_bytes: 32 << 10,
            bytes: 64 << 20,
        }
    }
}

/// One in this many origins, and of their bytes, is for services that a pair exists of.
const RESERVED: usize = 8;

impl Limits {
    /// Origins of any service.
    fn open_origins(&self) -> usize {
        (self.origins - self.origins / RESERVED).max(1)
    }

    /// Bytes of any service.
    fn open_bytes(&self) -> u64 {
        self.bytes - self.bytes / RESERVED as u64
    }
}

/// Memory of a name and an origin besides their text: tables, counts, headers.
const NAME_OVERHEAD: usize = 96;
const ORIGIN_OVERHEAD: usize = 160;

/// A resource, or one method of it.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Name number of the service.
    pub service: u32,
    /// Name number of `service@part`, for tables by node, pod, zone or version.
    pub service_at_part: u32,
    /// Name number of the host, [`NO_NAME`] if the resource does not state it.
    pub host: u32,
    /// Name number of the method, [`NO_NAME`] if methods are not separated.
    pub method: u32,
    /// The encoded `Resource`.
    pub resource: SharedBytes,
    key: u128,
}

/// Usage of the interner, and the effects of its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fill {
    /// Resources, times methods.
    pub origins: u64,
    /// Services, hosts and methods.
    pub names: u64,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Truncated names, counted each time one is interned.
    pub names_cut: u64,
    /// Resources reduced to their naming attributes.
    pub resources_cut: u64,
    /// Origins removed because they were idle.
    pub origins_forgotten: u64,
    /// Instances of services with a pair that were known by their service alone, for lack of room, counted each time.
    pub origins_reduced: u64,
    /// Names removed because nothing referred to them any more.
    pub names_forgotten: u64,
    /// Resources and methods rejected for lack of room, assigned to the origin `other`.
    pub origins_refused: u64,
    /// Names rejected for lack of room, assigned to `other`.
    pub names_refused: u64,
}

/// The interned values; read-locked for the duration of a batch.
#[derive(Debug)]
pub struct Interned {
    by_key: FxHashMap<u128, u32>,
    /// Origins without an instance, by service, part and method.
    reduced: FxHashMap<[u32; 3], u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    name_numbers: FxHashMap<Arc<str>, u32>,
    names: Vec<Option<Arc<str>>>,
    /// Whether a pair exists of the name.
    is_paired: Vec<AtomicBool>,
    free_names: Vec<u32>,
    account: Account,
    limits: Limits,
    counts: Fill,
    versions: Versions,
    /// Answers of the cluster's API, by origin.
    asked: FxHashMap<u32, Found>,
}

#[derive(Debug)]
struct Slot {
    origin: Option<Origin>,
    last_used_ms: AtomicU64,
}

/// Names in use, by number.
#[derive(Debug)]
pub struct LiveNames(Vec<bool>);

impl LiveNames {
    /// Marks a name as in use.
    pub fn mark(&mut self, number: u32) {
        if let Some(live) = self.0.get_mut(number as usize) {
            *live = true;
        }
    }
}

impl Interned {
    /// The origin of a number assigned by the walk.
    #[inline]
    pub fn origin(&self, id: u32) -> &Origin {
        // Numbers outlive their use in the pending store: see `forget_idle`. Slot 0 is `other` and is never
        // removed.
        let slot = self.slots.get(id as usize).and_then(|s| s.origin.as_ref());
        slot.unwrap_or_else(|| self.slots[0].origin.as_ref().expect("slot 0 is filled at construction"))
    }

    /// Marks an origin as in use.
    pub fn touch(&self, id: u32, now_ms: u64) {
        if let Some(slot) = self.slots.get(id as usize) {
            slot.last_used_ms.fetch_max(now_ms, Relaxed);
        }
    }

    /// Marks a name as that of a pair, which gives its services room of their own.
    pub fn pair_of(&self, number: u32) {
        if let Some(is_paired) = self.is_paired.get(number as usize).filter(|_| number != OTHER_NAME) {
            is_paired.store(true, Relaxed);
        }
    }

    fn is_paired(&self, number: u32) -> bool {
        self.is_paired.get(number as usize).is_some_and(|is_paired| is_paired.load(Relaxed))
    }

    /// Text of a name number; `None` for [`NO_NAME`].
    pub fn name(&self, number: u32) -> Option<&Arc<str>> {
        self.names.get(number as usize)?.as_ref()
    }

    /// Current usage.
    pub fn fill(&self) -> Fill {
        Fill {
            origins: (self.slots.len() - self.free.len()) as u64,
            names: (self.names.len() - self.free_names.len()) as u64,
            bytes: self.account.bytes(),
            ..self.counts
        }
    }

    /// Versions of services and the times they appeared.
    pub fn versions(&self) -> &Versions {
        &self.versions
    }

    /// Number of origins for which the cluster's API was asked with this outcome.
    pub fn asked(&self, outcome: Outcome) -> u64 {
        self.asked.values().filter(|found| found.outcome == Some(outcome)).count() as u64
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether any limit is half used; idle origins should then be removed sooner, to leave room for bursts.
    pub fn is_crowded(&self) -> bool {
        let fill = self.fill();
        let crowded = |used: u64, limit: u64| used > limit / 2;
        crowded(fill.origins, self.limits.origins as u64)
            || crowded(fill.names, self.limits.names as u64)
            || crowded(fill.bytes, self.limits.bytes)
    }

    /// A name as it is interned: truncated if it is too long.
    fn cut<'a>(&mut self, name: &'a str) -> Cow<'a, str> {
        let cut = cut(name, self.limits.name_bytes);
        self.counts.names_cut += matches!(cut, Cow::Owned(_)) as u64;
        cut
    }

    fn intern(&mut self, name: &str) -> u32 {
        if let Some(number) = self.name_numbers.get(name) {
            return *number;
        }
        let bytes = (name.len() + NAME_OVERHEAD) as u64;
        let is_full = self.names.len() - self.free_names.len() >= self.limits.names
            || self.account.bytes() + bytes > self.limits.open_bytes();
        // The first name is `other`, for which there is always room.
        if is_full && !self.names.is_empty() {
            self.counts.names_refused += 1;
            return OTHER_NAME;
        }
        self.account.charge(bytes as usize);
        let name: Arc<str> = name.into();
        let number = match self.free_names.pop() {
            Some(number) => {
                self.names[number as usize] = Some(name.clone());
                number
            }
            None => {
                self.names.push(Some(name.clone()));
                self.is_paired.push(AtomicBool::new(false));
                self.names.len() as u32 - 1
            }
        };
        self.name_numbers.insert(name, number);
        number
    }

    /// The retained form of a resource: complete, or only its naming attributes and a count of the others.
    fn kept(&mut self, encoded: &[u8], named: &Named) -> SharedBytes {
        let left = self.limits.open_bytes().saturating_sub(self.account.bytes());
        // A quarter is reserved for names and tables.
        let is_small = encoded.len() <= self.limits.resource_bytes
            && left > self.limits.bytes / 4 + encoded.len() as u64;
        if is_small || encoded.is_empty() {
            return SharedBytes::charged(encoded, &self.account);
        }
        self.counts.resources_cut += 1;
        let attribute = |(key, value): (&str, &Option<String>)| {
            let text = Value::StringValue(cut(value.as_deref()?, self.limits.name_bytes).into_owned());
            let value = Some(AnyValue { value: Some(text) });
            Some(KeyValue { key: key.into(), value, ..KeyValue::default() })
        };
        let attributes: Vec<KeyValue> = named.attributes().into_iter().filter_map(attribute).collect();
        let dropped_attributes_count = named.count.saturating_sub(attributes.len() as u32);
        let rest = Resource { attributes, dropped_attributes_count, ..Resource::default() };
        SharedBytes::charged(rest.encode_to_vec(), &self.account)
    }

    /// Adds an origin; if there is no room, the one that stands for it.
    fn insert(&mut self, origin: Origin, now_ms: u64) -> u32 {
        let (open_origins, open_bytes) = (self.limits.open_origins(), self.limits.open_bytes());
        if self.has_room(open_origins, open_bytes) {
            let key = origin.key;
            let id = self.put(origin, now_ms);
            self.by_key.insert(key, id);
            return id;
        }
        let id = self.reduced(&origin, now_ms);
        match id {
            Some(_) => self.counts.origins_reduced += 1,
            None => self.counts.origins_refused += 1,
        }
        id.unwrap_or(0)
    }

    /// Whether another origin stays within these limits. There is always room for the first.
    fn has_room(&self, origins: usize, bytes: u64) -> bool {
        let used = self.slots.len() - self.free.len();
        used == 0 || used < origins && self.account.bytes() + ORIGIN_OVERHEAD as u64 <= bytes
    }

    fn put(&mut self, origin: Origin, now_ms: u64) -> u32 {
        self.account.charge(ORIGIN_OVERHEAD);
        let slot = Slot { origin: Some(origin), last_used_ms: AtomicU64::new(now_ms) };
        match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = slot;
                id
            }
            None => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
        }
    }

    /// Of this origin only what pairs need, if a pair exists of it.
    fn reduced(&mut self, origin: &Origin, now_ms: u64) -> Option<u32> {
        let part = if self.is_paired(origin.service_at_part) { origin.service_at_part } else { OTHER_NAME };
        if part == OTHER_NAME && !self.is_paired(origin.service) {
            return None;
        }
        let names = [origin.service, part, origin.method];
        if let Some(id) = self.reduced.get(&names) {
            self.touch(*id, now_ms);
            return Some(*id);
        }
        if !self.has_room(self.limits.origins, self.limits.bytes) {
            return None;
        }
        let resource = SharedBytes::from(&[][..]);
        let reduced = Origin { service_at_part: part, host: NO_NAME, resource, key: 0, ..*origin };
        let id = self.put(reduced, now_ms);
        self.reduced.insert(names, id);
        Some(id)
    }

    /// Removes origins not seen for `idle_ms`, which must exceed the lifetime of any reference to them.
    /// Returns the names that the remaining ones use.
    pub fn forget_idle(&mut self, now_ms: u64, idle_ms: u64) -> LiveNames {
        let mut live = LiveNames(vec![false; self.names.len()]);
        live.mark(OTHER_NAME);
        for id in 1..self.slots.len() {
            let slot = &mut self.slots[id];
            if slot.last_used_ms.load(Relaxed) + idle_ms < now_ms
                && let Some(origin) = slot.origin.take()
            {
                let names = [origin.service, origin.service_at_part, origin.method];
                if self.reduced.get(&names) == Some(&(id as u32)) {
                    self.reduced.remove(&names);
                } else if self.by_key.get(&origin.key) == Some(&(id as u32)) {
                    self.by_key.remove(&origin.key);
                }
                self.asked.remove(&(id as u32));
                self.free.push(id as u32);
                self.account.release(ORIGIN_OVERHEAD);
                self.counts.origins_forgotten += 1;
            }
            if let Some(origin) = &slot.origin {
                [origin.service, origin.service_at_part, origin.host, origin.method]
                    .into_iter()
                    .for_each(|number| live.mark(number));
            }
        }
        live
    }

    /// Removes unused names. Returns their numbers, which will be reassigned.
    pub fn forget_names(&mut self, live: &LiveNames) -> Vec<u32> {
        let mut forgotten = Vec::new();
        for (number, live) in (0u32..).zip(&live.0) {
            if !live && let Some(name) = self.names[number as usize].take() {
                self.name_numbers.remove(&name);
                self.is_paired[number as usize].store(false, Relaxed);
                self.account.release(name.len() + NAME_OVERHEAD);
                forgotten.push(number);
            }
        }
        self.free_names.extend(&forgotten);
        self.counts.names_forgotten += forgotten.len() as u64;
        forgotten
    }
}

/// Bytes of a truncation mark: an ellipsis, `#`, 16 hex digits.
const CUT_MARK_BYTES: usize = 3 + 1 + 16;

/// The name, or its beginning and a stable digest of the whole, within `limit` bytes.
fn cut(name: &str, limit: usize) -> Cow<'_, str> {
    if name.len() <= limit {
        return name.into();
    }
    let mut end = limit.saturating_sub(CUT_MARK_BYTES);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let digest = Sha256::digest(name.as_bytes());
    let digits: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}\u{2026}#{digits}", &name[..end]).into()
}

/// The interner: shared by all walks, written only for new values.
#[derive(Debug)]
pub struct Origins {
    interned: RwLock<Interned>,
    hasher: [RandomState; 2],
    now_ms: AtomicU64,
    part: Part,
    cluster: Cluster,
}

impl Origins {
    /// An interner with only the origin `other`, number 0. `part` separates the parts of services.
    pub fn new(limits: Limits, part: Part) -> Origins {
        let mut interned = Interned {
            by_key: FxHashMap::default(),
            reduced: FxHashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            name_numbers: FxHashMap::default(),
            names: Vec::new(),
            is_paired: Vec::new(),
            free_names: Vec::new(),
            account: Account::default(),
            limits,
            counts: Fill::default(),
            versions: Versions::default(),
            asked: FxHashMap::default(),
        };
        let other = interned.intern(OTHER);
        // A host or method that is really called `other` has its own number.
        interned.name_numbers.clear();
        let origin = Origin {
            service: other,
            service_at_part: other,
            host: NO_NAME,
            method: NO_NAME,
            resource: SharedBytes::from(&[][..]),
            key: 0,
        };
        interned.insert(origin, 0);
        let hasher = [RandomState::new(), RandomState::new()];
        let interned = RwLock::new(interned);
        Origins { interned, hasher, now_ms: AtomicU64::new(0), part, cluster: Cluster::default() }
    }

    /// The cluster's pods and nodes, asked for what resources do not state.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// What the cluster's API adds to a resource.
    pub(crate) fn found(&self, named: &Named) -> Option<Found> {
        let stated = named.stated().filter(|_| self.cluster.is_fed())?;
        Some(self.cluster.find(&stated))
    }

    /// Separates origins whose answer by the cluster's API is another by now: the next spans of such a resource get an origin of
    /// their own, with the new names. A pod found by its id stays found when the API has forgotten it.
    pub fn ask_again(&self) {
        let differs = |id: &u32, before: &Found, interned: &Interned| {
            let resource = &interned.origin(*id).resource;
            let Some(now) = self.found(&Named::read(resource)) else { return true };
            let is_only_gone =
                before.outcome == Some(Outcome::ById) && now.outcome == Some(Outcome::Unlisted);
            !now.is_like(before) && !is_only_gone
        };
        let interned = self.read();
        let asked = interned.asked.iter().filter(|(id, before)| differs(id, before, &interned));
        let changed: Vec<u32> = asked.map(|(id, _)| *id).collect();
        drop(interned);
        if changed.is_empty() {
            return;
        }
        let mut interned = self.write();
        for id in changed {
            let key = interned.origin(id).key;
            if interned.asked.remove(&id).is_some() && interned.by_key.get(&key) == Some(&id) {
                interned.by_key.remove(&key);
            }
        }
    }

    /// Read access for the duration of a batch or a report.
    pub fn read(&self) -> RwLockReadGuard<'_, Interned> {
        self.interned.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Write access for removals.
    pub fn write(&self) -> RwLockWriteGuard<'_, Interned> {
        self.interned.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the current time, which determines idleness.
    pub fn set_now(&self, now_ms: u64) {
        if self.now_ms.load(Relaxed) < now_ms {
            self.now_ms.fetch_max(now_ms, Relaxed);
        }
    }

    /// Seeded 128-bit digest; resources with equal digests are treated as equal.
    fn digest(&self, parts: (&[u8], u32)) -> u128 {
        (self.hasher[0].hash_one(parts) as u128) << 64 | self.hasher[1].hash_one(parts) as u128
    }

    fn find(&self, key: u128) -> Option<u32> {
        let interned = self.read();
        let id = *interned.by_key.get(&key)?;
        interned.slots[id as usize].last_used_ms.store(self.now_ms.load(Relaxed), Relaxed);
        Some(id)
    }

    fn add(&self, key: u128, found: Option<Found>, build: impl FnOnce(&mut Interned) -> Origin) -> u32 {
        let now_ms = self.now_ms.load(Relaxed);
        let mut interned = self.write();
        // Another thread may have added it between the look-up and the write lock.
        if let Some(id) = interned.by_key.get(&key) {
            return *id;
        }
        let origin = build(&mut interned);
        let id = interned.insert(origin, now_ms);
        if let Some(found) = found.filter(|_| interned.by_key.get(&key) == Some(&id)) {
            interned.asked.insert(id, found);
        }
        id
    }
}

impl OriginSink for Origins {
    fn resource(&self, encoded: &[u8]) -> u32 {
        let key = self.digest((encoded, 0));
        self.find(key).unwrap_or_else(|| {
            let mut named = Named::read(encoded);
            let asked_at = self.cluster.changes();
            let found = self.found(&named);
            found.iter().for_each(|found| named.complete(found));
            let id = self.add(key, found, |interned| {
                let service_name = named.service_name();
                let service_name = interned.cut(&service_name);
                let service = interned.intern(&service_name);
                if service != OTHER_NAME
                    && let (Some(version), Some(name)) = (&named.version, interned.name(service).cloned())
                {
                    interned.versions.seen(&name, version, self.now_ms.load(Relaxed));
                }
                let host_name = named.part(Part::Node).map(|host| interned.cut(host));
                let host = host_name.as_ref().map_or(NO_NAME, |host| interned.intern(host));
                let part = match self.part {
                    Part::Node => host_name,
                    part => named.part(part).map(|part| interned.cut(part)),
                };
                // The names of service and part may have no room any more where that of both has one.
                let at_part = format!("{service_name}@{}", part.as_deref().unwrap_or("?"));
                Origin {
                    service,
                    service_at_part: interned.intern(&at_part),
                    // Hosts whose names found no room must not be taken for one host.
                    host: if host == OTHER_NAME { NO_NAME } else { host },
                    method: NO_NAME,
                    resource: interned.kept(encoded, &named),
                    key,
                }
            });
            self.cluster.compare_again_if_changed_since(asked_at);
            id
        })
    }

    fn method(&self, resource: u32, method: &str) -> u32 {
        let key = self.digest((method.as_bytes(), resource + 1));
        self.find(key).unwrap_or_else(|| {
            self.add(key, None, |interned| {
                let method = interned.cut(method);
                let method = interned.intern(&method);
                Origin { method, key, ..interned.origin(resource).clone() }
            })
        })
    }
}

#[cfg(test)]
mod tests;
