# shellcheck shell=bash disable=SC2034,SC2154
# Cases: bytes held back by TCP or HTTP/2 on purpose, and their near-misses.

case_nagle_client() {
  link
  because nagle-delayed-ack client 6 rto tail-loss fast-retransmit syn-loss receive-window stream-limit flow-control
  calls nagle-client rust "--stack rust" 12 "nodelay=off schedule=10/1000000000"
}
case_nagle_client_raw() {
  link
  because nagle-delayed-ack client 6 rto tail-loss fast-retransmit syn-loss receive-window stream-limit flow-control
  calls nagle-client-raw raw "--stack raw" 12 "nodelay=off split-writes=on request-bytes=64 schedule=10/1000000000"
}
# The response's second write waits for the next request, which brings the ACK along.
case_nagle_one_behind() {
  link
  because nagle-delayed-ack server 10 rto tail-loss fast-retransmit syn-loss receive-window stream-limit flow-control
  calls nagle-one-behind go "--stack rust --nodelay off" 40 "schedule=100/1000000000 in-flight=8"
}
# One write per call, but occasionally the PING of the server's bandwidth estimate: the client's PING ACK leaves by
# itself, waits for a delayed ACK, and so does every call behind it.
case_nagle_rare() {
  link
  notes="a few calls of many; they are held before their first byte, so that their time on the wire is as of any"
  because nagle-delayed-ack client 5 rto tail-loss fast-retransmit syn-loss receive-window stream-limit flow-control
  run nagle-rare cpp-async "--stack cpp" "--stack cpp-async --nodelay off --rate 150 --duration 2s"
}
# Near-misses.
case_nagle_off_one_write() {
  link
  notes="TCP_NODELAY is off and nothing is ever held: one write per call, and no PING"
  run nagle-off-one-write cpp-async "--stack rust" "--stack cpp-async --nodelay off --rate 20 --duration 1s"
}
case_nagle_quick_ack() {
  link
  made_by="veth, the server's route with quickack 1"
  ip -n "$server" route change 10.77.0.0/24 dev near proto kernel scope link src "$address" quickack 1
  notes="split writes with TCP_NODELAY off, but the server acknowledges at once: held for a round trip at most"
  calls nagle-quick-ack rust "--stack rust" 12 "nodelay=off schedule=10/1000000000"
}
case_nagle_on() {
  link
  notes="split writes with TCP_NODELAY on: nothing is held"
  calls nagle-on rust "--stack rust" 12 "nodelay=on schedule=10/1000000000"
}

case_stream_limit() {
  link
  notes="200 under way, 100 allowed, 10 ms each"
  because stream-limit - 100 nagle-delayed-ack rto tail-loss fast-retransmit syn-loss receive-window flow-control
  calls stream-limit cpp-async "--stack cpp --max-streams 100 --think 10ms" 800 "in-flight=200"
}
case_stream_limit_go() {
  link
  notes="200 under way, 100 allowed, 10 ms each"
  because stream-limit - 100 nagle-delayed-ack rto tail-loss fast-retransmit syn-loss receive-window flow-control
  calls stream-limit-go go "--stack go --max-streams 100 --think 10ms" 800 "in-flight=200"
}
case_stream_limit_near() {
  link
  notes="90 under way, 100 allowed"
  calls stream-limit-near cpp-async "--stack cpp --max-streams 100 --think 10ms" 360 "in-flight=90"
}

far() { # far FLAGS...: a line of 10 ms each way.
  made_by="spangap lab actor line --delay-a 10000000 --delay-b 10000000"
  line --delay-a 10000000 --delay-b 10000000
}
case_flow_control_near() {
  far
  notes="responses of 400 KB within windows of 2 MB: what takes round trips is TCP's slow start"
  calls flow-control-near rust "--stack rust" 4 "response-bytes=400000"
}

case_server_app() {
  link
  because server-host-or-app server 20 nagle-delayed-ack rto tail-loss fast-retransmit syn-loss receive-window stream-limit \
    flow-control network-delay head-of-line
  calls server-app go "--stack rust --think 20ms" 40 "in-flight=2"
}
case_healthy() {
  link
  notes="one call every 20 ms on one long connection, the first among them; nothing is slow"
  must_not='["nagle-delayed-ack","rto","tail-loss","fast-retransmit","syn-loss","receive-window","stream-limit","flow-control","head-of-line","shared-connection","connection-per-call","network-delay","batched-arrival"]'
  calls healthy go "--stack go" 40 "schedule=50/1000000000"
}
case_connection_per_call() {
  link
  local n
  because connection-per-call - 8 nagle-delayed-ack rto tail-loss fast-retransmit syn-loss receive-window stream-limit \
    flow-control
  serve --stack go
  tap connection-per-call
  for ((n = 0; n < 10; n++)); do call go 1; done
  untap
  finish connection-per-call go "spangap target --stack go; ten client programs (clients/CONTRACT.md) stack=go calls=1"
}
# The client spends 200 us on every response of a connection, one after the other: 49 bytes are a response to an empty
# ping of gRPC C++ (headers, message and trailers, once the header table knows them).
shared() { # shared NAME CHANNELS
  link
  "$spangap" lab shim --write "$work/shim.so"
  SPANGAP_SHIM_IN=client SPANGAP_SHIM_PORT=$port SPANGAP_SHIM_COST_NS=200000 SPANGAP_SHIM_COST_BYTES=49 \
    LD_PRELOAD=$work/shim.so calls "$1" cpp-async "--stack cpp" 600 "threads=16 in-flight=16 channels=$2"
}
case_shared_connection() {
  notes="16 callers on one connection whose responses cost the client 200 us each, asleep in a preloaded library"
  because shared-connection client 100 nagle-delayed-ack rto tail-loss fast-retransmit syn-loss stream-limit flow-control
  # Without a second connection to compare with, it is merely possible.
  expected=${expected/'"side"'/'"certainty": "possible", "side"'}
  shared shared-connection shared
}
case_shared_connection_near() {
  notes="the same with a connection for each caller"
  must_not='["shared-connection","nagle-delayed-ack","rto","tail-loss","fast-retransmit","syn-loss","stream-limit","flow-control"]'
  shared shared-connection-near distinct
}
