//! Where spans come from: resources (and on request methods) interned as small numbers, services and hosts
//! as smaller ones. Bounded in number; what has not been seen for a while is dropped and its number used again.

use super::semconv::{key_value, text_value};
use super::walk::OriginSink;
use super::wire::{Cursor, LEN, WalkError};
use rustc_hash::FxHashMap;
use spangap_model::pair::OTHER;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

/// What the service of a resource without `service.name` is called (OpenTelemetry resource conventions).
pub const UNKNOWN_SERVICE: &str = "unknown_service";
/// The name number that stands for "not known".
pub const NO_NAME: u32 = u32::MAX;

/// How many of what may be interned at once.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Resources, times methods where these are told apart.
    pub origins: usize,
    /// Services, hosts and methods together; names are never dropped.
    pub names: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { origins: 200_000, names: 100_000 }
    }
}

/// One resource, or one method of it.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Name number of the service.
    pub service: u32,
    /// Name number of `service@host`, for tables by node.
    pub service_at_host: u32,
    /// Name number of the host, [`NO_NAME`] if the resource does not say.
    pub host: u32,
    /// Name number of the method, [`NO_NAME`] where methods are not told apart.
    pub method: u32,
    /// The encoded `Resource`.
    pub resource: Arc<[u8]>,
    key: u128,
}

/// The interned values; read-locked for the length of a batch.
#[derive(Debug)]
pub struct Interned {
    by_key: FxHashMap<u128, u32>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    name_numbers: FxHashMap<Arc<str>, u32>,
    names: Vec<Arc<str>>,
    /// Resources and methods that found no room and went to the origin `other`.
    pub overflowed: u64,
}

#[derive(Debug)]
struct Slot {
    origin: Option<Origin>,
    last_used_ms: AtomicU64,
}

impl Interned {
    /// The origin of a number that the walk gave out.
    #[inline]
    pub fn origin(&self, id: u32) -> &Origin {
        // A number outlives its use in the pending store: see `sweep`. Slot 0 is `other` and never goes away.
        let slot = self.slots.get(id as usize).and_then(|s| s.origin.as_ref());
        slot.unwrap_or_else(|| self.slots[0].origin.as_ref().expect("slot 0 is filled at construction"))
    }

    /// The text of a name number; `None` for [`NO_NAME`].
    pub fn name(&self, number: u32) -> Option<&Arc<str>> {
        self.names.get(number as usize)
    }

    /// How many names there are.
    pub fn name_count(&self) -> usize {
        self.names.len()
    }

    fn intern_name(&mut self, name: &str, limit: usize) -> u32 {
        if let Some(number) = self.name_numbers.get(name) {
            return *number;
        }
        if self.names.len() >= limit {
            self.overflowed += 1;
            return 0;
        }
        let name: Arc<str> = name.into();
        let number = self.names.len() as u32;
        self.names.push(name.clone());
        self.name_numbers.insert(name, number);
        number
    }

    fn insert(&mut self, origin: Origin, limit: usize, now_ms: u64) -> u32 {
        let key = origin.key;
        let slot = Slot { origin: Some(origin), last_used_ms: AtomicU64::new(now_ms) };
        let id = match self.free.pop() {
            Some(id) => {
                self.slots[id as usize] = slot;
                id
            }
            None if self.slots.len() < limit => {
                self.slots.push(slot);
                self.slots.len() as u32 - 1
            }
            None => {
                self.overflowed += 1;
                return 0;
            }
        };
        self.by_key.insert(key, id);
        id
    }
}

/// The interner: shared by all walks, written only when something new appears.
#[derive(Debug)]
pub struct Origins {
    interned: RwLock<Interned>,
    limits: Limits,
    hasher: [RandomState; 2],
    now_ms: AtomicU64,
}

impl Origins {
    /// Empty but for the origin `other`, number 0.
    pub fn new(limits: Limits) -> Origins {
        let mut interned = Interned {
            by_key: FxHashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            name_numbers: FxHashMap::default(),
            names: Vec::new(),
            overflowed: 0,
        };
        let other = interned.intern_name(OTHER, usize::MAX);
        let origin = Origin {
            service: other,
            service_at_host: other,
            host: NO_NAME,
            method: NO_NAME,
            resource: Arc::from([]),
            key: 0,
        };
        interned.insert(origin, usize::MAX, 0);
        let hasher = [RandomState::new(), RandomState::new()];
        Origins { interned: RwLock::new(interned), limits, hasher, now_ms: AtomicU64::new(0) }
    }

