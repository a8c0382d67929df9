//! What a resource states about the origin of its spans.

use super::semconv::{key_value, text_value};
use super::wire::{Cursor, LEN, WalkError};
use crate::cluster::{Found, Stated};
use spangap_model::pair::OTHER;

/// Service of a resource without `service.name` (OpenTelemetry resource conventions).
pub const UNKNOWN_SERVICE: &str = "unknown_service";

/// A part of a service, by which pairs can be separated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// `k8s.node.name`, stated or by the cluster's API, else `host.id`, else `host.name`.
    #[default]
    Node,
    /// `k8s.pod.name`, else `k8s.pod.uid`, else `container.id`.
    Pod,
    /// `cloud.availability_zone`, else the node's label `topology.kubernetes.io/zone`.
    Zone,
    /// `service.version`.
    Version,
}

/// The relevant attributes of a resource.
#[derive(Default, Debug, PartialEq)]
pub(crate) struct Named {
    pub service: Option<String>,
    namespace: Option<String>,
    pub version: Option<String>,
    node: Option<String>,
    host_id: Option<String>,
    host_name: Option<String>,
    pod_name: Option<String>,
    pod_uid: Option<String>,
    pod_ip: Option<String>,
    pod_namespace: Option<String>,
    container_id: Option<String>,
    zone: Option<String>,
    zone_label: Option<String>,
    /// Number of all attributes.
    pub count: u32,
}

/// Attribute name of the zone label of a Kubernetes node.
const ZONE_LABEL: &str = "k8s.node.label.topology.kubernetes.io/zone";

/// Suffix for a service that is itself called [`OTHER`], to distinguish it from the pairs past the limit.
const REAL_OTHER: &str = " (service)";

impl Named {
    /// `namespace/name` if there is a namespace: a name is unique only within its namespace (OpenTelemetry
    /// resource conventions), and Prometheus receivers build `job` the same way.
    pub fn service_name(&self) -> String {
        let name = self.service.as_deref().unwrap_or(UNKNOWN_SERVICE);
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            // Also applied to names that already have the suffix, so that two services never become one.
            None if name.strip_prefix(OTHER).is_some_and(|rest| rest.replace(REAL_OTHER, "").is_empty()) => {
                format!("{name}{REAL_OTHER}")
            }
            None => name.into(),
        }
    }

    /// The attributes present, by key.
    pub fn attributes(&self) -> [(&'static str, &Option<String>); 13] {
        [
            ("service.name", &self.service),
            ("service.namespace", &self.namespace),
            ("service.version", &self.version),
            ("k8s.node.name", &self.node),
            ("host.id", &self.host_id),
            ("host.name", &self.host_name),
            ("k8s.pod.name", &self.pod_name),
            ("k8s.pod.uid", &self.pod_uid),
            ("k8s.pod.ip", &self.pod_ip),
            ("k8s.namespace.name", &self.pod_namespace),
            ("container.id", &self.container_id),
            ("cloud.availability_zone", &self.zone),
            (ZONE_LABEL, &self.zone_label),
        ]
    }

    /// The part of the service that the spans come from, if the resource states it.
    pub fn part(&self, part: Part) -> Option<&String> {
        match part {
            Part::Node => self.node.as_ref().or(self.host_id.as_ref()).or(self.host_name.as_ref()),
            Part::Pod => self.pod_name.as_ref().or(self.pod_uid.as_ref()).or(self.container_id.as_ref()),
            Part::Zone => self.zone.as_ref().or(self.zone_label.as_ref()),
            Part::Version => self.version.as_ref(),
        }
    }

    /// What it states about its pod, unless nothing is left to ask for.
    pub fn stated(&self) -> Option<Stated<'_>> {
        let zone = self.part(Part::Zone);
        let is_complete =
            self.node.is_some() && self.pod_name.is_some() && zone.is_some() && self.version.is_some();
        (!is_complete).then_some(Stated {
            uid: self.pod_uid.as_deref(),
            container: self.container_id.as_deref(),
            address: self.pod_ip.as_deref(),
            name: self.pod_name.as_deref(),
            namespace: self.pod_namespace.as_deref(),
            node: self.node.as_deref(),
            host_name: self.host_name.as_deref(),
        })
    }

    /// Adds what the cluster's API says. What the resource states stays.
    pub fn complete(&mut self, found: &Found) {
        let add = |to: &mut Option<String>, text: Option<&String>| {
            if let Some(text) = text.filter(|text| to.is_none() && !text.is_empty()) {
                *to = Some(text.clone());
            }
        };
        if let Some(pod) = &found.pod {
            add(&mut self.node, Some(&pod.node));
            add(&mut self.pod_name, Some(&pod.name));
            add(&mut self.version, pod.version.as_ref());
        }
        if self.part(Part::Zone).is_none() {
            add(&mut self.zone, found.zone.as_ref());
        }
    }

    /// Parses a resource. A damaged one names nothing; its spans still count, under [`UNKNOWN_SERVICE`].
    pub fn read(encoded: &[u8]) -> Named {
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
            self.count += 1;
            let (key, value) = key_value(&encoded[..to], from)?;
            let place = match &encoded[key.0..key.1] {
                b"service.name" => &mut self.service,
                b"service.namespace" => &mut self.namespace,
                b"service.version" => &mut self.version,
                b"k8s.node.name" => &mut self.node,
                b"host.id" => &mut self.host_id,
                b"host.name" => &mut self.host_name,
                b"k8s.pod.name" => &mut self.pod_name,
                b"k8s.pod.uid" => &mut self.pod_uid,
                b"k8s.pod.ip" => &mut self.pod_ip,
                b"k8s.namespace.name" => &mut self.pod_namespace,
                b"container.id" => &mut self.container_id,
                b"cloud.availability_zone" => &mut self.zone,
                key if key == ZONE_LABEL.as_bytes() => &mut self.zone_label,
                _ => continue,
            };
            *place = text_value(&encoded[..value.1], value.0)?.filter(|text| !text.is_empty());
        }
        Ok(())
    }
}
