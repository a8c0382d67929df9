#![no_main]

use libfuzzer_sys::fuzz_target;
use opentelemetry_proto::tonic::trace::v1::TracesData;
use prost::Message;
use spangap_fuzz::read;
use spangap_meter::ingest::otlp_json::to_protobuf;

fuzz_target!(|json: &[u8]| {
    match to_protobuf(json) {
        Ok(request) => {
            TracesData::decode(&request[..]).expect("what is translated decodes");
        }
        Err(error) => assert!(error.offset_in(json) <= json.len()),
    }
    // With this beginning, a document is OTLP JSON, whatever follows.
    read(&[b"{\"resourceSpans\":[", json].concat(), true);
});
