"""Meters behind a Collector that distributes spans by trace id: `test.py SPANGAP COLLECTOR`. A meter is added, another one killed, under
load; what all meters count is compared with what was sent. The list of meters is that of a name in /etc/hosts, which is this test's own:
the Collector and the meters resolve it again and again."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from load import Load

NAME = "meters.test"
RATE = 150
TTL_S = 10
OTLP_HTTP = 14318
begun = time.monotonic()

CONFIGURATION = f"""
receivers:
  otlp: {{ protocols: {{ http: {{ endpoint: 127.0.0.1:{OTLP_HTTP} }} }} }}
exporters:
  loadbalancing:
    routing_key: traceID
    # A request that a meter does not take is distributed anew, by the list as it is then.
    retry_on_failure: {{ enabled: true, initial_interval: 200ms, max_interval: 500ms, max_elapsed_time: 120s }}
    sending_queue: {{ enabled: true, queue_size: 100000, num_consumers: 4 }}
    protocol:
      otlp:
        timeout: 2s
        tls: {{ insecure: true }}
        retry_on_failure: {{ enabled: false }}
        sending_queue: {{ enabled: false }}
    resolver: {{ dns: {{ hostname: {NAME}, port: "4317", interval: 1s }} }}
service:
  telemetry: {{ metrics: {{ level: none }} }}
  pipelines: {{ traces: {{ receivers: [otlp], exporters: [loadbalancing] }} }}
"""


def say(text):
    print(f"{time.monotonic() - begun:6.1f} s  {text}", flush=True)


def until(what, condition, seconds=120):
    end = time.monotonic() + seconds
    while True:
        try:
            answer = condition()
        except (OSError, ValueError, KeyError):
            answer = None
        if answer:
            return answer
        if time.monotonic() > end:
            raise SystemExit(f"collectors: it did not come within {seconds} s: {what}")
        time.sleep(0.1)


class Meter:
    def __init__(self, spangap, work, name, number):
        self.spangap, self.name, self.address = spangap, name, f"127.0.0.{number}"
        self.folder = Path(work) / name
        self.folder.mkdir()
        self.process = None

    def start(self):
        ports = ["--http", f"{self.address}:7070", "--otlp-grpc", f"{self.address}:4317", "--otlp-http", f"{self.address}:4318"]
        peers = ["--peers", f"{NAME}:7070", "--peers-key", str(self.folder.parent / "key")]
        command = [self.spangap, "meter", "--data", str(self.folder / "data"), "--join-ttl", f"{TTL_S}s", *ports, *peers]
        out = self.folder / "out"
        with open(out, "wb") as stdout, open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(command, stdout=stdout, stderr=log, stdin=subprocess.DEVNULL)
        until(f"meter {self.name}", lambda: "ready" in out.read_text())
        return self

    def get(self, path):
        with urllib.request.urlopen(f"http://{self.address}:7070/{path}", timeout=10) as answer:
            text = answer.read().decode()
            return json.loads(text) if path.startswith("api") else text

    def coverage(self):
        return self.get("api/v1/coverage")

    def spans(self):
        return self.coverage()["spans"]

    def calls(self):
        now = int(time.time())
        return sum(row["calls"] + row["negative"] for row in self.get(f"api/v1/pairs?from={now - 86400}&to={now + 120}")["pairs"])

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process = None


def hosts(meters):
    """The list is changed in place: a file that is mounted cannot be exchanged."""
    lines = ["127.0.0.1 localhost", *(f"{meter.address} {NAME}" for meter in meters)]
    Path("/etc/hosts").write_text("\n".join(lines) + "\n")


def total(counts):
    counts = list(counts)
    return {key: sum(each[key] for each in counts) for key in counts[0]}


def expect(what, found, expected):
    if found != expected:
        raise SystemExit(f"collectors: {what}: {found}, expected {expected}")


def settled(meters, spans):
    """Waits until all spans have come, and none is pending: none waits for its mate or for another meter's word."""

    def all_of_them():
        sums = total(meter.spans() for meter in meters)
        return sums if sums["received"] - sums["duplicate"] >= spans and sums["pending"] == 0 else None

    return until("the fate of all spans", all_of_them, 240)


