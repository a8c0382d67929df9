#!/usr/bin/env bash
# Makes the captures in fixtures/proxies: `scripts/proxy_fixtures.sh [NAME...]`, by default all of them. Uses three
# hosts on this machine (network namespaces): a client, a proxy (nginx or haproxy) and a server, joined by veths, with a
# tap at every end; four hosts if one proxy is behind another. The peers are scripts/proxies/web.py, and `spangap
# target` and `tank`. Each call's path comes from the ids that the server and the proxy log, not from a capture, and is
# written next to the captures. PROXIES_OUT sets another output folder. Needs root, the result of `make build`, dumpcap,
# nginx and haproxy.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${PROXIES_OUT:-$PWD/fixtures/proxies}
spangap=${SPANGAP:-$PWD/target/release/spangap}
client=proxies-client-$$
proxy=proxies-proxy-$$
server=proxies-server-$$
second=proxies-second-$$
# shellcheck source=scripts/stage.sh
source scripts/stage.sh
needs ip dumpcap nginx haproxy python3 zstd
# Where the servers are; a chain has another proxy in front of them, and captures there.
behind=10.82.0.3
chained=''

clear_case() {
  clear_stage "$client" "$proxy" "$second" "$server"
  behind=10.82.0.3 chained=''
}
clean() {
  clear_case
  rm -rf "$work"
}
trap clean EXIT

link() { # link HOST DEVICE ADDRESS HOST DEVICE ADDRESS: a veth between two hosts.
  ip link add "$2" netns "$1" type veth peer name "$5" netns "$4"
  ip -n "$1" addr add "$3/24" dev "$2"
  ip -n "$4" addr add "$6/24" dev "$5"
  ip -n "$1" link set "$2" up
  ip -n "$4" link set "$5" up
}
host() { # host NAME...
  local name
  for name in "$@"; do
    ip netns add "$name"
    ip -n "$name" link set lo up
  done
}
hosts() { # 10.81.0.1 -> 10.81.0.2, the proxy, 10.82.0.2 -> 10.82.0.3
  host "$client" "$proxy" "$server"
  link "$client" near 10.81.0.1 "$proxy" left 10.81.0.2
  link "$proxy" right 10.82.0.2 "$server" near 10.82.0.3
}
chain() { # 10.81.0.1 -> 10.81.0.2, the proxy, 10.82.0.2 -> 10.82.0.3, the second one, 10.83.0.3 -> 10.83.0.4
  host "$client" "$proxy" "$second" "$server"
  link "$client" near 10.81.0.1 "$proxy" left 10.81.0.2
  link "$proxy" right 10.82.0.2 "$second" left 10.82.0.3
  link "$second" right 10.83.0.3 "$server" near 10.83.0.4
  behind=10.83.0.4 chained=yes
}
tap() { # tap: at both ends of every link, and once for all of a single proxy.
  local host device name
  while read -r host device name <&3; do
    dump "tap-$name" "$host" "$device" "$work/$name.pcapng"
  done 3<<<"$(taps)"
}
taps() { # Host, device and name of each.
  echo "$client near client"
  echo "$proxy left in"
  echo "$proxy right out"
  if [ -n "$chained" ]; then
    echo "$second left in2"
    echo "$second right out2"
  else
    echo "$proxy any any"
  fi
  echo "$server near server"
}
untap() { # untap NAME: lets the taps read what the kernel still holds, ends them, and puts the captures where they belong.
  local end
  sleep 0.7
  while read -r _ _ end; do
    stop "tap-$end" INT
    install -m 644 "$work/$end.pcapng" "$out/$1.$end.pcapng"
    rm -f "$out/$1.$end.pcapng.zst"
    zstd -q -19 --rm "$out/$1.$end.pcapng"
  done <<<"$(taps)"
}
web() { # web PORT...: servers
  local port
  for port in "$@"; do
    start "web-$port" ip netns exec "$server" python3 scripts/proxies/web.py serve "$behind" "$port"
    await "$work/web-$port.out" ready
  done
}
listens() { # listens HOST LOG...: until something does on port 80.
  local n host=$1
  shift
  for ((n = 0; n < 500; n++)); do
    if ip netns exec "$host" ss -ltnH | grep -q ":80 "; then return; fi
    sleep 0.01
  done
  missing "the proxy does not listen: $(cat "$@")"
}
nginx_with() { # nginx_with [HOST]: the http block is standard input.
  local host=${1:-$proxy}
  local folder=$work/nginx-$host
  mkdir -p "$folder"
  {
    echo "daemon off; worker_processes 1; error_log $folder/error.log; pid $folder/pid;"
    echo "events { worker_connections 512; }"
    echo "http { access_log off; client_body_temp_path $folder/body; proxy_temp_path $folder/proxy;"
    cat
    echo "}"
  } >"$folder/nginx.conf"
  start "nginx-$host" ip netns exec "$host" nginx -e "$folder/error.log" -c "$folder/nginx.conf"
  listens "$host" "$folder/error.log" "$work/nginx-$host.err"
}
haproxy_with() {
  cat >"$work/haproxy.cfg"
  start haproxy ip netns exec "$proxy" haproxy -db -f "$work/haproxy.cfg"
  listens "$proxy" "$work/haproxy.err"
}
call() { # call SPEC: HTTP/1 calls to the proxy
  ip netns exec "$client" timeout 120 python3 scripts/proxies/web.py call 10.81.0.2 80 "$1" >"$work/calls.jsonl"
}
# truth NAME HOW EXPECTED: the calls by their ids, as clients and servers logged them.
truth() {
  python3 - "$work" "$1" "$2" "$3" >"$out/$1.json" <<'END'
import glob, json, sys
work, name, how, expected = sys.argv[1:]
calls = [json.loads(line) for line in open(f"{work}/calls.jsonl")] if glob.glob(f"{work}/calls.jsonl") else []
served = {}
for log in glob.glob(f"{work}/web-*.out"):
    for line in open(log):
        if line.startswith("{"):
            entry = json.loads(line)
            served.setdefault(entry["call"], []).append(entry)
links = [{"call": c["call"], "path": c["path"], "status": c["status"],
          "attempts": [{k: s[k] for k in ("port", "peer", "status")} for s in served.get(str(c["call"]), [])]}
         for c in sorted(calls, key=lambda c: c["call"])]
expected = json.loads(expected)
if not expected.get("ids", True):
    links = [{k: l[k] for k in ("call", "path", "status")} for l in links]
text = json.dumps({"how": how, "expected": expected}, indent=2)[:-2]
print(text + ',\n  "calls": [\n    ' + ",\n    ".join(json.dumps(l) for l in links) + "\n  ]\n}")
END
}

