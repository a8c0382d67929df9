//! What a resource states about the origin of its spans.

use super::semconv::{key_value, text_value};
use super::wire::{Cursor, LEN, WalkError};
use spangap_model::pair::OTHER;

/// Service of a resource without `service.name` (OpenTelemetry resource conventions).
pub const UNKNOWN_SERVICE: &str = "unknown_service";

/// A part of a service, by which pairs can be separated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// `k8s.node.name`, else `host.id`, else `host.name`.
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
pub(super) struct Named {
    pub service: Option<String>,
    namespace: Option<String>,
    pub version: Option<String>,
    node: Option<String>,
    host_id: Option<String>,
    host_name: Option<String>,
    pod_name: Option<String>,
    pod_uid: Option<String>,
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
    pub fn attributes(&self) -> [(&'static str, &Option<String>); 11] {
        [
            ("service.name", &self.service),
            ("service.namespace", &self.namespace),
            ("service.version", &self.version),
            ("k8s.node.name", &self.node),
            ("host.id", &self.host_id),
            ("host.name", &self.host_name),
            ("k8s.pod.name", &self.pod_name),
            ("k8s.pod.uid", &self.pod_uid),
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
