//! Worst calls as exemplars: trace id and location.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use spangap_model::KeptCall;
use spangap_model::pair::KeptSide;
use std::rc::Rc;

/// OpenMetrics' limit on an exemplar's label names and values together, in characters. Prometheus drops
/// longer ones.
const MAX_LABEL_CHARS: usize = 128;

/// One value of a distribution, and the call that produced it.
#[derive(Clone, Debug)]
pub struct Exemplar<'a> {
    /// The value, as recorded in the distribution.
    pub value_ns: u64,
    /// The call.
    pub call: Rc<ExemplarCall<'a>>,
}

/// A call shared by exemplars of several distributions.
#[derive(Clone, Debug)]
pub struct ExemplarCall<'a> {
    /// The call itself.
    pub call: &'a KeptCall,
    /// End of the CLIENT span by the client's clock.
    pub time_unix_ns: u64,
    /// `trace_id`, then `client_node`, `server_node`, `client_pod` and `server_pod` as far as known and as
    /// they fit.
    pub labels: Vec<(&'static str, String)>,
}

/// The calls, earliest first: Prometheus rejects an exemplar older than its predecessor.
pub fn calls(worst: &[KeptCall]) -> Vec<Rc<ExemplarCall<'_>>> {
    let mut calls: Vec<_> = worst.iter().map(|call| Rc::new(ExemplarCall::new(call))).collect();
    calls.sort_by_key(|call| call.time_unix_ns);
    calls
}

impl<'a> ExemplarCall<'a> {
    fn new(call: &'a KeptCall) -> Self {
        let mut labels = vec![("trace_id", crate::query::hex(&call.trace_id))];
        let mut room = MAX_LABEL_CHARS - "trace_id".len() - 32;
        let known = [
            ("client_node", node(&call.client)),
            ("server_node", node(&call.server)),
            ("client_pod", pod(&call.client)),
            ("server_pod", pod(&call.server)),
        ];
        for (name, value) in known {
            let Some(value) = value else { continue };
            let chars = name.len() + value.chars().count();
            if chars <= room {
                room -= chars;
                labels.push((name, value));
            }
        }
        let time_unix_ns = call.client.start_unix_ns.saturating_add(call.client.duration_ns);
        ExemplarCall { call, time_unix_ns, labels }
    }
}

fn node(side: &KeptSide) -> Option<String> {
    side.host.as_ref().map(|host| host.to_string())
}

fn pod(side: &KeptSide) -> Option<String> {
    let resource = Resource::decode(&*side.whole.as_ref()?.resource).ok()?;
    let pod = resource.attributes.into_iter().find(|a| a.key == "k8s.pod.name")?;
    match pod.value?.value? {
        Value::StringValue(name) if !name.is_empty() => Some(name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
    use spangap_model::CallStatus;
    use spangap_model::pair::WholeSpan;

    fn side(node: &str, pod: &str) -> KeptSide {
        let value = Some(AnyValue { value: Some(Value::StringValue(pod.into())) });
        let pod = KeyValue { key: "k8s.pod.name".into(), value, ..KeyValue::default() };
        let resource = Resource { attributes: vec![pod], ..Resource::default() };
        KeptSide {
            start_unix_ns: 1_000,
            duration_ns: 10,
            host: Some(node.into()),
            whole: Some(WholeSpan { resource: resource.encode_to_vec().into(), span: vec![].into() }),
        }
    }

    fn call(client: KeptSide, server: KeptSide) -> KeptCall {
        KeptCall {
            gap_ns: 7,
            trace_id: [0xab; 16],
            client_span_id: [1; 8],
            status: CallStatus::UNSET,
            legs: None,
            client,
            server,
        }
    }

    #[test]
    fn labels_include_nodes_and_pods_as_far_as_they_fit() {
        let short = call(side("node-1", "web-5f"), side("node-2", "cart-7c"));
        let labels = &ExemplarCall::new(&short).labels;
        let pairs: Vec<_> = labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let expected = [
            ("client_node", "node-1"),
            ("server_node", "node-2"),
            ("client_pod", "web-5f"),
            ("server_pod", "cart-7c"),
        ];
        assert_eq!(pairs[0], ("trace_id", "ab".repeat(16).as_str()));
        assert_eq!(pairs[1..], expected);

        let long = call(side(&"n".repeat(70), "web-5f"), side("node-2", "cart-7c"));
        let exemplar = ExemplarCall::new(&long);
        let names: Vec<_> = exemplar.labels.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, ["trace_id", "client_node"], "of 88 characters, 81 are taken and 7 are too few");
    }

    #[test]
    fn the_limit_counts_characters() {
        let fits = call(side(&"ü".repeat(77), ""), KeptSide { host: None, whole: None, ..side("", "") });
        let exemplar = ExemplarCall::new(&fits);
        let chars: usize = exemplar.labels.iter().map(|(n, v)| n.len() + v.chars().count()).sum();
        assert_eq!(chars, MAX_LABEL_CHARS);
        assert_eq!(exemplar.time_unix_ns, 1_010);
    }
}