pool='upstream servers { server 10.82.0.3:8081; keepalive 4; }'
pass='proxy_pass http://servers; proxy_http_version 1.1; proxy_set_header Connection "";'

# Eight client connections over at most four kept open to the server.
case_nginx_pool() {
  web 8081
  nginx_with <<<"$pool server { listen 80; location / { $pass } }"
  tap
  call '{"workers": 8, "calls": 12, "ids": "traceparent", "paths": ["/sleep/1", "/sleep/5", "/bytes/30000"]}'
  untap nginx-pool
  truth nginx-pool "nginx proxy_pass, keepalive 4; 8 connections, 96 calls with traceparent" '{"linked": 96, "by": "trace-context"}'
}
haproxy_to() { # haproxy_to ADDRESS: its configuration
  cat <<END
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
  http-reuse always
frontend in
  bind 10.81.0.2:80
  default_backend servers
backend servers
  server one $1
END
}
# Nothing but x-request-id.
case_haproxy_request_id() {
  web 8081
  haproxy_with <<<"$(haproxy_to 10.82.0.3:8081)"
  tap
  call '{"workers": 4, "calls": 12, "ids": "request-id", "paths": ["/sleep/3", "/bytes/2000"]}'
  untap haproxy-request-id
  truth haproxy-request-id "haproxy mode http; 4 connections, 48 calls with x-request-id" '{"linked": 48, "by": "request-id"}'
}
# Only paths, sizes and times identify the calls; one at a time, so that only one fits.
case_nginx_plain() {
  web 8081
  nginx_with <<<"$pool server { listen 80; location / { $pass } }"
  tap
  call '{"workers": 1, "calls": 30, "ids": "none", "paths": ["/sleep/3"]}'
  untap nginx-plain
  truth nginx-plain "nginx proxy_pass; 1 connection, 30 calls without ids" '{"linked": 30, "by": "content", "ids": false}'
}
# The same, eight at a time: none can be told from the others.
case_nginx_alike() {
  web 8081
  nginx_with <<<"$pool server { listen 80; location / { $pass } }"
  tap
  call '{"workers": 8, "calls": 10, "ids": "none", "paths": ["/sleep/10"]}'
  untap nginx-alike
  truth nginx-alike "nginx proxy_pass; 8 connections, 80 calls without ids, all alike" '{"linked": null, "by": "content", "ids": false}'
}
# One of two servers answers 503 after 20 ms, and nginx tries the other.
case_nginx_retry() {
  web 8081 8082
  nginx_with <<<"upstream servers { server 10.82.0.3:8081 max_fails=0; server 10.82.0.3:8082 max_fails=0; keepalive 4; }
    server { listen 80; location / { $pass proxy_next_upstream error timeout http_503 non_idempotent; } }"
  tap
  call '{"workers": 2, "calls": 10, "ids": "traceparent", "paths": ["/flaky/a"]}'
  untap nginx-retry
  truth nginx-retry "nginx proxy_next_upstream http_503, two servers of which one answers 503 after 20 ms" '{"linked": 20, "by": "trace-context", "cause": "retries"}'
}
# nginx holds each call back: a rate of 20 a second, and delays up to the burst.
case_nginx_slow() {
  web 8081
  nginx_with <<<"limit_req_zone \$server_port zone=all:1m rate=20r/s; $pool
    server { listen 80; location / { limit_req zone=all burst=100; $pass } }"
  tap
  call '{"workers": 2, "calls": 10, "ids": "traceparent", "paths": ["/sleep/1"]}'
  untap nginx-slow
  truth nginx-slow "nginx limit_req 20 a second with a burst: it holds calls back" '{"linked": 20, "by": "trace-context", "cause": "proxy"}'
}
# The server is slow, and the proxy is not.
case_nginx_near() {
  web 8081
  nginx_with <<<"$pool server { listen 80; location / { $pass } }"
  tap
  call '{"workers": 2, "calls": 10, "ids": "traceparent", "paths": ["/sleep/50"]}'
  untap nginx-near
  truth nginx-near "nginx proxy_pass; the server takes 50 ms" '{"linked": 20, "by": "trace-context", "must_not": "proxy"}'
}
# The proxy waits for another host before it forwards the call, and strips the prefix from the path.
case_nginx_auth() {
  web 8081 8082
  nginx_with <<<"$pool upstream auth { server 10.82.0.3:8082; keepalive 4; }
    server { listen 80;
      location /api/ { auth_request /auth; proxy_pass http://servers/; proxy_http_version 1.1; proxy_set_header Connection \"\"; }
      location = /auth { internal; proxy_pass http://auth/sleep/30; proxy_http_version 1.1; proxy_set_header Connection \"\";
        proxy_pass_request_body off; proxy_set_header Content-Length \"\"; } }"
  tap
  call '{"workers": 2, "calls": 10, "ids": "traceparent", "paths": ["/api/sleep/1"]}'
  untap nginx-auth
  truth nginx-auth "nginx auth_request to a server that takes 30 ms, then proxy_pass without the prefix" '{"linked": 20, "by": "trace-context", "must_not": "proxy"}'
}
# Two proxies, one behind the other: every hop forwards the trace context as it is.
case_nginx_nginx() {
  chain
  web 8081
  nginx_with "$second" <<<"upstream servers { server 10.83.0.4:8081; keepalive 4; } server { listen 80; location / { $pass } }"
  nginx_with <<<"upstream servers { server 10.82.0.3:80; keepalive 4; } server { listen 80; location / { $pass } }"
  tap
  call '{"workers": 4, "calls": 12, "ids": "traceparent", "paths": ["/sleep/1", "/sleep/5", "/bytes/30000"]}'
  untap nginx-nginx
  truth nginx-nginx "nginx proxy_pass to another nginx proxy_pass; 4 connections, 48 calls with traceparent" '{"linked": 48, "by": "trace-context", "proxies": 2}'
}
# haproxy in front of nginx, with only x-request-id; nginx is the slow one.
case_haproxy_nginx() {
  chain
  web 8081
  nginx_with "$second" <<<"limit_req_zone \$server_port zone=all:1m rate=20r/s; upstream servers { server 10.83.0.4:8081; keepalive 4; }
    server { listen 80; location / { limit_req zone=all burst=100; $pass } }"
  haproxy_with <<<"$(haproxy_to 10.82.0.3:80)"
  tap
  call '{"workers": 2, "calls": 10, "ids": "request-id", "paths": ["/sleep/3", "/bytes/2000"]}'
  untap haproxy-nginx
  truth haproxy-nginx "haproxy to nginx with limit_req 20 a second and a burst; 2 connections, 20 calls with x-request-id" '{"linked": 20, "by": "request-id", "proxies": 2, "slow": 2}'
}
# gRPC: nginx grpc_pass.
case_nginx_grpc() {
  start target ip netns exec "$server" "$spangap" target --listen 10.82.0.3:8081 --stack "${GRPC_STACK:-rust}" --think 2ms
  await "$work/target.out" "listening on"
  nginx_with <<<"upstream servers { server 10.82.0.3:8081; keepalive 4; }
    server { listen 80 http2; location / { grpc_pass grpc://servers; } }"
  tap
  ip netns exec "$client" "$spangap" tank 10.81.0.2:80 --stack rust --trace on --warmup 0s --timeout 30s --rate 80 \
    --duration 1s --json >"$work/tank.json" 2>"$work/tank.err" || missing "tank: $(tail -n 3 "$work/tank.err")"
  untap nginx-grpc
  rm -f "$work/calls.jsonl"
  truth nginx-grpc "nginx grpc_pass to spangap target --stack rust --think 2ms; spangap tank --rate 80, one second" '{"linked": 80, "by": "trace-context"}'
}

mkdir -p "$out"
declare -a names=("$@")
if [ ${#names[@]} = 0 ]; then
  while read -r name; do names+=("$name"); done < <(declare -F | sed -n 's/^declare -f case_//p' | tr _ -)
fi
for name in "${names[@]}"; do
  declare -F "case_${name//-/_}" >/dev/null || missing "there is no case $name"
  # A chain makes its own.
  declare -f "case_${name//-/_}" | grep -qx ' *chain;' || hosts
  "case_${name//-/_}"
  clear_case
  rm -rf "${work:?}"/*
  echo "$name: $(du -ch "$out/$name".* | tail -n 1 | cut -f1)"
done