    /// Read access for the length of a batch or a report.
    pub fn read(&self) -> RwLockReadGuard<'_, Interned> {
        self.interned.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the time, for [`Origins::sweep`].
    pub fn set_now(&self, now_ms: u64) {
        self.now_ms.store(now_ms, Relaxed);
    }

    /// Drops origins not seen for `idle_ms`, which must be longer than anything refers to them.
    pub fn sweep(&self, idle_ms: u64) {
        let now_ms = self.now_ms.load(Relaxed);
        let mut interned = self.interned.write().unwrap_or_else(PoisonError::into_inner);
        for id in 1..interned.slots.len() {
            let slot = &mut interned.slots[id];
            if slot.last_used_ms.load(Relaxed) + idle_ms < now_ms
                && let Some(origin) = slot.origin.take()
            {
                interned.by_key.remove(&origin.key);
                interned.free.push(id as u32);
            }
        }
    }

    /// Seeded 128-bit digest: two resources with the same one are taken for the same.
    fn digest(&self, parts: (&[u8], u32)) -> u128 {
        (self.hasher[0].hash_one(parts) as u128) << 64 | self.hasher[1].hash_one(parts) as u128
    }

    fn find(&self, key: u128) -> Option<u32> {
        let interned = self.read();
        let id = *interned.by_key.get(&key)?;
        interned.slots[id as usize].last_used_ms.store(self.now_ms.load(Relaxed), Relaxed);
        Some(id)
    }

    fn add(&self, build: impl FnOnce(&mut Interned) -> Origin) -> u32 {
        let now_ms = self.now_ms.load(Relaxed);
        let mut interned = self.interned.write().unwrap_or_else(PoisonError::into_inner);
        let origin = build(&mut interned);
        // Another thread may have added it between the look-up and this lock.
        match interned.by_key.get(&origin.key) {
            Some(id) => *id,
            None => interned.insert(origin, self.limits.origins, now_ms),
        }
    }
}

impl OriginSink for Origins {
    fn resource(&self, encoded: &[u8]) -> u32 {
        let key = self.digest((encoded, 0));
        self.find(key).unwrap_or_else(|| {
            self.add(|interned| {
                let named = Named::read(encoded);
                let service = &*named.service_name();
                let host = named.node.or(named.host_id).or(named.host_name);
                let at_host = format!("{service}@{}", host.as_deref().unwrap_or("?"));
                Origin {
                    service: interned.intern_name(service, self.limits.names),
                    service_at_host: interned.intern_name(&at_host, self.limits.names),
                    host: host.map_or(NO_NAME, |host| interned.intern_name(&host, self.limits.names)),
                    method: NO_NAME,
                    resource: encoded.into(),
                    key,
                }
            })
        })
    }

    fn method(&self, resource: u32, method: &str) -> u32 {
        let key = self.digest((method.as_bytes(), resource + 1));
        self.find(key).unwrap_or_else(|| {
            self.add(|interned| {
                let method = interned.intern_name(method, self.limits.names);
                Origin { method, key, ..interned.origin(resource).clone() }
            })
        })
    }
}

/// The attributes of a resource that matter here.
#[derive(Default, Debug, PartialEq)]
struct Named {
    service: Option<String>,
    namespace: Option<String>,
    node: Option<String>,
    host_id: Option<String>,
    host_name: Option<String>,
}

/// What a service that is itself called [`OTHER`] gets appended, so that it is not taken for the pairs past the limit.
const REAL_OTHER: &str = " (service)";

