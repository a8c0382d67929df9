"""The meter on Kafka itself: `test.py SPANGAP JARS`. Three meters of a group, each killed in turn, the broker too; a partition is
added, a member taken for dead; the sum over the meters' histories is compared with what the producer wrote, to the call."""

import collections
import signal
import sys
import tempfile
import time
from pathlib import Path

import collector as of_collector
import confluent_kafka
import fleet as of_fleet
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from load import Load
from otlp import as_json, protobuf
from stage import PASSWORD, Broker, Meter, until

RATE = 200
FAST = '[librdkafka]\n"session.timeout.ms" = "6000"\n"heartbeat.interval.ms" = "1000"\n"reconnect.backoff.max.ms" = "1000"\n"topic.metadata.refresh.interval.ms" = "2000"\n'
begun = time.monotonic()


def say(text):
    print(f"{time.monotonic() - begun:6.1f} s  {text}", flush=True)


def settings(brokers, topic, group, more=""):
    return f'brokers = ["{brokers}"]\ntopic = "{topic}"\ngroup = "{group}"\nstart = "earliest"\ndisorder-s = 60\n{more}{FAST}'


def total(meters):
    """Counts and sums of every pair over the meters' histories."""
    sums = collections.defaultdict(lambda: {"calls": 0, "lost_ns_total": 0, "negative": 0})
    for meter in meters:
        for row in meter.pairs():
            for key in ("calls", "lost_ns_total", "negative"):
                sums[row["client"], row["server"]][key] += row[key]
    return dict(sums)


def compare(what, sums, truth):
    if sums != truth:
        for pair in sorted(set(sums) | set(truth)):
            print("   ", pair, "counted", sums.get(pair), "truth", truth.get(pair))
        raise SystemExit(f"kafka: {what}: the sums differ from the truth")
    calls = sum(each["calls"] + each["negative"] for each in truth.values())
    say(f"ok: {what}: {calls} calls of {len(truth)} pairs, every count and sum equals the truth")


def create(admin, topic, partitions):
    until(f"topic {topic}", lambda: admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result() is None)


def kills(spangap, broker, admin, work):
    create(admin, "spans", 4)
    load = Load(broker.address(), "spans", 4, seed=1)
    meters = [Meter(spangap, work, f"meter{i}", settings(broker.address(), "spans", "three")).start() for i in range(3)]

    def shared(count, of=meters):
        parts = [meter.partitions() for meter in of]
        return set().union(*parts) == set(range(count)) and sum(map(len, parts)) == count and all(parts)

    load.start(RATE)
    until("all partitions are shared", lambda: shared(4))
    until("calls", lambda: load.calls > 5 * RATE)
    say("three meters share four partitions")
    for meter in meters:
        meter.kill()
        others = [other for other in meters if other is not meter]
        until("the others have its partitions", lambda: shared(4, others))
        written = load.calls
        until("calls meanwhile", lambda: load.calls > written + RATE)
        meter.start()
        until("it has partitions again", lambda: shared(4))
        say(f"{meter.name}: killed, others went on, it returned")
    for meter in meters:
        meter.kill()
        meter.start()
    until("all partitions are shared", lambda: shared(4))
    say("all three killed and started at once, one after the other")
    broker.kill()
    time.sleep(3)
    broker.start()
    until("all partitions are shared", lambda: shared(4))
    say("the broker was killed, and returned")
    broker.kill()
    meters[0].kill()
    broker.start()
    meters[0].start()
    until("all partitions are shared", lambda: shared(4))
    say("the broker and a meter were killed at once")
    admin.create_partitions([NewPartitions("spans", 5)])["spans"].result()
    load.partitions = 5
    until("the new partition is read", lambda: shared(5))
    say("a partition was added")
    meters[1].signal(signal.SIGSTOP)
    others = [meters[0], meters[2]]
    until("the others have its partitions", lambda: shared(5, others))
    meters[1].signal(signal.SIGCONT)
    until("it has partitions again", lambda: shared(5))
    say("a meter was stopped until the group took it for dead, and went on")
    meters[2].stop()
    until("the others have its partitions", lambda: shared(5, meters[:2]))
    meters[2].start()
    until("it has partitions again", lambda: shared(5))
    say("a meter left and returned")
    load.finish()
    say(f"{load.messages} messages written, {load.poison} of them poison")
    until("all is read", lambda: all(meter.has_read_all() for meter in meters))
    # A debt is found a few seconds after somebody else has committed.
    end = time.monotonic() + 30
    while total(meters) != load.truth and time.monotonic() < end:
        time.sleep(0.5)
    compare("three meters of a group", total(meters), load.truth)
    for meter in meters:
        kafka = meter.kafka()
        say(f"{meter.name}: {kafka['rebalances']} rebalances, {kafka['commits']} commits, {kafka['differing_read_backs']} read-backs differ, {kafka['undecoded']} passed over")
        meter.stop()
    for meter in meters:
        meter.start(kafka=False)
    compare("their histories after the end", total(meters), load.truth)
    for meter in meters:
        meter.stop()
    alone = Meter(spangap, work, "alone", settings(broker.address(), "spans", "again")).start()
    until("all is read again", lambda: alone.partitions() == set(range(5)) and alone.has_read_all())
    compare("replay from the start by another group", total([alone]), load.truth)
    lag = [line for line in alone.get("metrics").splitlines() if line.startswith("spangap_kafka_lag_messages")]
    assert len(lag) == 5 and all(line.endswith(" 0") for line in lag), lag
    assert alone.kafka()["undecoded"] == load.poison, (alone.kafka(), load.poison)
    assert "partition" in alone.kafka()["last_undecoded"]
    alone.stop()
    # Set back by hand: what the history has is not counted twice.
    hand = Consumer({"bootstrap.servers": broker.address(), "group.id": "again"})
    hand.commit(offsets=[TopicPartition("spans", partition, 0) for partition in range(5)], asynchronous=False)
    hand.close()
    alone.start()
    until("it has read on", lambda: alone.partitions() == set(range(5)) and alone.has_read_all())
    assert alone.kafka()["set_back_partitions"] == 5, alone.kafka()
    compare("a group set back by hand", total([alone]), load.truth)
    alone.stop()


