// The checks of each case of scripts/lab_machine/cases.sh: [what, (case) => [whether it holds, figures]]; `undefined`
// if this machine cannot tell.

/** The document that a run printed. */
function json(at, name, part = "output") {
  const text = at.run(name).parts[part]?.join("\n") ?? "";
  try {
    return JSON.parse(text);
  } catch (error) {
    const said = at.run(name).parts.error?.filter((line) => line.trim()).at(-1);
    throw new Error(`${name}: no JSON: ${error.message}${said ? `; it said: ${said}` : ""}`);
  }
}

const ms = (ns) => `${(ns / 1e6).toFixed(2)} ms`;

/**
 * Every claim of the truth holds. Claims that something takes at most a given time may fail on a busy emulated
 * machine, whatever the lab does, and then prove nothing.
 */
const acted = ["what it claims of itself holds", (at) => {
  const truth = json(at, "run");
  const said = (claim) => `${claim.holds ? "" : "NOT: "}${claim.what}: ${Math.round(claim.measured)}, ${claim.expected}`;
  const wrong = truth.proof.filter((claim) => !claim.holds);
  const slow = (claim) => claim.expected.startsWith("at most") && /, ns$|^calls over/.test(claim.what);
  if (wrong.length > 0 && wrong.every(slow)) return [undefined, `the machine is too slow: ${truth.proof.map(said).join("; ")}`];
  return [truth.acted === true && truth.proof.length > 0, truth.proof.map(said).join("; ")];
}];

/** What the line consists of; the README says so, too. */
const madeOf = (kind, words) => [`its line is of ${kind}`, (at) => {
  const readme = at.run("machine").parts.error?.join("\n") ?? "";
  const { line } = json(at, "run");
  const kernel = json(at, "machine");
  return [line === kind && readme.includes(words) && kernel.netem === true, `line ${line}, netem ${kernel.netem}`];
}];
const byNetem = madeOf("netem", "a line of the kernel's netem");
const byTun = madeOf("tun", "a line of TUN devices");

/** During the run, netem was on both ends of the path with this delay, and packets went through it. */
const queues = (to) => ["netem is on the path, towards either host, and passes all packets", (at) => {
  const seen = Object.entries(to).map(([side, delay]) => {
    const looks = at.fact("path").filter(([of]) => of === side).flatMap(([, ...words]) => JSON.parse(words.join(" ")));
    const last = looks.filter((one) => one.kind === "netem").at(-1);
    const s = last?.options.delay?.delay ?? 0;
    const right = last !== undefined && Math.abs(s - delay) < 1e-6 && last.packets > 0 && last.drops === 0;
    return [right, `to the ${side}: ${ms(s * 1e9)}, ${last?.packets} packets, ${last?.drops} lost`];
  });
  return [seen.every(([right]) => right), seen.map(([, words]) => words).join("; ")];
}];

/** Without netem there is no path. */
const noPath = ["there is no path of netem", (at) => [at.fact("path").length === 0, `${at.fact("path").length} looks that saw one`]];

/** The minimum and the median that all calls took on a leg of `dissect`, in ns. */
function leg(document, name) {
  const all = document.calls.flatMap((call) => call.legs.filter((one) => one.leg === name)).map((one) => one.ns);
  const sorted = all.sort((a, b) => a - b);
  return { fastest: sorted[0] ?? NaN, middle: sorted[sorted.length >> 1] ?? NaN };
}

/**
 * Between the taps, no call is faster than the line, and the fastest is hardly slower; before the sender's tap, it
 * takes far less. The fastest call is decisive, because everything that others take beyond it is due to the
 * emulation.
 */
