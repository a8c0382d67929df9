# shellcheck shell=bash disable=SC2034,SC2154
# Cases with peers of scripts/captures/peer.py: other libraries and protocols, and peers that read late.

peer_python() {
  "$python" -c 'import grpc, h2' 2>/dev/null ||
    missing "$python has no grpcio and h2: python3 -m venv /tmp/captures-python; its pip install grpcio h2"
}
peer_serve() { # peer_serve WHAT ARGUMENTS...: on the server's host.
  start peer ip netns exec "$server" "$python" scripts/captures/peer.py "$@"
  await "$work/peer.out" listening
}
peer_call() { # peer_call WHAT ARGUMENTS...: from the client's host.
  on_client timeout 60 "$python" scripts/captures/peer.py "$@" >"$work/peer_call.out" 2>&1 ||
    missing "peer $*: $(tail -n 3 "$work/peer_call.out")"
}
# peers NAME STACK CALL...: taps, calls, and writes NAME, on the current link and with the current server.
peers() {
  local name=$1 stack=$2
  shift 2
  tap "$name"
  peer_call "$@"
  untap
  finish "$name" "$stack" "$serving; peer.py $*"
}
serve_ping() {
  peer_python
  serve "$@"
  serving="spangap target $*"
}
serve_peer() {
  peer_python
  peer_serve "$@"
  serving="peer.py $*"
}

case_python_unary() {
  link
  serve_ping --stack go
  peers python-unary python grpc-calls "$address:$port" 100 4 10
}
case_python_one() {
  link
  serve_ping --stack cpp
  peers python-one python grpc-calls "$address:$port" 60 1 300
}
case_flow_control() {
  far
  serve_ping --stack go
  notes="responses of 300 KB in windows of 65,535 bytes: a round trip of 20 ms for each window"
  because flow-control client 5 nagle-delayed-ack rto tail-loss fast-retransmit syn-loss receive-window stream-limit
  peers flow-control h2 http2-windows "$address:$port" 5 300000 0
}
case_flow_control_slow_reader() {
  link
  serve_ping --stack rust
  notes="the client gives a used-up window back 30 ms later: it reads late"
  because flow-control client 5 nagle-delayed-ack rto tail-loss fast-retransmit syn-loss receive-window stream-limit
  peers flow-control-slow-reader h2 http2-windows "$address:$port" 5 200000 30
}
case_flow_control_request() {
  far
  serve_peer http2-server "$address:$port" 20
  notes="requests of 200 KB into windows of 65,535 bytes that the server gives back 20 ms after they are used up"
  because flow-control server 4 nagle-delayed-ack rto tail-loss fast-retransmit syn-loss receive-window stream-limit
  tap flow-control-request
  call rust 4 request-bytes=200000
  untap
  finish flow-control-request rust "$serving; client program stack=rust calls=4 request-bytes=200000"
}
case_flow_control_small() {
  link
  serve_ping --stack go
  notes="responses of 60,000 bytes fit into windows of 65,535"
  peers flow-control-small h2 http2-windows "$address:$port" 20 60000 0
}
case_head_of_line_large() {
  far
  serve_ping --stack cpp
  notes="a response of 3 MB, and small calls beside it whose responses wait behind what is sent of it already"
  because "head-of-line" - 3 nagle-delayed-ack rto tail-loss fast-retransmit syn-loss receive-window stream-limit
  peers head-of-line-large python grpc-large-beside-small "$address:$port"
}