def gone(spangap, broker, admin, work):
    """The broker is gone when the meter is asked to stop: it does not wait for it, and what it had not written it counts later."""
    create(admin, "gone", 2)
    load = Load(broker.address(), "gone", 2, seed=3)
    # With the group's usual patience of 45 s.
    meter = Meter(spangap, work, "left", settings(broker.address(), "gone", "left").removesuffix(FAST)).start()
    load.start(RATE)
    until("calls", lambda: load.calls > 3 * RATE)
    load.finish()
    until("all is read", lambda: meter.partitions() == {0, 1} and meter.has_read_all())
    broker.kill()
    until("the meter says so", lambda: meter.kafka().get("problem"))
    began = time.monotonic()
    meter.stop()
    took = time.monotonic() - began
    say(f"the broker was gone: the meter ended {took:.0f} s after it was asked to")
    # The library itself would wait for 45 s, for each of two answers.
    assert took < 40, took
    broker.start()
    meter.start()
    until("all is read", lambda: meter.partitions() == {0, 1} and meter.has_read_all())
    end = time.monotonic() + 30
    while total([meter]) != load.truth and time.monotonic() < end:
        time.sleep(0.5)
    compare("a meter that stopped without its broker", total([meter]), load.truth)
    meter.stop()


def newer_library(work):
    """The librdkafka that came with the producer."""
    libraries = Path(confluent_kafka.__file__).parent.with_name("confluent_kafka.libs")
    link = Path(work) / "newer" / "librdkafka.so.1"
    if not link.exists():
        link.parent.mkdir()
        link.symlink_to(next(libraries.glob("librdkafka*")))
    return f"{link.parent}:{libraries}"


