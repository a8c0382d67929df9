# shellcheck shell=bash disable=SC2034,SC2154
# What calls wait for before their connection carries them: names, TLS handshakes, connections of a pool. Needs python3
# and openssl. The client's spans, with how long each call waited by the client's clock, are in NAME.client.spans.

opening() { # opening NAME CLIENT-MODE EXPECTED NOTES [SERVER-FLAGS...]
  local name=$1 mode=$2
  expected=$3 notes=$4
  shift 4
  must_not=$nothing_wrong
  start openings ip netns exec "$server" python3 scripts/captures/openings.py server "$address:$port" "$@"
  await "$work/openings.out" "listening on"
  filter='tcp or udp port 53'
  tap "$name"
  # The client's host has its own resolver configuration.
  printf 'nameserver %s\noptions timeout:1\n' "$address" >"$work/resolv.conf"
  # shellcheck disable=SC2016 # the inner shell expands it
  on_client unshare -m sh -c 'mount --bind "$0" /etc/resolv.conf && exec python3 "$@"' "$work/resolv.conf" \
    scripts/captures/openings.py client "$mode" "$address:$port" "$work/spans.json"
  untap
  filter=
  install -m 644 "$work/spans.json" "$out/$name.client.spans"
  if [ "$#" -gt 0 ]; then install -m 644 "$work/keys" "$out/$name.keys"; fi
  finish "$name" python "scripts/captures/openings.py server${1:+ with TLS}; openings.py client $mode"
}
case_tls_handshake() {
  link
  certificate
  opening tls-handshake tls '"none"' \
    "each call opens a connection with TLS; the keys are in tls-handshake.keys, made for this, and of no use anywhere else" \
    "$work/certificate.pem" "$work/key.pem" "$work/keys"
}
case_tls12_handshake() {
  link
  certificate
  opening tls12-handshake tls12 '"none"' \
    "each call opens a connection with TLS 1.2; the keys are in tls12-handshake.keys, made for this, and of no use anywhere else" \
    "$work/certificate.pem" "$work/key.pem" "$work/keys"
}
case_tls_in_advance() {
  link
  certificate
  opening tls-in-advance tls-near '"none"' \
    "connections with TLS, each opened for one call, but before its span begins: no call waits for a handshake; the keys are in tls-in-advance.keys" \
    "$work/certificate.pem" "$work/key.pem" "$work/keys"
}
name_server() { # name_server DELAY-MS
  start names ip netns exec "$server" python3 scripts/captures/openings.py names "$address" "$address" "$1"
  await "$work/names.out" "listening on"
}
case_dns() {
  link
  name_server 15
  opening dns dns '{"cause": "connection-per-call", "side": "client", "at_least_calls": 9}' \
    "each call looks a name up, 15 ms; every third query is lost and asked again after 1 s"
}
case_dns_in_advance() {
  link
  name_server 15
  opening dns-in-advance dns-near '{"cause": "connection-per-call", "side": "client", "at_least_calls": 9}' \
    "names are looked up right before the spans begin"
}
case_pool_wait() {
  link
  opening pool-wait pool '"none"' "six threads share two connections, calls of 20 ms; with spans, who waited is known"
}
case_pool_near() {
  link
  opening pool-near pool-near '"none"' "six threads with a connection each, all busy all the time: nobody waits for one"
}
# large CASE NOTES: a request of several segments over a link that carries 1,200 bytes to the server, which neither the
# server's announced segment size nor anything else reveals.
large() {
  link
  ip -n "$server" link set near mtu 1200
  ip -n "$server" route replace 10.77.0.0/24 dev near src "$address" advmss 1460
  ip netns exec "$client" ethtool -K near tso off gso off >/dev/null
  on_client sysctl -qw net.ipv4.tcp_mtu_probing=1
  opening "$1" large '{"cause": "path-mtu", "at_least_calls": 1}' "$2"
}
case_path_mtu() {
  large path-mtu "the link drops what is larger than 1,200 bytes; after four retransmissions the client's kernel makes its segments smaller (tcp_mtu_probing=1)"
}