const onTheWire = (there, back) => ["the delay is on the wire: between the taps, and not before the sender's", (at) => {
  const document = json(at, "dissect");
  const wires = [["request_wire", there], ["response_wire", back]];
  const longer = wires.map(([name, delay]) => leg(document, name).fastest - delay * 1e6);
  const before = ["client_send", "server_send"].map((name) => leg(document, name).fastest);
  const told = [...wires.map(([name]) => name), "client_send", "server_send"].map((name) => [name, leg(document, name)]);
  const words = told.map(([name, took]) => `${name} ${ms(took.fastest)} (half of them ${ms(took.middle)})`);
  const holds = longer.every((ns) => ns >= 0 && ns < 5e6) && before.every((ns) => ns < 1e6);
  return [holds, `the fastest of ${document.calls.length} calls: ${words.join(", ")}`];
}];

/** How often no trace of any run was found after its end. */
const nothingLeft = (looks) => ["nothing is left", (at) => {
  const [looked, left] = [at.fact("looked").length, at.fact("left")];
  return [looked === looks && left.length === 0, left.map((words) => words.join(" ")).join("; ") || `${looked} looks`];
}];

/** The control group of a run, seen from outside: its limit, how often it was throttled, how many processes were in
 * it. */
function group(at) {
  return at.fact("group").map(([quota, period, , throttled, , processes]) => ({
    limit: `${quota} ${period}`, throttled: Number(throttled), processes: Number(processes),
  }));
}
const limited = ["its control group is of version 2, with a limit and processes in it", (at) => {
  const seen = group(at);
  const limits = [...new Set(seen.map((one) => one.limit))];
  const most = Math.max(0, ...seen.map((one) => one.processes));
  const version = json(at, "machine").cgroup_version;
  const limit = limits.includes("30000 100000");
  return [version === 2 && limit && most > 0, `version ${version}; cpu.max ${limits.join(", then ")}; at most ${most} processes`];
}];
const throttled = ["the kernel held it back", (at) => {
  const counts = group(at).map((one) => one.throttled).filter(Number.isFinite);
  return [(counts.at(-1) ?? 0) > 0, `nr_throttled ${counts.join(" ")}`];
}];

/** When the run was killed, something existed at each of these moments. */
const wasThere = ["when it is killed, it is there", (at) => {
  const there = at.fact("there");
  return [there.length === 3 && there.every(([, found]) => Number(found) > 0) && at.fact("late").length === 0,
    there.map(([moment, found]) => `${moment}: ${found} things found`).join("; ")];
}];
const keptUntilCleaned = ["without its keeper all of it stays until `lab clean`", (at) => {
  const before = at.fact("before");
  const removed = before.map(([moment]) => json(at, `clean ${moment}`).runs.flatMap((run) => run.removed));
  const spaces = removed.map((all) => all.filter((one) => one.made === "namespace").map((one) => one.name.split("-").at(-1)));
  const words = before.map(([moment, found], number) => `${moment}: ${found} things found, removed ${spaces[number].join(" ")}`);
  return [before.length === 3 && spaces.every((names) => names.includes("path")), words.join("; ")];
}];

export const checks = {
  delay: [byNetem, acted, queues({ client: 0.02, server: 0.02 }),
    onTheWire(20, 20), nothingLeft(1)],
  "delay-near-miss": [byNetem, acted, queues({ client: 0, server: 0 }), nothingLeft(1)],
  jitter: [byTun, noPath, acted, nothingLeft(1)],
  asymmetry: [byNetem, acted, queues({ client: 0.002, server: 0.04 }), onTheWire(40, 2), nothingLeft(1)],
  "clock-near-miss": [byNetem, acted, queues({ client: 0.015, server: 0.015 }), nothingLeft(1)],
  "per-call": [byNetem, acted, queues({ client: 0.01, server: 0.01 }), nothingLeft(1)],
  flow: [byNetem, acted, queues({ client: 0.01, server: 0.01 }), nothingLeft(1)],
  quota: [limited, throttled, acted, nothingLeft(1)],
  "quota-near-miss": [limited, acted, nothingLeft(1)],
  killed: [wasThere, ["its keeper undoes it", (at) => [at.fact("still").length === 0, "within two minutes"]], nothingLeft(3)],
  cleaned: [wasThere, keptUntilCleaned, nothingLeft(3)],
};
