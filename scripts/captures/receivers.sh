# shellcheck shell=bash disable=SC2034,SC2154
# Cases: bytes that reach the receiver's tap and are dropped behind it, and their near misses. An nftables rule drops
# them on INPUT, where packets have already passed the tap.

# drops END HOOK EVERY RULE...: drops every EVERY-th of the packets that a rule matches at END.
drops() {
  local end=$1 hook=$2 every=$3
  shift 3
  ip netns exec "${!end}" nft -f - <<END
table inet drops {
  chain those {
    type filter hook $hook priority 0;
    $* numgen inc mod $every == $((every - 1)) counter drop
  }
}
END
  made_by+="; on the $end's host nft drops on ${hook^^} every ${every}th packet with $*"
}
bare_ack='meta length < 60 tcp flags & (syn | fin | rst) == 0'
on_link() {
  made_by="veth"
  link
  # One packet on the wire is one packet in the capture.
  on_client ethtool -K near tso off gso off gro off >/dev/null
  on_server ethtool -K near tso off gso off gro off >/dev/null
}
# One end alone cannot tell them from losses on the path.
not_these=(nagle-delayed-ack syn-loss receive-window stream-limit flow-control)
case_receiver_drop_request() {
  on_link
  drops server input 9 tcp dport "$port" meta length '>' 80
  because receiver-drop server 4 "${not_these[@]}"
  calls receiver-drop-request rust "--stack rust" 40
}
# Later segments of the response reveal the hole: SACK.
case_receiver_drop_response() {
  on_link
  drops client input 53 tcp sport "$port" meta length '>' 500
  because receiver-drop client 4 "${not_these[@]}"
  calls receiver-drop-response rust "--stack rust" 24 "response-bytes=20000"
}
# Nothing follows a response that is alone: the timer, or a probe.
case_receiver_drop_alone() {
  on_link
  no_probes
  drops client input 8 tcp sport "$port" meta length '>' 80
  because receiver-drop client 3 "${not_these[@]}"
  calls receiver-drop-alone rust "--stack rust" 30
}
# Near misses: acknowledgements are lost in the sender's host or in the receiver's; the receiver had the bytes.
case_receiver_had_it() {
  on_link
  drops server input 3 tcp dport "$port" "$bare_ack"
  notes="acknowledgements of responses do not reach the server's TCP: it sends again what the client had"
  must_not='["receiver-drop","rto","tail-loss","fast-retransmit"]'
  calls receiver-had-it rust "--stack rust" 24 "response-bytes=20000"
}
# The same before the client's tap: no capture has the acknowledgement, and only the DSACK reveals it.
case_receiver_had_it_unseen() {
  on_link
  drops client output 2 tcp dport "$port" "$bare_ack"
  notes="acknowledgements of responses leave the client's TCP and reach no tap: the server sends again what the client had"
  must_not='["receiver-drop","rto","fast-retransmit"]'
  calls receiver-had-it-unseen rust "--stack rust" 24 "response-bytes=20000"
}
