use super::message::{Json, JsonError};
use super::*;
use crate::ping;
use prost_reflect::{DescriptorPool, DynamicMessage};

fn pool() -> DescriptorPool {
    DescriptorPool::decode(ping::FILE_DESCRIPTOR_SET).unwrap()
}

fn request(name: &str, json: &str, descriptors: Descriptors) -> MethodRequest {
    MethodRequest {
        target: "127.0.0.1:1".into(),
        name: name.into(),
        json: json.into(),
        json_from: "--data".into(),
        descriptors,
        headers: vec!["X-Tenant: blue".into(), "trace-bin: AAEC".into()],
        timeout: Duration::from_secs(5),
    }
}

/// The ping service's descriptors as a file, as written by protoc.
fn set() -> (tempfile::NamedTempFile, Descriptors) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), ping::FILE_DESCRIPTOR_SET).unwrap();
    let set = Descriptors::Set(file.path().into());
    (file, set)
}

#[test]
fn a_request_is_encoded_once_with_its_headers() {
    let (_file, set) = set();
    for name in [ping::METHOD, "/spangap.ping.v1.Ping/Ping", "spangap.ping.v1.Ping.Ping"] {
        let prepared =
            prepare(&request(name, r#"{"thinkNs": "5", "payload": "AAEC"}"#, set.clone())).unwrap();
        assert_eq!(prepared.method.name, ping::METHOD);
        let file = std::fs::read(&prepared.method.call_file).unwrap();
        let call = CallFile::decode(file.as_slice()).unwrap();
        assert_eq!((call.path.as_str(), call.server_streaming), ("/spangap.ping.v1.Ping/Ping", false));
        let sent = ping::PingRequest::decode(call.messages[0].clone()).unwrap();
        assert_eq!(
            (sent.think_ns, sent.payload.as_ref(), call.messages.len()),
            (Some(5), &[0u8, 1, 2][..], 1)
        );
        let headers: Vec<_> =
            call.metadata.iter().map(|one| (one.key.as_str(), one.value.as_ref())).collect();
        assert_eq!(headers, [("x-tenant", &b"blue"[..]), ("trace-bin", &[0, 1, 2][..])]);
        let path = prepared.method.call_file.clone();
        drop(prepared);
        assert!(!path.exists());
    }
}

#[test]
fn a_client_that_streams_sends_a_list() {
    let (_file, set) = set();
    let list = r#"[{"thinkNs": 1}, {"thinkNs": 2}]"#;
    let prepared = prepare(&request(ping::STREAM_METHOD, list, set.clone())).unwrap();
    let call = CallFile::decode(std::fs::read(&prepared.method.call_file).unwrap().as_slice()).unwrap();
    assert!(call.server_streaming && call.messages.len() == 2);
    let refused = prepare(&request(ping::METHOD, list, set)).unwrap_err().to_string();
    assert_eq!(refused, "--data: expected one spangap.ping.v1.PingRequest, found a list");
}

#[test]
fn missing_names_are_reported_with_known_ones() {
    let (_file, set) = set();
    let refused = |name: &str| prepare(&request(name, "{}", set.clone())).unwrap_err().to_string();
    assert!(
        refused("spangap.ping.v1.Ping/Pong").ends_with("has no method Pong: it has Ping, PingStream, Usage")
    );
    let other = refused("a.B/C");
    assert!(
        other.starts_with("no service a.B in ") && other.ends_with(": it has spangap.ping.v1.Ping"),
        "{other}"
    );
    for name in ["", "Ping", "a b/C", "a.B/", "/", "a.B/C/D", "a.B/C.D"] {
        assert!(refused(name).contains("expected package.Service/Method"), "{name}");
    }
    let nowhere = prepare(&request("a.B/C", "{}", Descriptors::Set("/nowhere".into()))).unwrap_err();
    assert_eq!(nowhere.to_string(), "cannot read the descriptor set /nowhere");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), b"not a descriptor set").unwrap();
    let wrong =
        prepare(&request("a.B/C", "{}", Descriptors::Set(file.path().into()))).unwrap_err().to_string();
    assert!(wrong.contains("protoc --include_imports --descriptor_set_out="), "{wrong}");
}

#[test]
fn headers_that_cannot_be_sent_are_refused() {
    for (text, why) in [
        ("plain", "expected KEY: VALUE"),
        ("a b: c", "this key cannot be sent"),
        ("a: \u{7}", "this value cannot be sent"),
        ("a-bin: !", "expected the value in base64"),
        ("grpc-timeout: 1S", "gRPC sets this one itself"),
        ("TE: trailers", "gRPC sets this one itself"),
    ] {
        let refused = header(text).unwrap_err().to_string();
        assert!(refused.contains(why), "{text}: {refused}");
    }
}

#[test]
fn wrong_json_names_the_field_and_the_place() {
    let expected = pool().get_message_by_name("spangap.ping.v1.PingRequest").unwrap();
    let error = |text: &str| {
        Json { text, from: "data.json", most_bytes: 1_000 }.messages(&expected).unwrap_err().to_string()
    };
    let unknown = error("{\n  \"thinkMs\": 5}");
    assert!(
        unknown.starts_with(
            "data.json is not a spangap.ping.v1.PingRequest: unrecognized field name 'thinkMs' at byte 1"
        ),
        "{unknown}"
    );
    assert!(unknown.contains("(line 2, column "), "{unknown}");
    let kind = error(r#"{"thinkNs": true}"#);
    assert!(kind.contains("at byte 1") && kind.ends_with("in field thinkNs"), "{kind}");
    let deep = error(r#"[{"thinkNs": 1}, {"thinkNs": "x"}]"#);
    assert!(deep.ends_with("in field [1].thinkNs"), "{deep}");
    let end = error(r#"{"thinkNs": 5"#);
    assert!(end.contains("EOF while parsing") && end.contains("at byte 12"), "{end}");
    let more = error(r#"{} {}"#);
    assert!(more.contains("trailing characters at byte 3"), "{more}");
}

#[test]
fn messages_over_the_limit_are_refused() {
    let expected = pool().get_message_by_name("spangap.ping.v1.PingRequest").unwrap();
    let of =
        |most_bytes| Json { text: r#"{"payload": "AAAA"}"#, from: "--data", most_bytes }.message(&expected);
    assert_eq!(of(5).unwrap().len(), 5);
    let refused = of(4).unwrap_err();
    assert!(matches!(refused, JsonError::TooLarge { .. }), "{refused}");
}

proptest::proptest! {
    #[test]
    fn no_text_panics(text in "[\\[\\]{}\":,a-zA-Z0-9 \n\u{e4}-]{0,60}") {
        let expected = pool().get_message_by_name("spangap.ping.v1.PingRequest").unwrap();
        let json = Json { text: &text, from: "--data", most_bytes: 1_000 };
        if let Ok(messages) = json.messages(&expected) {
            for message in messages {
                DynamicMessage::decode(expected.clone(), message).unwrap();
            }
        }
    }
}
