#!/usr/bin/env node
// The chart on a real node: `scripts/kubernetes/test.mjs`, after `scripts/kubernetes/node.sh up`. It installs the
// chart, runs a pair of pods, has a neighbour's packets processed on the exclusive CPU of one of them, and waits for
// what a user would: the case, its verdict, the pod by name, `isolate` there and back. Then it tests what happens to
// every cluster: a pod ends, an agent dies, the node is drained, the chart is upgraded and removed.
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { cpus } from "node:os";

const NODE = "scripts/kubernetes/node.sh";
const CHART = "deploy/helm/spangap";
const REMOTE = ["--namespace", "spangap"];
const VALUES = [
  "image.repository=spangap.test/spangap",
  "image.tag=1",
  "image.pullPolicy=Never",
  "agent.enabled=true",
  "meter.persistence.storageClassName=here",
  "meter.resources.requests.cpu=50m",
  // On two CPUs, 2 % is little next to a neighbour that floods every link of the node.
  "agent.cpu=25%",
  "meter.tokenSecret.name=tokens",
  "agent.tokenSecret.name=agent-token",
  "agent.allow={isolate}",
].flatMap((value) => ["--set", value]);
// Used by this node alone, for as long as it lives; the pods of pods.yaml send theirs with their spans.
const TOKENS = { ingest: "spans-of-the-pair", capture: "agent-of-the-node", change: "whoever-runs-this" };
// The fault is on the last CPU, which the static CPU manager assigns first on a node whose first CPU is reserved.
const OWN = cpus().length - 1;

const began = performance.now();
const seconds = () => `${((performance.now() - began) / 1000).toFixed(1)} s`;
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// Runs a command on the node; throws its output if it fails.
function node(...command) {
  const { status, stdout, stderr } = spawnSync(NODE, ["run", ...command], { encoding: "utf8", maxBuffer: 64 << 20 });
  if (status !== 0) throw new Error(`${command.join(" ")}: ended with ${status}: ${stderr || stdout}`);
  return stdout;
}
const kubectl = (...args) => node("kubectl", ...args);
const found = (...args) => JSON.parse(kubectl("get", ...args, "-o", "json"));
function apply(text) {
  const { status, stderr } = spawnSync(NODE, ["run", "kubectl", "apply", "-f", "-"], { input: text, encoding: "utf8" });
  if (status !== 0) throw new Error(`kubectl apply: ${stderr}`);
}
const meterAddress = () => found("service", "spangap-meter", ...REMOTE).spec.clusterIP;
function api(path, ...options) {
  const headers = ["Host: spangap-meter.spangap.svc:7070", `Authorization: Bearer ${TOKENS.change}`, "Content-Type: application/json"];
  const flags = ["--silent", "--show-error", "--max-time", "20", ...headers.flatMap((header) => ["--header", header])];
  return JSON.parse(node("curl", ...flags, ...options, `http://${meterAddress()}:7070/api/v1/${path}`));
}

// until(what, seconds, probe): the first truthy result of `probe`.
async function until(what, patience_s, probe) {
  const end = performance.now() + patience_s * 1000;
  let last = "";
  for (;;) {
    try {
      const answer = await probe();
      if (answer) return answer;
    } catch (error) {
      last = `: ${error.message}`;
    }
    if (performance.now() > end) throw new Error(`${what}: not within ${patience_s} s${last}`);
    await sleep(500);
  }
}
function holds(what, is) {
  if (!is) throw new Error(`it does not hold: ${what}`);
}
const failed = [];
async function step(name, act) {
  const from = performance.now();
  const said = await act();
  console.log(`ok ${((performance.now() - from) / 1000).toFixed(1).padStart(6)} s  ${name}${said ? `: ${said}` : ""}`);
}
// A step that no later one builds on: what fails is said, and fails the whole at its end.
async function apart(name, act) {
  try {
    await step(name, act);
  } catch (error) {
    failed.push(name);
    console.error(`FAILED    ${name}: ${error.message}`);
    keepCases();
  }
}
// The node goes, and its cases with it: the evidence behind a verdict is kept for whoever investigates.
function keepCases() {
  const kept = `${process.env.SPANGAP_KUBERNETES ?? `${process.cwd()}/target/kubernetes`}/cases`;
  const { status } = spawnSync(NODE, ["run", "sh", "-c", `rm -rf ${kept}; cp -r /var/lib/meter/cases ${kept}`]);
  if (status === 0) console.error(`kubernetes: the meter's cases: ${kept}`);
}

