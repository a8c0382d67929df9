# shellcheck shell=bash disable=SC2034,SC2154
# Cases: calls that never got an answer, however they ended, and their near misses.

silent_serve() { # silent_serve WHAT ARGUMENTS...: of silent.py, on the server's host.
  peer_python
  start silent ip netns exec "$server" "$python" scripts/captures/silent.py "$@"
  await "$work/silent.out" listening
  serving="silent.py $*"
}
# unanswered NAME CAUSE SIDE CALLS LEAST-MS MOST-MS STATUS=COUNT...: how many calls got no response, how long each
# waited, and what ended them.
unanswered() {
  local statuses='' status
  because "$1" "$2" "$3" nagle-delayed-ack network-delay receive-window stream-limit flow-control
  local calls=$3 least=$4 most=$5
  shift 5
  for status in "$@"; do statuses+="${statuses:+, }\"${status%=*}\": ${status#*=}"; done
  ends="{\"unanswered\": $calls, \"least_ms\": $least, \"most_ms\": $most, \"statuses\": {$statuses}}"
}
# gives_up NAME STACK HOW COMMAND...: taps, lets a client give up, and writes NAME.
gives_up() {
  local name=$1 stack=$2 how=$3
  shift 3
  tap "$name"
  on_client timeout 60 "$@" >"$work/gives_up.out" 2>&1 || true
  untap
  finish "$name" "$stack" "$serving; $how"
}

case_deadline_go() {
  link
  go build -C clients/go -o "$work/deadline" "$PWD/scripts/captures/deadline.go" || missing "deadline.go does not build"
  serve --stack go --think 2s
  serving="spangap target --stack go --think 2s"
  unanswered no-response server 3 190 260 deadline=3
  gives_up deadline-go go "deadline.go" "$work/deadline" "$address:$port"
}
# The program gives up by itself and sends no deadline to the server.
case_cancelled_go() {
  link
  serve --stack go --think 2s
  unanswered no-response server 3 190 260 cancelled=3
  tap cancelled-go
  call go 3 timeout-ns=200000000
  untap
  finish cancelled-go go "spangap target --stack go --think 2s; client program (clients/CONTRACT.md) stack=go calls=3 timeout-ns=200000000"
}
case_deadline_python() {
  link
  silent_serve http2_server "$address:$port"
  unanswered no-response server 4 95 260 deadline=3 cancelled=1
  gives_up deadline-python python "silent.py grpc_deadlines" "$python" scripts/captures/silent.py grpc_deadlines "$address:$port"
}
case_endings_node() {
  link
  silent_serve http2_server "$address:$port"
  notes="cancelled, refused, left out by GOAWAY, and the whole connection dropped; trailers alone are an answer"
  unanswered no-response server 4 190 360 cancelled=1 refused=1 goaway=1 connection_closed=1
  gives_up endings-node node silent.mjs node scripts/captures/silent.mjs "$address:$port"
}
case_timeout_http1() {
  link
  silent_serve http1_server "$address:$port"
  notes="one connection with an answered request before the one that is not, and two that are opened for theirs"
  unanswered no-response server 3 200 420 connection_closed=3
  gives_up timeout-http1 curl "curl --max-time 0.3" bash -c "
    curl -s http://$address:$port/good http://$address:$port/never --max-time 0.3
    for n in 1 2; do curl -s --max-time 0.3 http://$address:$port/never; done"
}
case_timeout_http2() {
  link
  silent_serve http2_server "$address:$port"
  unanswered no-response server 2 200 420 connection_closed=2
  gives_up timeout-http2 curl "curl --http2-prior-knowledge --max-time 0.3" bash -c "
    for n in 1 2; do curl -s --http2-prior-knowledge --max-time 0.3 http://$address:$port/silent.v1.Test/Never; done"
}
case_late_answer() {
  link
  silent_serve http1_server "$address:$port"
  notes="the server answers 0.6 s after the request, when the client has gone for 0.3 s"
  unanswered no-response server 2 200 420 connection_closed=2
  gives_up late-answer curl "curl --max-time 0.3; 0.5 s; twice" bash -c "
    for n in 1 2; do curl -s --max-time 0.3 http://$address:$port/late; sleep 0.5; done"
}
case_server_ends() {
  link
  silent_serve http1_server "$address:$port"
  notes="one RST and one FIN of the server, both 0.3 s after the request"
  unanswered no-response server 2 200 420 connection_reset=1 connection_closed=1
  gives_up server-ends curl "curl /reset and /close" bash -c "
    for path in reset close; do curl -s http://$address:$port/\$path; done"
}
case_still_open() {
  link
  silent_serve http1_server "$address:$port"
  notes="the captures end while the client waits"
  unanswered no-response server 1 500 3000 none=1
  tap still-open
  start waits ip netns exec "$client" curl -s "http://$address:$port/good" "http://$address:$port/never"
  untap
  stop waits
  finish still-open curl "$serving; curl /good, /never, and no end"
}
case_timeout_turns() {
  link
  silent_serve turns_server "$address:$port"
  unanswered no-response server 1 200 420 connection_closed=1
  gives_up timeout-turns python "silent.py turns_client" "$python" scripts/captures/silent.py turns_client "$address:$port"
}
case_timeout_tls() {
  link
  openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/key.pem" -out "$work/certificate.pem" -days 2 \
    -subj /CN=silent 2>/dev/null
  silent_serve turns_server "$address:$port" "$work/certificate.pem" "$work/key.pem"
  serving="silent.py turns_server over TLS 1.2"
  unanswered no-response server 1 200 420 connection_closed=1
  gives_up timeout-tls python "silent.py turns_client over TLS" "$python" scripts/captures/silent.py turns_client "$address:$port" tls
}
# From the client's second packet with bytes on, nothing arrives: neither the second request nor any copy of it.
case_black_hole() {
  made_by="spangap lab actor line --delay-a 2000000 --delay-b 2000000 --drop-a 2-40"
  line --delay-a 2000000 --delay-b 2000000 --drop-a 2-40
  silent_serve http1_server "$address:$port"
  notes="the client gives up after 1 s, and its FIN waits behind the bytes that are lost: no packet shows it"
  unanswered black-hole - 1 600 3000 none=1
  must_not='["no-response", "nagle-delayed-ack", "receive-window", "stream-limit", "flow-control"]'
  gives_up black-hole curl "curl /good, then the same with --max-time 1" bash -c "
    curl -s http://$address:$port/good --next --max-time 1 -s http://$address:$port/good"
}