def peers_hear_each_other(meters):
    states = [[peer["state"] for peer in meter.coverage()["peers"]["peers"]] for meter in meters]
    return all(of.count("answers") == len(meters) - 1 for of in states)


def added(meters, fourth, load):
    load.start(RATE)
    until("calls", lambda: load.both > 5 * RATE)
    fourth.start()
    hosts([*meters, fourth])
    until("spans at the added meter", lambda: fourth.spans()["received"] > 0)
    so_far = load.both
    until("calls meanwhile", lambda: load.both > so_far + 3 * RATE)
    load.finish()
    all_four = [*meters, fourth]
    sums = settled(all_four, load.spans)
    expect("every span is counted once", sums["received"] - sums["duplicate"], load.spans)
    expect("client only", sums["expired_client_only"], load.client_only)
    expect("server only", sums["expired_server_only"], load.server_only)
    expect("unresolved, evicted, malformed", [sums[key] for key in ("unresolved", "evicted", "malformed")], [0, 0, 0])
    expect("joined and apart", sums["joined"] + sums["apart"], 2 * load.both)
    expect("calls in the histories", sum(meter.calls() for meter in all_four), sums["joined"] // 2)
    if sums["apart"] == 0 or sums["apart"] % 2:
        raise SystemExit(f"collectors: {sums['apart']} halves are apart: expected two of each call that was under way")
    say(f"ok: a meter was added: {load.both} calls with both spans = {sums['joined'] // 2} joined + {sums['apart'] // 2} apart;")
    say(f"    {load.client_only} client only and {load.server_only} server only, as sent; {sums['duplicate']} duplicates")
    noted = [meter.name for meter in all_four if any("are apart" in note for note in meter.coverage()["notes"])]
    exported = [line for meter in all_four for line in meter.get("metrics").splitlines() if line.startswith('spangap_spans_total{class="apart"}')]
    expect("apart in the metrics", sum(int(line.split()[1]) for line in exported), sums["apart"])
    if not noted:
        raise SystemExit("collectors: no meter notes that calls are apart")
    return sums


def killed(meters, dead, collector, load, before):
    living = [meter for meter in meters if meter is not dead]
    sent_before = (load.both, load.client_only, load.server_only, load.spans)
    load.start(RATE)
    until("calls", lambda: load.both > sent_before[0] + 5 * RATE)
    # The Collector pauses while the meter's last figures are read: so what dies with it is known.
    os.kill(collector.pid, signal.SIGSTOP)
    last = [None, dead.spans()]
    until("an idle meter", lambda: (last.pop(0), last.append(dead.spans()), last[0]["received"] == last[1]["received"])[2])
    last, counted = dead.spans(), dead.calls()
    dead.kill()
    os.kill(collector.pid, signal.SIGCONT)
    hosts(living)
    died = time.monotonic()
    # For longer than the mates of what was sent before may be at the meter that was killed.
    until("calls meanwhile", lambda: time.monotonic() - died > 2 * TTL_S)
    load.finish()
    expected = load.spans - (last["received"] - last["duplicate"])
    sums = settled(living, expected)
    expect("every span is counted once, with those of the meter that was killed", sums["received"] - sums["duplicate"], expected)
    now = total([sums, last])
    expect("evicted and malformed", [now[key] for key in ("evicted", "malformed")], [0, 0])
    expect("every half has a class", now["joined"] + now["apart"] + now["unresolved"] + now["pending"] + now["expired_client_only"] + now["expired_server_only"], load.spans)
    # One-sided calls are in their class, or among those of which the killed meter took the mate or the word along.
    open_halves = last["pending"] + sums["unresolved"]
    for side, sent in (("expired_client_only", load.client_only), ("expired_server_only", load.server_only)):
        if not sent - open_halves <= now[side] <= sent:
            raise SystemExit(f"collectors: {side}: {now[side]} counted of {sent} sent, with {open_halves} open")
    missing = load.both - (now["joined"] + now["apart"]) / 2
    if not 0 <= missing <= open_halves:
        raise SystemExit(f"collectors: {missing} calls are neither joined nor apart, of {open_halves} open halves")
    if sums["expired_client_only"] <= before["expired_client_only"] - dead.before["expired_client_only"]:
        raise SystemExit("collectors: nothing is client only after the meter was killed: expected what was sent later")
    if sums["unresolved"] == 0:
        raise SystemExit("collectors: nothing is unresolved although a meter was killed with halves that waited")
    say(f"ok: a meter was killed: {load.both} calls with both spans = {now['joined'] // 2} joined + {now['apart'] // 2} apart + {missing:g} whose halves")
    say(f"    are among the {last['pending']} that died with it and the {sums['unresolved']} that the others count as unresolved;")
    say(f"    client only {now['expired_client_only']} of {load.client_only}, server only {now['expired_server_only']} of {load.server_only}: none too many; {sums['duplicate'] - before['duplicate'] + dead.before['duplicate']} duplicates meanwhile")
    for meter in living:
        states = {peer["address"]: peer["state"] for peer in meter.coverage()["peers"]["peers"]}
        if states.get(f"{dead.address}:7070", "gone") not in ("gone", "unheard"):
            raise SystemExit(f"collectors: {meter.name} takes the killed meter for {states}")
    # What it has written outlives it.
    dead.start()
    kept = dead.calls()
    if not 0 < kept <= counted:
        raise SystemExit(f"collectors: the history of the killed meter has {kept} calls of {counted}")
    joined = sum(meter.calls() for meter in living) + kept
    expect("calls in the histories, with those that died with it", joined + counted - kept, now["joined"] // 2)
    say(f"ok: the histories have {joined} joined calls; {counted - kept} more died with the meter, since its last checkpoint")


def main():
    spangap, program = sys.argv[1:3]
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory(prefix="spangap-collectors-", ignore_cleanup_errors=True) as work:
        names = Path(work) / "hosts"
        names.write_text("")
        subprocess.run(["mount", "--bind", names, "/etc/hosts"], check=True)
        (Path(work) / "key").write_text(os.urandom(24).hex() + "\n")
        (Path(work) / "collector.yaml").write_text(CONFIGURATION)
        meters = [Meter(spangap, work, name, 11 + number) for number, name in enumerate(["first", "second", "third", "fourth"])]
        log = open(Path(work) / "collector.log", "wb")
        try:
            hosts(meters[:3])
            for meter in meters[:3]:
                meter.start()
            until("the meters hear each other", lambda: peers_hear_each_other(meters[:3]))
            collector = subprocess.Popen([program, "--config", Path(work) / "collector.yaml"], stdout=log, stderr=log)
            until("the Collector", lambda: "Everything is ready" in Path(log.name).read_text())
            say("three meters behind a Collector")
            load = Load(OTLP_HTTP, seed=1)
            before = added(meters[:3], meters[3], load)
            for meter in meters:
                meter.before = meter.spans()
            killed(meters, meters[1], collector, load, before)
        except BaseException:
            for meter in meters:
                if meter.process:
                    print(f"--- {meter.name}\n{(meter.folder / 'log').read_text()[-1500:]}\n{json.dumps(meter.coverage().get('peers'))}\n{meter.spans()}")
            print(f"--- Collector\n{Path(log.name).read_text()[-2500:]}")
            raise
        finally:
            subprocess.run(["umount", "/etc/hosts"], check=False)


if __name__ == "__main__":
    main()
