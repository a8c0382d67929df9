"""A broker and meters, as processes of the test."""

import json
import os
import signal
import socket
import subprocess
import time
import urllib.request
import uuid
from pathlib import Path


def until(what, condition, seconds=90):
    """Waits for a condition; its last answer is returned."""
    end = time.monotonic() + seconds
    while True:
        try:
            answer = condition()
        except (OSError, ValueError, KeyError) as error:
            answer, what_else = None, error
        if answer:
            return answer
        if time.monotonic() > end:
            raise SystemExit(f"kafka: it did not come within {seconds} s: {what}")
        time.sleep(0.1)


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


PASSWORD = "a-secret-of-the-test"


class Broker:
    """Kafka itself: one process that is broker and controller."""

    def __init__(self, jars, work):
        self.jars, self.work = jars, Path(work)
        self.plain, self.tls, self.sasl, self.sasl_tls, controller = free_ports(5)
        self.certificates()
        users = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_meter="{PASSWORD}";'
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        lines = [
            "process.roles=broker,controller",
            "node.id=1",
            f"controller.quorum.bootstrap.servers=127.0.0.1:{controller}",
            "controller.listener.names=CONTROLLER",
            f"listeners=CONTROLLER://127.0.0.1:{controller},OPEN://127.0.0.1:{self.plain},TLS://127.0.0.1:{self.tls},"
            f"SASL://127.0.0.1:{self.sasl},SASLTLS://127.0.0.1:{self.sasl_tls}",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,OPEN:PLAINTEXT,TLS:SSL,SASL:SASL_PLAINTEXT,SASLTLS:SASL_SSL",
            "inter.broker.listener.name=OPEN",
            "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            f"ssl.keystore.type=PEM\nssl.keystore.location={self.work}/broker.pem",
            f"log.dirs={self.work}/log",
            "offsets.topic.num.partitions=2\noffsets.topic.replication.factor=1",
            "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1",
            "share.coordinator.state.topic.replication.factor=1\nshare.coordinator.state.topic.min.isr=1",
            "group.initial.rebalance.delay.ms=0",
            "auto.create.topics.enable=false",
        ]
        for listener in ["sasl", "sasltls"]:
            lines.append(f"listener.name.{listener}.plain.sasl.jaas.config={users}")
            lines += [f"listener.name.{listener}.scram-sha-{bits}.sasl.jaas.config={scram}" for bits in (256, 512)]
        self.settings = self.work / "server.properties"
        self.settings.write_text("\n".join(lines) + "\n")
        self.java("kafka.tools.StorageTool", "format", "--standalone", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", self.settings).wait()
        self.process = None
        self.start()

    def certificates(self):
        def openssl(*words):
            subprocess.run(["openssl", *words], cwd=self.work, check=True, capture_output=True)

        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test authority")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "broker.key", "-out", "broker.csr", "-subj", "/CN=127.0.0.1")
        (self.work / "names").write_text("subjectAltName=IP:127.0.0.1\n")
        openssl("x509", "-req", "-in", "broker.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-out", "broker.crt", "-days", "2", "-extfile", "names")
        (self.work / "broker.pem").write_text((self.work / "broker.key").read_text() + (self.work / "broker.crt").read_text())
        (self.work / "password").write_text(PASSWORD + "\n")

    def java(self, main, *words):
        log = open(self.work / "broker.log", "ab")
        command = ["java", "-Xmx512m", "-cp", f"{self.jars}/*", main, *map(str, words)]
        return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.work)

    def address(self):
        return f"127.0.0.1:{self.plain}"

    def start(self):
        self.process = self.java("kafka.Kafka", self.settings)

        def listens():
            if self.process.poll() is not None:
                tail = (self.work / "broker.log").read_text(errors="replace")[-3000:]
                raise SystemExit(f"kafka: the broker ended:\n{tail}")
            socket.create_connection(("127.0.0.1", self.plain), 1).close()
            return True

        until("the broker", listens)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Meter:
    """`spangap meter --kafka`, with a history of its own."""

    def __init__(self, spangap, work, name, settings):
        self.spangap, self.name = spangap, name
        self.folder = Path(work) / f"{name}-{uuid.uuid4().hex[:6]}"
        self.folder.mkdir()
        self.settings = self.folder / "kafka.toml"
        self.settings.write_text(settings)
        self.process = None
        self.http = None
        self.library = None
        self.options = ["--join-ttl", "5s"]
        self.patience_s = 10

    def start(self, kafka=True):
        ports = ["--http", "127.0.0.1:0", "--otlp-grpc", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0"]
        source = ["--kafka", str(self.settings)] if kafka else []
        out = self.folder / "out"
        command = [self.spangap, "meter", "--data", str(self.folder / "data"), *self.options, *ports, *source]
        with open(out, "wb") as stdout, open(self.folder / "log", "ab") as log:
            more = {"LD_LIBRARY_PATH": self.library} if self.library else {}
            self.process = subprocess.Popen(command, stdout=stdout, stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, **more})
        until(f"meter {self.name}", lambda: "ready" in out.read_text() or self.ended())
        self.http = next(line.split()[1] for line in out.read_text().splitlines() if line.startswith("page"))
        return self

    def ended(self):
        if self.process.poll() is not None:
            raise SystemExit(f"kafka: meter {self.name} ended:\n{self.log()[-3000:]}")

    def log(self):
        return (self.folder / "log").read_text(errors="replace")

    def get(self, path):
        with urllib.request.urlopen(self.http + path, timeout=self.patience_s) as answer:
            text = answer.read().decode()
            return json.loads(text) if path.startswith("api") else text

    def kafka(self):
        return self.get("api/v1/coverage").get("kafka", {})

    def partitions(self):
        return {each["partition"] for each in self.kafka()["partitions"]} if self.process else set()

    def has_read_all(self):
        kafka = self.kafka()
        return all(each["lag"] == 0 and not each["is_reading_back"] for each in kafka["partitions"])

    def pairs(self):
        now = int(time.time())
        return self.get(f"api/v1/pairs?from={now - 86400}&to={now + 120}")["pairs"]

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process = None

    def signal(self, which):
        os.kill(self.process.pid, which)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=150)
        self.process = None
        if status != 0:
            raise SystemExit(f"kafka: meter {self.name} ended with {status}:\n{self.log()[-3000:]}")
