//! Addresses of a call's two ends, for those whose hosts have the same name: containers and namespaces of one machine, or images that
//! were never renamed.

use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use spangap_model::KeptCall;
use spangap_model::pair::KeptSide;

/// Attributes of the span's own end, then of the other one.
const OWN: &str = "network.local.address";
const PEER: &str = "network.peer.address";

/// The addresses of client and server, if one name stands for both hosts and the spans are held: each by its own span, else by the other
/// end's. None if even the addresses are the same, which tells nothing.
pub fn where_names_do_not_tell(call: &KeptCall) -> [Option<String>; 2] {
    if call.client.host.is_none() || call.client.host != call.server.host {
        return [None, None];
    }
    let [client, server] = [&call.client, &call.server].map(span);
    let found = [of(&client, &server), of(&server, &client)];
    match found[0] == found[1] {
        true => [None, None],
        false => found.map(|address| address.map(str::to_owned)),
    }
}

fn of<'s>(own: &'s Option<Span>, other: &'s Option<Span>) -> Option<&'s str> {
    let by = |span: &'s Option<Span>, key| span.as_ref().and_then(|span| address(span, key));
    by(own, OWN).or_else(|| by(other, PEER))
}

fn span(side: &KeptSide) -> Option<Span> {
    Span::decode(&side.whole.as_ref()?.span[..]).ok()
}

/// As text, of which nothing but the form is checked; an IPv4 address as IPv6 has it is the same address.
fn address<'s>(span: &'s Span, key: &str) -> Option<&'s str> {
    let named = span.attributes.iter().find(|attribute| attribute.key == key)?;
    let Value::StringValue(text) = named.value.as_ref()?.value.as_ref()? else { return None };
    let is_address =
        text.contains(['.', ':']) && text.chars().all(|c| c.is_ascii_hexdigit() || c == '.' || c == ':');
    is_address.then(|| text.strip_prefix("::ffff:").filter(|four| four.contains('.')).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
    use spangap_model::CallStatus;
    use spangap_model::pair::WholeSpan;

    fn side(host: &str, attributes: &[(&str, &str)]) -> KeptSide {
        let attribute = |(key, text): &(&str, &str)| {
            let value = Some(AnyValue { value: Some(Value::StringValue((*text).into())) });
            KeyValue { key: (*key).into(), value, ..KeyValue::default() }
        };
        let span = Span { attributes: attributes.iter().map(attribute).collect(), ..Span::default() };
        let whole = WholeSpan { resource: Vec::new().into(), span: span.encode_to_vec().into() };
        KeptSide { start_unix_ns: 0, duration_ns: 0, host: Some(host.into()), whole: Some(whole) }
    }

    fn told(client: KeptSide, server: KeptSide) -> [Option<String>; 2] {
        let (trace_id, client_span_id) = ([1; 16], [1; 8]);
        let status = CallStatus::UNSET;
        where_names_do_not_tell(&KeptCall {
            gap_ns: 0,
            trace_id,
            client_span_id,
            status,
            legs: None,
            client,
            server,
        })
    }

    #[test]
    fn addresses_are_told_where_one_name_stands_for_two_hosts() {
        let client = || side("vm", &[(OWN, "10.0.0.1"), (PEER, "10.0.0.2")]);
        let both = [Some("10.0.0.1".to_owned()), Some("10.0.0.2".to_owned())];
        // What the server's span does not say, the client's does, and the other way round.
        assert_eq!(told(client(), side("vm", &[])), both);
        let server = side("vm", &[(OWN, "10.0.0.2"), (PEER, "::ffff:10.0.0.1")]);
        assert_eq!(told(side("vm", &[]), server), both);
        assert_eq!(told(client(), side("other", &[])), [None, None], "names tell");
        let on_one_host = side("vm", &[(OWN, "127.0.0.1"), (PEER, "127.0.0.1")]);
        assert_eq!(told(on_one_host, side("vm", &[])), [None, None], "addresses do not tell either");
        assert_eq!(told(side("vm", &[(OWN, "a name")]), side("vm", &[])), [None, None]);
        let forgotten = KeptSide { whole: None, ..side("vm", &[]) };
        assert_eq!(told(forgotten.clone(), forgotten), [None, None]);
    }
}
