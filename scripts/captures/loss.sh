# shellcheck shell=bash disable=SC2034,SC2154
# Cases: packets lost on the delay line, and near misses without a loss. 2 ms each way.

lossy() { # lossy FLAGS...: the line, with what is lost on it.
  made_by="spangap lab actor line --delay-a 2000000 --delay-b 2000000 $*"
  line --delay-a 2000000 --delay-b 2000000 "$@"
}
no_probes() { # Without tail loss probes only the retransmission timer is left.
  made_by+="; net.ipv4.tcp_early_retrans=0 at both ends"
  on_client sysctl -qw net.ipv4.tcp_early_retrans=0
  on_server sysctl -qw net.ipv4.tcp_early_retrans=0
}
timed_out=(nagle-delayed-ack fast-retransmit syn-loss receive-window stream-limit flow-control)
# One lost packet alone in flight: the timer, by the kernel's counters; with probes, it would send its probe at that
# time.
case_rto_response() {
  lossy --drop-b 12,20
  no_probes
  notes="rto by the kernel's counters; on the wire the same as a probe of one packet in flight"
  because "rto|tail-loss" - 2 "${timed_out[@]}"
  calls rto-response rust "--stack rust" 30
}
case_rto_request() {
  lossy --drop-a 14,24
  no_probes
  notes="rto by the kernel's counters; on the wire the same as a probe of one packet in flight"
  because "rto|tail-loss" - 2 "${timed_out[@]}"
  calls rto-request go "--stack go" 30
}
# Lost again when retransmitted: there is only one probe, so the second retransmission is the timer's, whoever sent the
# first.
case_rto_twice() {
  lossy --drop-b 12,13
  notes="one response is lost twice: what is sent again for the second time is the timer's"
  because rto - 1 "${timed_out[@]}"
  calls rto-twice rust "--stack rust" 30
}
# The same with probes: the probe comes when the timer would have fired, and only the counters distinguish them.
case_loss_one_in_flight() {
  lossy --drop-b 16,24
  notes="sent again after about 200 ms: tail-loss by the kernel's counters; on the wire the same as an rto"
  because "tail-loss|rto" - 2 nagle-delayed-ack fast-retransmit syn-loss receive-window stream-limit flow-control
  calls loss-one-in-flight rust "--stack rust" 30
}
# The last packet of a multi-packet response is the only one that is not full.
case_tail_loss() {
  lossy --least-b 200 --most-b 1400 --drop-b 12,18
  because tail-loss - 2 nagle-delayed-ack rto fast-retransmit syn-loss receive-window stream-limit
  calls tail-loss rust "--stack rust" 20 "response-bytes=20000"
}
# The same where a PING of the server happens to follow: its acknowledgement reveals the loss before any probe.
case_loss_before_ping() {
  lossy --least-b 200 --most-b 1400 --drop-b 12,20
  because fast-retransmit - 2 nagle-delayed-ack rto syn-loss receive-window stream-limit
  calls loss-before-ping cpp-async "--stack cpp" 20 "response-bytes=20000"
}
case_fast_retransmit() {
  lossy --least-b 1400 --drop-b 100,200
  because fast-retransmit - 2 nagle-delayed-ack rto tail-loss syn-loss receive-window stream-limit
  calls fast-retransmit go "--stack go" 8 "response-bytes=60000"
}
case_fast_retransmit_request() {
  lossy --least-a 1400 --drop-a 100,200
  because fast-retransmit - 2 nagle-delayed-ack rto tail-loss syn-loss receive-window stream-limit
  calls fast-retransmit-request rust "--stack rust" 8 "request-bytes=60000"
}
case_syn_loss() {
  lossy --least-a 0 --drop-a 1
  notes="the connection takes a second; what waited for it is not on the wire"
  because syn-loss - 0 nagle-delayed-ack rto tail-loss fast-retransmit receive-window stream-limit
  calls syn-loss rust "--stack rust" 10
}
case_syn_ack_loss() {
  lossy --least-b 0 --drop-b 1
  notes="the connection takes a second; what waited for it is not on the wire"
  because syn-loss - 0 nagle-delayed-ack rto tail-loss fast-retransmit receive-window stream-limit
  calls syn-ack-loss go "--stack go" 10
}

# Near-misses.
case_reordered() {
  lossy --least-b 1400 --swap-b 60,100,140,180,220
  notes="neighbours swapped within a flight: nothing is lost, and nothing sent again"
  calls reordered go "--stack go" 8 "response-bytes=60000"
}
case_duplicated() {
  lossy --twice-b 12,14,20-30 --twice-a 15,17
  notes="packets come twice at the receiver, sent once"
  calls duplicated rust "--stack rust" 30
}
case_late_not_lost() {
  lossy --spike-b 10,60000000
  notes="every tenth response is held up for 60 ms by the path and nothing is sent again"
  because "network-delay|network-jitter" - 2 nagle-delayed-ack rto tail-loss fast-retransmit syn-loss receive-window \
    stream-limit flow-control
  calls late-not-lost rust "--stack rust" 30
}