case_http1_keep_alive() {
  link
  serve_peer http1-server "$address:$port"
  tap http1-keep-alive
  on_client curl -sS -o /dev/null "http://$address:$port/[10-400:10]"
  untap
  finish http1-keep-alive curl "$serving; curl http://$address:$port/[10-400:10]"
}
case_http1_pipelined() {
  link
  serve_peer http1-server "$address:$port"
  peers http1-pipelined http1 http1-pipeline "$address:$port" 20
}
case_receive_window_server() {
  link
  serve_peer http1-server "$address:$port" 300 16384
  head -c 600000 /dev/zero >"$work/body"
  notes="the server begins to read a body of 600 KB 300 ms late"
  because receive-window server 3 nagle-delayed-ack rto tail-loss fast-retransmit syn-loss stream-limit flow-control
  tap receive-window-server
  on_client curl -sS -o /dev/null -o /dev/null -o /dev/null -H 'Expect:' --data-binary "@$work/body" \
    "http://$address:$port/"{1,2,3}
  untap
  finish receive-window-server curl "$serving; curl --data-binary (600 KB of zeros), three times on one connection"
}
case_receive_window_client() {
  link
  serve_peer http1-server "$address:$port"
  notes="the client begins to read a response of 500 KB 200 ms late"
  because receive-window client 3 nagle-delayed-ack rto tail-loss fast-retransmit syn-loss stream-limit flow-control
  peers receive-window-client http1 http1-slow-reader "$address:$port" 500000 200
}
case_receive_window_near() {
  link
  serve_peer http1-server "$address:$port" 0 131072
  head -c 100000 /dev/zero >"$work/body"
  notes="bodies of 100 KB into a small buffer that is read at once"
  tap receive-window-near
  on_client curl -sS -o /dev/null -o /dev/null -o /dev/null -H 'Expect:' --data-binary "@$work/body" \
    "http://$address:$port/"{1,2,3}
  untap
  finish receive-window-near curl "$serving; curl --data-binary (100 KB of zeros), three times on one connection"
}

certificate() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=fixture \
    -keyout "$work/key.pem" -out "$work/certificate.pem" 2>/dev/null
  rm -f "$work/keys"
}
over_tls() { # over_tls NAME CURL-FLAGS...: GETs; the keys beside the captures.
  local name=$1
  shift
  tap "$name"
  on_client curl -sSk "$@" -o /dev/null "https://$address:$port/[10-200:10]"
  untap
  install -m 644 "$work/keys" "$out/$name.keys"
  notes="the keys are in $name.keys; made for this, and of no use anywhere else"
  finish "$name" curl "${serving//$work\//}; curl $* https://$address:$port/[10-200:10]"
}
case_tls13_http1() {
  link
  certificate
  serve_peer http1-server "$address:$port" 0 0 "$work/certificate.pem" "$work/key.pem" "$work/keys" TLSv1_3
  over_tls tls13-http1 --http1.1
}
case_tls12_http1() {
  link
  certificate
  serve_peer http1-server "$address:$port" 0 0 "$work/certificate.pem" "$work/key.pem" "$work/keys" TLSv1_2
  over_tls tls12-http1 --http1.1
}
case_tls12_chacha() {
  link
  certificate
  serve_peer http1-server "$address:$port" 0 0 "$work/certificate.pem" "$work/key.pem" "$work/keys" TLSv1_2
  over_tls tls12-chacha --http1.1 --ciphers ECDHE-ECDSA-CHACHA20-POLY1305
}
case_tls12_cbc() {
  link
  certificate
  serve_peer http1-server "$address:$port" 0 0 "$work/certificate.pem" "$work/key.pem" "$work/keys" TLSv1_2
  over_tls tls12-cbc --http1.1 --ciphers ECDHE-ECDSA-AES128-SHA
}
case_tls13_chacha() {
  link
  certificate
  serve_peer http1-server "$address:$port" 0 0 "$work/certificate.pem" "$work/key.pem" "$work/keys" TLSv1_3
  over_tls tls13-chacha --http1.1 --tls13-ciphers TLS_CHACHA20_POLY1305_SHA256
}
case_tls13_http2() {
  link
  certificate
  serve_peer http2-server "$address:$port" 0 "$work/certificate.pem" "$work/key.pem" "$work/keys"
  over_tls tls13-http2 --http2
}

# The spans of both sides next to the captures: OTLP requests, each after its length.
case_rust_spans() {
  link
  peer_python
  start spans-client ip netns exec "$client" "$python" scripts/captures/peer.py spans 127.0.0.1:4317 "$work/client.pb"
  start spans-server ip netns exec "$server" "$python" scripts/captures/peer.py spans 127.0.0.1:4317 "$work/server.pb"
  await "$work/spans-client.out" listening
  await "$work/spans-server.out" listening
  notes="spans of both sides in rust-spans.client.spans.pb and rust-spans.server.spans.pb"
  run rust-spans rust "--stack rust --otlp http://127.0.0.1:4317" \
    "--stack rust --rate 100 --think 5ms --duration 600ms --otlp http://127.0.0.1:4317"
  install -m 644 "$work/client.pb" "$out/rust-spans.client.spans.pb"
  install -m 644 "$work/server.pb" "$out/rust-spans.server.spans.pb"
}