// Why pods do not run, as the cluster tells it.
function tellEvents() {
  for (const what of [["pods"], ["events", "--sort-by=.lastTimestamp"]]) {
    const { stdout } = spawnSync(NODE, ["run", "kubectl", "get", ...what, "--all-namespaces"], { encoding: "utf8" });
    console.error((stdout ?? "").trim().split("\n").slice(-20).join("\n"));
  }
}

const running = () =>
  found("pods", "--namespace", "pair").items.filter((pod) => !pod.metadata.deletionTimestamp && pod.status.phase === "Running");
const pod = (app) => running().find((one) => one.metadata.labels?.app === app || one.metadata.name === app);
const pair = (window = "5m") => api(`pairs?window=${window}`).pairs.find((row) => row.client === "tank" && row.server === "target");
const agent = () => api("agents").agents.find((one) => one.connected);
// The CPUs that the container of a pod may use, according to the kernel.
function cpusOf(one) {
  const id = one.status.containerStatuses[0].containerID.split("//")[1];
  return node("sh", "-c", `cat $(find /sys/fs/cgroup/cpuset/spangap-node -type d -name ${id})/cpuset.cpus`).trim();
}
// The node's end of a pod's link.
function deviceOf(name) {
  const inside = JSON.parse(node("nsenter", "--target", processes(`lab actor ${name}`)[0], "--net", "ip", "-json", "link", "show", "eth0"))[0];
  return JSON.parse(node("ip", "-json", "link", "show")).find((one) => one.ifindex === inside.link_index).ifname;
}
// Ids of the node's processes, oldest first, whose command line has these words; other programs of this machine may have them, too.
const processes = (words) =>
  execFileSync(NODE, ["processes"], { encoding: "utf8" })
    .trim()
    .split("\n")
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/cmdline`, "utf8").replaceAll("\0", " ").includes(words);
      } catch {
        return false;
      }
    })
    .sort((one, other) => one - other);
const steering = (device) => `/sys/class/net/${device}/queues/rx-0/rps_cpus`;
const read = (path) => node("cat", path).trim();
// Packets dropped because a CPU's backlog was full: some of the pair's may be among them, and then softirqs are not the
// only cause.
const thrownAway = () => read("/proc/net/softnet_stat").split("\n").reduce((sum, line) => sum + parseInt(line.split(/\s+/)[1], 16), 0);
const ms = (ns) => `${(ns / 1e6).toFixed(2)} ms`;
// Calls of the last full seconds by the spans of tank and target: what one in ten of them waited. One in a hundred waits for the
// machine now and then, without any fault.
async function p90(calls) {
  const from = Math.floor(Date.now() / 1000);
  return until(`${calls} calls in a minute of their own`, 150, () => {
    const row = api(`pairs?from=${Math.ceil(from / 60) * 60}&to=${Math.floor(Date.now() / 1000)}`).pairs.find((one) => one.server === "target");
    return row && row.calls >= calls && row.client_duration.p90_ns;
  });
}

async function main() {
  await step("the chart is installed", async () => {
    apply(`
apiVersion: v1
kind: Namespace
metadata: { name: spangap, labels: { pod-security.kubernetes.io/enforce: privileged } }
---
apiVersion: v1
kind: PersistentVolume
metadata: { name: here }
spec:
  capacity: { storage: 5Gi }
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: here
  local: { path: /var/lib/meter }
  nodeAffinity: { required: { nodeSelectorTerms: [{ matchExpressions: [{ key: kubernetes.io/hostname, operator: In, values: [node-1] }] }] } }