impl Named {
    /// `namespace/name` where a namespace is given: a name is unique within its namespace only (OpenTelemetry
    /// resource conventions), and Prometheus receivers build `job` the same way.
    fn service_name(&self) -> String {
        let name = self.service.as_deref().unwrap_or(UNKNOWN_SERVICE);
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            // Also after names that already end so: two services never become one.
            None if name.strip_prefix(OTHER).is_some_and(|rest| rest.replace(REAL_OTHER, "").is_empty()) => {
                format!("{name}{REAL_OTHER}")
            }
            None => name.into(),
        }
    }

    /// A damaged resource names nothing: the spans still count, under [`UNKNOWN_SERVICE`].
    fn read(encoded: &[u8]) -> Named {
        let mut named = Named::default();
        let _ = named.fill(encoded);
        named
    }

    fn fill(&mut self, encoded: &[u8]) -> Result<(), WalkError> {
        let mut fields = Cursor::new(encoded);
        while let Some((field, wire)) = fields.tag()? {
            if (field, wire) != (1, LEN) {
                fields.skip(field, wire)?;
                continue;
            }
            let (from, to) = fields.len_range()?;
            let (key, value) = key_value(&encoded[..to], from)?;
            let place = match &encoded[key.0..key.1] {
                b"service.name" => &mut self.service,
                b"service.namespace" => &mut self.namespace,
                b"k8s.node.name" => &mut self.node,
                b"host.id" => &mut self.host_id,
                b"host.name" => &mut self.host_name,
                _ => continue,
            };
            *place = text_value(&encoded[..value.1], value.0)?.filter(|text| !text.is_empty());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue, any_value};
    use opentelemetry_proto::tonic::resource::v1::Resource;
    use prost::Message;

    fn resource(pairs: &[(&str, &str)]) -> Vec<u8> {
        let attribute = |(key, value): &(&str, &str)| KeyValue {
            key: key.to_string(),
            value: Some(AnyValue { value: Some(any_value::Value::StringValue(value.to_string())) }),
            ..KeyValue::default()
        };
        Resource { attributes: pairs.iter().map(attribute).collect(), ..Resource::default() }.encode_to_vec()
    }

    #[test]
    fn same_resource_same_number_and_the_node_is_the_host() {
        let origins = Origins::new(Limits::default());
        let a = origins.resource(&resource(&[
            ("service.name", "a"),
            ("host.name", "pod-1"),
            ("k8s.node.name", "n1"),
        ]));
        let b = origins.resource(&resource(&[
            ("service.name", "a"),
            ("host.name", "pod-2"),
            ("k8s.node.name", "n1"),
        ]));
        assert_eq!(
            a,
            origins.resource(&resource(&[
                ("service.name", "a"),
                ("host.name", "pod-1"),
                ("k8s.node.name", "n1")
            ]))
        );
        assert_ne!(a, b);
        let interned = origins.read();
        assert_eq!(interned.origin(a).service, interned.origin(b).service);
        assert_eq!(&**interned.name(interned.origin(a).host).unwrap(), "n1");
        assert_eq!(&**interned.name(interned.origin(b).service_at_host).unwrap(), "a@n1");
    }

    #[test]
    fn services_of_one_name_in_two_namespaces_are_two() {
        let origins = Origins::new(Limits::default());
        let name = |pairs: &[(&str, &str)]| {
            let id = origins.resource(&resource(pairs));
            let interned = origins.read();
            interned.name(interned.origin(id).service).unwrap().to_string()
        };
        assert_eq!(name(&[("service.name", "cart"), ("service.namespace", "shop")]), "shop/cart");
        assert_eq!(name(&[("service.namespace", "bank"), ("service.name", "cart")]), "bank/cart");
        assert_eq!(name(&[("service.name", "cart")]), "cart");
        assert_eq!(name(&[("service.name", "cart"), ("service.namespace", "")]), "cart");
        assert_eq!(name(&[("service.namespace", "shop")]), "shop/unknown_service");
    }

    #[test]
    fn a_service_called_other_is_not_the_overflow() {
        let origins = Origins::new(Limits::default());
        let ids = ["other", "other (service)", "other (service) (service)", "others", "other@x"]
            .map(|name| origins.resource(&resource(&[("service.name", name)])));
        let interned = origins.read();
        let numbers = ids.map(|id| interned.origin(id).service);
        let overflow = interned.origin(0).service;
        assert!(!numbers.contains(&overflow));
        let names = numbers.map(|number| &**interned.name(number).unwrap());
        assert_eq!(
            names,
            [
                "other (service)",
                "other (service) (service)",
                "other (service) (service) (service)",
                "others",
                "other@x"
            ]
        );
    }

    #[test]
    fn past_the_limit_everything_is_other_and_counted() {
        let origins = Origins::new(Limits { origins: 3, names: 100 });
        let ids: Vec<u32> =
            (0..5).map(|i| origins.resource(&resource(&[("service.name", &format!("s{i}"))]))).collect();
        assert_eq!(ids, [1, 2, 0, 0, 0]);
        assert_eq!(origins.read().overflowed, 3);
    }

    #[test]
    fn idle_origins_make_room() {
        let origins = Origins::new(Limits { origins: 2, names: 100 });
        let first = origins.resource(&resource(&[("service.name", "a")]));
        origins.set_now(10_000);
        origins.sweep(5_000);
        let second = origins.resource(&resource(&[("service.name", "b")]));
        assert_eq!(first, second);
        assert_eq!(&**origins.read().name(origins.read().origin(second).service).unwrap(), "b");
    }
}
