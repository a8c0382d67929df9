# shellcheck shell=bash disable=SC2034,SC2154,SC2178,SC2128
# Cases: what the path between the taps does.

delayed() { # delayed FLAGS...: the delay line.
  made_by="spangap lab actor line $*"
  line "$@"
}
no_network=(nagle-delayed-ack rto tail-loss fast-retransmit syn-loss receive-window stream-limit flow-control)
case_network_delay() {
  delayed --delay-a 5000000 --delay-b 5000000
  because network-delay - 20 "${no_network[@]}"
  calls network-delay rust "--stack go" 40
}
case_network_asymmetric() {
  delayed --delay-a 8000000 --delay-b 2000000
  notes="8 ms there, 2 ms back: two captures alone cannot tell this from clocks that differ by 3 ms"
  because network-delay - 20 "${no_network[@]}"
  calls network-asymmetric go "--stack rust" 40
}
case_network_spikes() {
  delayed --delay-a 500000 --delay-b 500000 --spike-a 12,30000000
  notes="every twelfth request is held up for 30 ms on the way"
  because "network-delay|network-jitter" - 3 "${no_network[@]}"
  calls network-spikes rust "--stack rust" 80
}
case_batched_arrival() {
  delayed --clump-b 10000000
  notes="responses sent apart come out of the path every 10 ms"
  because batched-arrival - 20 "${no_network[@]}"
  calls batched-arrival go "--stack go" 200 "schedule=1000/1000000000 in-flight=50"
}
case_batched_near() {
  delayed --delay-a 5000000 --delay-b 5000000
  notes="the same calls and the same mean delay, evenly"
  because network-delay - 20 "${no_network[@]}" batched-arrival
  calls batched-near go "--stack go" 200 "schedule=1000/1000000000 in-flight=50"
}
# A response lost while those of other streams arrive: these wait for the hole before them.
case_head_of_line_loss() {
  delayed --delay-a 2000000 --delay-b 2000000 --drop-b 60,120
  because "head-of-line|fast-retransmit" - 6 nagle-delayed-ack syn-loss receive-window stream-limit flow-control
  notes="a lost packet delays the calls whose bytes follow it on the connection"
  calls head-of-line-loss rust "--stack rust --think 1ms" 400 "schedule=2000/1000000000 in-flight=64"
}

# Addresses and ports differ at both ends: a host in the middle rewrites them.
case_nat() {
  hosts
  made_by="veth to a third namespace that rewrites both addresses (nft dnat, masquerade) and one to the server"
  command -v nft >/dev/null || missing "the program nft is missing: install nftables"
  ip netns add "$middle"
  ip link add near netns "$client" type veth peer name left netns "$middle"
  ip link add near netns "$server" type veth peer name right netns "$middle"
  ip -n "$client" addr add 10.78.0.1/24 dev near
  ip -n "$middle" addr add 10.78.0.254/24 dev left
  ip -n "$middle" addr add 10.77.0.254/24 dev right
  ip -n "$server" addr add "$address/24" dev near
  ip -n "$client" link set near up
  ip -n "$middle" link set left up
  ip -n "$middle" link set right up
  ip -n "$server" link set near up
  ip netns exec "$middle" sysctl -qw net.ipv4.ip_forward=1
  ip netns exec "$middle" nft -f - <<END
table ip nat {
  chain pre { type nat hook prerouting priority -100; ip daddr 10.78.0.254 tcp dport $port dnat to $address:$port; }
  chain post { type nat hook postrouting priority 100; oifname "right" masquerade random; }
}
END
  server_seen=10.78.0.254
  notes="client 10.78.0.1 calls 10.78.0.254; the server sees 10.77.0.254 and, as a rule, other ports"
  calls nat go "--stack go --think 2ms" 60 "in-flight=4 channels=pool:3"
}
# The taps see the tunnel's outer packets.
case_vxlan() {
  hosts
  made_by="VXLAN over a veth, captured on the veth"
  ip link add near netns "$client" type veth peer name near netns "$server"
  ip -n "$client" addr add 10.79.0.1/24 dev near
  ip -n "$server" addr add 10.79.0.2/24 dev near
  ip -n "$client" link set near up
  ip -n "$server" link set near up
  ip -n "$client" link add tunnel type vxlan id 77 dstport 4789 local 10.79.0.1 remote 10.79.0.2 dev near
  ip -n "$server" link add tunnel type vxlan id 77 dstport 4789 local 10.79.0.2 remote 10.79.0.1 dev near
  ip -n "$client" addr add "$client_address/24" dev tunnel
  ip -n "$server" addr add "$address/24" dev tunnel
  ip -n "$client" link set tunnel up
  ip -n "$server" link set tunnel up
  filter="udp port 4789"
  calls vxlan rust "--stack rust --think 2ms" 60 "in-flight=4"
}
# Linux cooked capture: all devices of each host at once.
case_any_device() {
  link
  made_by="veth, captured with -i any"
  device=any
  calls any-device go "--stack go --think 2ms" 60 "in-flight=4"
}