---
apiVersion: v1
kind: Secret
metadata: { name: tokens, namespace: spangap }
stringData: { tokens: ${JSON.stringify(Object.entries(TOKENS).map((one) => `${one.join(" ")}\n`).join(""))} }
---
apiVersion: v1
kind: Secret
metadata: { name: agent-token, namespace: spangap }
stringData: { token: ${TOKENS.capture} }
`);
    node("mkdir", "-p", "/var/lib/meter");
    node("helm", "install", "spangap", `${process.cwd()}/${CHART}`, ...REMOTE, ...VALUES);
    kubectl(...REMOTE, "rollout", "status", "statefulset/spangap-meter", "--timeout=180s");
    kubectl(...REMOTE, "rollout", "status", "daemonset/spangap-agent", "--timeout=180s");
  });
  await step("the agent has registered", async () => {
    const one = await until("an agent", 60, agent);
    holds(`it is called after its node: ${one.host_name}`, one.host_name === "node-1");
    holds(`it records packets and the scheduler: ${JSON.stringify(one.rings)}`, ["capture", "host-record"].every((wanted) => one.rings.some((ring) => ring.instrument === wanted)));
    holds(`nothing is out of its sight: ${JSON.stringify(one.lacks)}`, one.lacks.length === 0);
    return `${one.rings.map((ring) => ring.instrument).join(", ")}; ${one.containers} containers`;
  });
  await step("a pair of pods is measured", async () => {
    apply(execFileSync("cat", ["scripts/kubernetes/pods.yaml"], { encoding: "utf8" }));
    for (const name of ["target", "tank"]) kubectl("--namespace", "pair", "rollout", "status", `deployment/${name}`, "--timeout=120s");
    kubectl("--namespace", "pair", "wait", "--for=condition=Ready", "pod/audience", "--timeout=60s");
    holds(`the target has CPU ${OWN} to itself`, cpusOf(pod("target")) === String(OWN));
    const row = await until("calls of the pair", 60, () => { const one = pair(); return one?.calls > 500 && one; });
    return `${row.calls} calls, p99 ${ms(row.client_duration.p99_ns)}, gap p99 ${ms(row.gap.p99_ns)}`;
  });

  let quiet;
  await step("the pair has a baseline", async () => {
    // The meter learns the baseline from windows of five seconds; this takes more than a minute of them.
    const before = pair("1h").calls;
    await until("calls of more than a minute", 120, () => pair("1h").calls > before + 15_000);
    quiet = pair("1m").client_duration.p90_ns;
    return `p90 ${ms(quiet)}`;
  });

  let device;
  let flooded;
  let id;
  const before = thrownAway();
  await step("a neighbour's packets are handled on that CPU: the case opens by itself", async () => {
    apply(execFileSync("cat", ["scripts/kubernetes/flood.yaml"], { encoding: "utf8" }));
    kubectl("--namespace", "pair", "wait", "--for=condition=Ready", "pod/flood", "--timeout=60s");
    device = deviceOf("flood");
    node("sh", "-c", `echo ${(1 << OWN).toString(16)} >${steering(device)}`);
    const from = Date.now();
    const row = await until("a case", 90, () => {
      const one = api("cases").cases.find((each) => each.pair.server === "target");
      if (one) return one;
      const now = pair("1m");
      throw new Error(`${now.calls} calls, p50 ${ms(now.client_duration.p50_ns)}, p99 ${ms(now.client_duration.p99_ns)}; ${read("/proc/softirqs").match(/NET_RX.*/)[0]}`);
    });
    id = row.id;
    return `${((row.opened_unix_ms - from) / 1000).toFixed(1)} s after the fault, by ${row.trigger}`;
  });
  await apart("its verdict names the softirqs and the pods", async () => {
    const from = Date.now();
    const row = await until("a verdict", 150, () => {
      const one = api(`cases/${id}`);
      if (one.verdict) return one;
      throw new Error(JSON.stringify({ state: one.state, hosts: one.hosts, lacks: one.lacks, time_line: one.time_line, given_up: agent()?.given_up }));
    });
    for (const side of ["client", "server"]) holds(`the ${side}'s host is found by its pod: ${JSON.stringify(row.hosts[side])}`, row.hosts[side].rule?.startsWith("k8s.pod.uid"));
    const lost = thrownAway() - before;
    holds(`no packet was thrown away: ${lost}; ${JSON.stringify(row.verdict)}`, lost === 0);
    holds(`the culprit is softirq-on-cpu: ${JSON.stringify(row.verdict)}`, row.verdict.culprit === "softirq-on-cpu");
    return `${row.verdict.words} (${((Date.now() - from) / 1000).toFixed(1)} s)`;
  });
  // From here on the client runs next to the server if the node has two CPUs: on the other CPU it would be behind the packets once
  // they are moved there.
  if (cpus().length === 2) {
    const id = pod("tank").status.containerStatuses[0].containerID.split("//")[1];
    node("sh", "-c", `echo ${OWN} >$(find /sys/fs/cgroup/cpuset/spangap-node -type d -name ${id})/cpuset.cpus`);
    console.log(`   the client is put on CPU ${OWN}, too: there are two CPUs, and the packets get the other one`);
  }
  await apart("the remedy is tried from the meter: proven, and undone", async () => {
    const before = read(steering(device));
    const plan = api(`cases/${id}/experiment`);
    holds(`a plan: ${JSON.stringify(plan)}`, plan.plan && plan.lever === "isolate");
    api(`cases/${id}/experiment`, "--data", JSON.stringify({ plan: plan.plan }));
    const tried = await until("the end of the experiment", plan.takes_ms / 1000 + 120, () => api(`cases/${id}`).experiments?.find((one) => one.to_unix_ms));
    holds(`it is proven: ${JSON.stringify({ ...tried, plan: plan.words })}`, tried.outcome === "proven");
    holds("every undo was confirmed, and the mask is back", tried.undone && read(steering(device)) === before);
    return tried.words;
  });
  await step("the pair is slow", async () => {
    flooded = await until("a slow minute", 90, () => {
      const now = pair("1m").client_duration.p90_ns;
      holds(`p90 ${ms(now)} is three times ${ms(quiet)}`, now > 3 * quiet);
      return now;
    });
    return `p90 ${ms(flooded)}`;
  });
  await step("isolate shows the pod, and moves the packets off its CPU", async () => {
    const before = read(steering(device));
    const shown = node("spangap", "isolate", "show", "--interface", device);
    holds(`it names the pod: ${shown}`, /target/.test(shown) || shown.includes(pod("target").metadata.uid));
    node("spangap", "isolate", "plan", "--interface", device, "--net-cpus", "cpu:0", "--no-cpusets", "--write", "/run/plan.json");
    node("spangap", "isolate", "apply", "/run/plan.json", "--confirm-within", "10m", "--journal", "/run/isolate");
    holds(`another mask than ${before}`, read(steering(device)) !== before);
    const apart = await p90(2000);
    holds(`p90 ${ms(apart)} is a third of ${ms(flooded)}`, apart < flooded / 3);
    node("spangap", "isolate", "rollback", "--journal", "/run/isolate");
    holds("the old mask is back", read(steering(device)) === before);
    return `p90 ${ms(flooded)} -> ${ms(apart)}; mask ${before} is back`;
  });
  kubectl("--namespace", "pair", "delete", "pod/flood", "--wait=false");

  await step("a pod is made anew: its calls join, and a case finds it on its node", async () => {
    const old = pod("tank").metadata.uid;
    kubectl("--namespace", "pair", "delete", "pod", pod("tank").metadata.name);
    await until("another pod", 120, () => pod("tank") && pod("tank").metadata.uid !== old);
    const made = performance.now();
    const { uid } = pod("tank").metadata;
    const before = pair("1h").calls;
    await until("calls of it", 150, () => pair("1h").calls > before + 500);
    // The slowest calls of the last minutes may still be the former pod's: a case is asked for until one is of this pod.
    const found = await until("a case whose client is the new pod", 150, () => {
      const asked = api("cases", "--data", JSON.stringify({ pair: { client: "tank", server: "target" } }));
      const { hosts } = asked.id ? api(`cases/${asked.id}`) : {};
      if (hosts?.client.rule?.includes(uid)) return hosts;
      throw new Error(JSON.stringify({ asked, hosts }));
    });
    return `${((performance.now() - made) / 1000).toFixed(1)} s until its node is found by ${found.client.rule}`;
  });
  await step("the agent is killed: another one comes, and says where it was cut", async () => {
    const since = agent().since_unix_ms;
    for (const pid of processes("spangap agent")) process.kill(Number(pid), "SIGKILL");
    await until("an agent", 90, () => { const one = agent(); return one && one.since_unix_ms > since; });
  });
  await step("the node is drained and comes back: the history is kept", async () => {
    const before = pair("1h").calls;
    kubectl("drain", "node-1", "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=120s");
    kubectl("uncordon", "node-1");
    kubectl(...REMOTE, "rollout", "status", "statefulset/spangap-meter", "--timeout=120s");
    const row = await until("the pair", 90, () => { const one = pair("1h"); return one?.calls > before && one; });
    return `${before} calls before, ${row.calls} after`;
  });
  await step("the chart is upgraded", async () => {
    node("helm", "upgrade", "spangap", `${process.cwd()}/${CHART}`, ...REMOTE, ...VALUES, "--set", "agent.memory=192MiB", "--set", "meter.config.join-ttl=10s");
    kubectl(...REMOTE, "rollout", "status", "statefulset/spangap-meter", "--timeout=120s");
    kubectl(...REMOTE, "rollout", "status", "daemonset/spangap-agent", "--timeout=120s");
    await until("an agent with the new limit", 60, () => agent()?.memory_limit_bytes === 192 << 20);
  });
  await step("pods that say nothing of themselves are named by the API", async () => {
    node("helm", "upgrade", "spangap", `${process.cwd()}/${CHART}`, ...REMOTE, ...VALUES, "--set", "meter.config.by=pod", "--set", "meter.kubernetes.enabled=true");
    kubectl(...REMOTE, "rollout", "status", "statefulset/spangap-meter", "--timeout=120s");
    kubectl("label", "node", "node-1", "topology.kubernetes.io/zone=here", "--overwrite");
    // What an SDK knows by itself: the client its host name, the server its address.
    const attributes = { tank: "host.name=$(POD_NAME)", target: "k8s.pod.ip=$(POD_IP)" };
    for (const [app, text] of Object.entries(attributes)) {
      const template = { spec: { containers: [{ name: app, env: [{ name: "OTEL_RESOURCE_ATTRIBUTES", value: text }] }] } };
      kubectl("--namespace", "pair", "patch", "deployment", app, "--patch", JSON.stringify({ spec: { template } }));
      kubectl("--namespace", "pair", "rollout", "status", `deployment/${app}`, "--timeout=120s");
    }
    const row = await until("a row of these two pods", 120, () => {
      const { pairs } = api("pairs?window=5m");
      const wanted = ["tank", "target"].map((app) => `${app}@${pod(app).metadata.name}`);
      const one = pairs.find((row) => row.client === wanted[0] && row.server === wanted[1]);
      if (!one) throw new Error(`${wanted.join(" -> ")} is not among ${pairs.map((each) => `${each.client} -> ${each.server}`).join(", ")}; ${JSON.stringify(api("coverage").kubernetes)}`);
      return one.calls > 200 && one;
    });
    const { kubernetes } = api("coverage");
    holds(`the API answers: ${JSON.stringify(kubernetes)}`, kubernetes.problems.length === 0 && kubernetes.nodes === 1);
    holds(`its pods are found by name and address: ${JSON.stringify(kubernetes)}`, kubernetes.named_by_name >= 2);
    // The meter's right to ask is taken away: it says so, and names nobody new.
    kubectl("delete", "clusterrolebinding", "spangap-meter-spangap");
    const refused = await until("a refusal in the coverage", 120, () => api("coverage").kubernetes.problems.find((problem) => problem.includes("forbidden")));
    return `${row.client} -> ${row.server}, ${row.calls} calls; then: ${refused}`;
  });
  await step("it is removed, and leaves its volume alone behind", async () => {
    kubectl("delete", "namespace", "pair", "--timeout=60s");
    node("helm", "uninstall", "spangap", ...REMOTE, "--wait");
    kubectl(...REMOTE, "delete", "secret", "tokens", "agent-token");
    await until("an empty namespace", 60, () => found("pods", ...REMOTE).items.length === 0);
    const kinds = kubectl("api-resources", "--verbs=list", "--namespaced", "-o", "name").trim().split("\n");
    const left = () => {
      const all = kinds.filter((kind) => !kind.startsWith("events")).flatMap((kind) => found(kind, ...REMOTE).items.map((one) => `${kind} ${one.metadata.name}`));
      return all.filter((one) => !/^(serviceaccounts default|configmaps kube-root-ca.crt)$/.test(one));
    };
    const ours = await until("nothing but the volume's claim", 60, () => {
      const now = left();
      if (now.length !== 1 || !now[0].startsWith("persistentvolumeclaims")) throw new Error(now.join(", "));
      return now;
    });
    const roles = ["clusterroles", "clusterrolebindings"].flatMap((kind) => found(kind).items.map((one) => `${kind} ${one.metadata.name}`));
    holds(`no right is left: ${roles}`, !roles.some((one) => one.includes("spangap")));
    const still = processes("/usr/bin/spangap");
    holds(`no process is left: ${still}`, still.length === 0);
    return ours[0];
  });
}

try {
  await main();
  if (failed.length > 0) throw new Error(`${failed.length} steps failed: ${failed.join("; ")}`);
  console.log(`kubernetes: all held, ${seconds()}`);
} catch (error) {
  console.error(`kubernetes: ${error.message} (after ${seconds()})`);
  tellEvents();
  if (failed.length === 0) keepCases();
  process.exit(1);
}