def add_user(admin):
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        user = UserScramCredentialUpsertion("meter", ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        admin.alter_user_scram_credentials([user])["meter"].result()


def forms(spangap, broker, admin, work):
    add_user(admin)
    tls = f'[tls]\nca = "{work}/ca.pem"\n'
    sasl = lambda mechanism: f'[sasl]\nmechanism = "{mechanism}"\nusername = "meter"\npassword-file = "{work}/password"\n'
    cases = [
        ("none", protobuf, broker.plain, "", None),
        ("gzip", protobuf, broker.tls, tls, None),
        ("snappy", as_json, broker.sasl, "", "PLAIN"),
        ("lz4", protobuf, broker.sasl_tls, tls, "SCRAM-SHA-256"),
        ("zstd", as_json, broker.sasl_tls, tls, "SCRAM-SHA-512"),
        ("zstd", protobuf, broker.sasl_tls, tls, "PLAIN"),
    ]
    for number, (codec, encode, port, security, mechanism) in enumerate(cases):
        security += sasl(mechanism) if mechanism else ""
        topic = f"forms{number}"
        create(admin, topic, 2)
        load = Load(broker.address(), topic, 2, seed=number, encode=encode, codec=codec)
        load.burst(300)
        encoding = 'encoding = "otlp_json"\n' if encode is as_json else ""
        meter = Meter(spangap, work, topic, settings(f"127.0.0.1:{port}", topic, "forms", encoding + security))
        # Debian 12's librdkafka has a SCRAM that Kafka 4 refuses.
        meter.library = newer_library(work) if mechanism and "SCRAM" in mechanism else None
        meter.start()
        until("all is read", lambda: meter.partitions() == {0, 1} and meter.has_read_all() and total([meter]) == load.truth)
        words = [codec, encode.__name__, "TLS" if "[tls]" in security else "plain text", mechanism]
        compare(", ".join(filter(None, words)), total([meter]), load.truth)
        assert PASSWORD not in meter.log(), meter.log()
        meter.stop()


def apart(spangap, broker, admin, work):
    create(admin, "apart", 4)
    load = Load(broker.address(), "apart", 4, seed=9, apart=True)
    load.burst(8000)
    meter = Meter(spangap, work, "apart", settings(broker.address(), "apart", "apart")).start()
    until("all is read", lambda: len(meter.partitions()) == 4 and meter.has_read_all())
    notes = until("the note", lambda: [note for note in meter.get("api/v1/coverage")["notes"] if "DIFFERENT PARTITIONS" in note])
    assert "partition_traces_by_id" in notes[0] and "DIFFERENT PARTITIONS" in meter.log(), notes
    kafka = meter.kafka()
    share = kafka["mates_apart"] / (kafka["mates_apart"] + kafka["mates_together"])
    assert 0.65 < share < 0.85, kafka
    say(f"ok: halves in different partitions are recognised: {share:.0%} of sampled calls, 75 % in truth")
    meter.stop()


def collector(spangap, broker, admin, work):
    program = Path("target/collector")
    if not program.exists():
        say(f"not run: the Collector's exporter: there is no {program}; scripts/kafka.sh builds it where there is go")
        return
    make = lambda topic, partitions: create(admin, topic, partitions)
    of_collector.through_collector(program, spangap, broker, work, make, settings, total, compare)


def rate(spangap, broker, admin, work):
    of_collector.rate(spangap, broker, work, lambda topic, partitions: create(admin, topic, partitions), settings, say)


def fleet(spangap, broker, admin, work):
    of_fleet.day(spangap, broker, lambda topic, partitions: create(admin, topic, partitions), work, say)


def main():
    spangap, jars = sys.argv[1:3]
    wanted = sys.argv[3:] or ["forms", "apart", "collector", "kills", "gone"]
    with tempfile.TemporaryDirectory(prefix="spangap-kafka-", ignore_cleanup_errors=True) as work:
        broker, meters = None, []
        started = Meter.start
        Meter.start = lambda self, kafka=True: (meters.append(self), started(self, kafka))[1]
        try:
            broker = Broker(jars, work)
            say("the broker is there")
            admin = AdminClient({"bootstrap.servers": broker.address()})
            for part in (forms, apart, collector, rate, kills, gone, fleet):
                if part.__name__ in wanted:
                    part(spangap, broker, admin, work)
        except BaseException:
            for meter in meters:
                print(f"--- {meter.name}\n{meter.log()[-2500:]}")
            raise
        finally:
            for meter in meters:
                if meter.process:
                    meter.kill()
            if broker and broker.process:
                broker.kill()


if __name__ == "__main__":
    main()
