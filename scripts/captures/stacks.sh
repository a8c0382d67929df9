# shellcheck shell=bash disable=SC2034,SC2154
# Cases: every client stack and every target on the wire when nothing is wrong.

unary() { # unary NAME CLIENT-STACK SERVER-STACK FLAGS: over a veth.
  link
  run "$1" "$2" "--stack $3" "--stack $2 $4"
}
case_rust_unary() {
  limit=100000
  unary rust-unary rust rust "--inflight 4 --think 2ms --duration 100ms"
}
case_rust_one() { unary rust-one rust rust "--rate 200 --duration 400ms"; }
case_go_unary() {
  limit=100000
  unary go-unary go go "--inflight 4 --think 2ms --duration 100ms"
}
case_go_one() { unary go-one go go "--rate 200 --duration 400ms"; }
case_cpp_async_unary() {
  limit=100000
  unary cpp-async-unary cpp-async cpp "--inflight 4 --think 2ms --duration 100ms"
}
case_cpp_sync_unary() { unary cpp-sync-unary cpp-sync cpp "--inflight 4 --think 2ms --duration 100ms"; }
case_cpp_callback_one() { unary cpp-callback-one cpp-callback cpp "--rate 200 --duration 400ms"; }
case_raw_unary() { unary raw-unary raw raw "--inflight 1 --think 2ms --duration 150ms --request-bytes 64"; }
case_rust_stream() { unary rust-stream rust rust "--call stream --inflight 4 --think 2ms --duration 60ms"; }
case_go_stream() { unary go-stream go go "--call stream --inflight 4 --think 2ms --duration 60ms"; }
case_cpp_async_stream() {
  unary cpp-async-stream cpp-async cpp "--call stream --inflight 4 --think 2ms --duration 60ms"
}
# Stacks differ between the ends: settings, frames and header tables of one library meet those of another.
case_go_to_rust() { unary go-to-rust go rust "--inflight 4 --think 2ms --duration 60ms"; }
case_rust_to_cpp() { unary rust-to-cpp rust cpp "--inflight 4 --think 2ms --duration 60ms"; }
case_cpp_to_go() { unary cpp-to-go cpp-async go "--inflight 4 --think 2ms --duration 60ms"; }
case_many_connections() {
  unary many-connections go go "--channels distinct --inflight 48 --think 10ms --duration 40ms"
}
# Large messages: TSO and GRO turn them into segments of up to 64 KiB, as taps see them.
case_super_frames() {
  notes="segments beyond the MTU (TSO and GRO); what a call takes is its 300 KB"
  must_not='["nagle-delayed-ack","rto","tail-loss","fast-retransmit","syn-loss","stream-limit"]'
  unary super-frames rust rust "--rate 50 --duration 200ms --response-bytes 300000"
}
case_large_requests() {
  notes="segments beyond the MTU (TSO and GRO); what a call takes is its 200 KB"
  must_not='["nagle-delayed-ack","rto","tail-loss","fast-retransmit","syn-loss","stream-limit"]'
  unary large-requests rust go "--rate 50 --duration 200ms --request-bytes 200000"
}

# derive NAME SOURCE HOW COMMAND...: runs a program on both ends of SOURCE, with both file names appended.
derive() {
  local name=$1 source=$2 how=$3 end
  shift 3
  for end in client server; do
    [ -e "$out/$source.$end.pcapng" ] || missing "$name is made of $source: make that one first"
    "$@" "$out/$source.$end.pcapng" "$work/$name.$end.pcapng" >/dev/null
  done
  keep "$name"
  truth "$name" "${name%%-*}" "$source, then $how" '"none"' "$nothing_wrong" "${notes:-}"
}
without_first() { # without_first N SOURCE FILE: as if the capture had begun later.
  editcap "$2" "$3" "1-$1"
}
case_rust_mid_joined() { derive rust-mid-joined rust-unary "editcap 1-60" without_first 60; }
case_go_mid_joined() { derive go-mid-joined go-unary "editcap 1-60" without_first 60; }
case_cpp_async_mid_joined() { derive cpp-async-mid-joined cpp-async-unary "editcap 1-60" without_first 60; }
case_go_snap_96() {
  notes="payload beyond 96 bytes of each packet is not there"
  derive go-snap-96 go-unary "editcap -s 96" editcap -s 96
}
case_rust_snap_96() {
  notes="payload beyond 96 bytes of each packet is not there"
  derive rust-snap-96 rust-unary "editcap -s 96" editcap -s 96
}
# Only the format differs, which a reader can tell from the first bytes; the names stay .pcapng, since a name proves
# nothing.
case_go_pcap_us() { derive go-pcap-us go-unary "editcap -F pcap" editcap -F pcap; }
case_go_pcap_ns() { derive go-pcap-ns go-unary "editcap -F nsecpcap" editcap -F nsecpcap; }
