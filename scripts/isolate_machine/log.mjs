// The log of a virtual machine of scripts/isolate_machine.sh, as values.

/** CPUs in a list such as `0,3-5`. */
export function cpus(list) {
  const found = new Set();
  for (const part of list.split(",").filter(Boolean)) {
    const [from, to = from] = part.split("-").map(Number);
    for (let cpu = from; cpu <= to; cpu += 1) found.add(cpu);
  }
  return found;
}

/** `path:value` lines as a map. A path may contain colons; a value contains none here, except that of
 * /proc/PID/cgroup. */
function values(lines) {
  return new Map(
    lines.map((line) => {
      const at = line.indexOf(":");
      return [line.slice(0, at), line.slice(at + 1)];
    }),
  );
}

/** One look at the machine. */
class Look {
  constructor(name) {
    this.name = name;
    this.parts = {};
  }

  values(part) {
    return values(this.parts[part] ?? []);
  }

  get uptime() {
    return Number(this.parts.uptime[0].split(" ")[0]);
  }

  /** Names of interrupts, with their counts by CPU. */
  get interrupts() {
    const found = new Map();
    for (const line of this.parts.interrupts.slice(1)) {
      const [number, ...rest] = line.trim().split(/\s+/);
      const counts = rest.slice(0, 8).map(Number);
      if (counts.every((count) => count >= 0)) found.set(`${number.replace(":", "")} ${rest.at(-1)}`, counts);
    }
    return found;
  }

  /** Jiffies of user and nice time, by CPU. */
  get user() {
    const rows = this.parts.cpu.map((line) => line.split(/\s+/)).filter(([name]) => name !== "cpu");
    return rows.map(([, user, nice]) => Number(user) + Number(nice));
  }

  /** Scheduling domains of each CPU, smallest first: which CPUs are balanced with each other. */
  get domains() {
    const found = new Map();
    let cpu;
    for (const line of this.parts.domains) {
      if (line.startsWith("cpu")) found.set((cpu = Number(line.slice(3))), "");
      else found.set(cpu, `${found.get(cpu)} ${line}`.trim());
    }
    return found;
  }

  /** Tasks by id. */
  get tasks() {
    const found = new Map();
    for (const line of this.parts.tasks) {
      const [, pid, key, value] = /^\/proc\/(\d+)\/status:(\w+):\s*(.*)$/.exec(line) ?? [];
      if (!pid) continue;
      if (!found.has(pid)) found.set(pid, { pid });
      found.get(pid)[key] = value;
    }
    for (const line of this.parts.cgroup) {
      const [, pid, group] = /^\/proc\/(\d+)\/cgroup:\d+:[^:]*:(.*)$/.exec(line) ?? [];
      if (found.has(pid)) found.get(pid).group = group;
    }
    for (const line of this.parts.stat) {
      const [, pid, rest] = /^(\d+) \(.*\) (.*)$/.exec(line) ?? [];
      // The flags are the 9th field, where the first one after the name is the third. PF_WQ_WORKER: a workqueue's
      // worker.
      if (found.has(pid)) found.get(pid).worker = (Number(rest.split(" ")[6]) & 0x20) !== 0;
    }
    for (const task of found.values()) task.kernel = task.pid === "2" || task.PPid === "2";
    return found;
  }
}

/** One case of a machine. */
class Case {
  constructor(name) {
    this.name = name;
    this.looks = new Map();
    this.runs = new Map();
    this.facts = [];
  }

  look(name) {
    const found = this.looks.get(name);
    if (!found) throw new Error(`the machine was not looked at: ${name}`);
    return found;
  }

  run(name) {
    const found = this.runs.get(name);
    if (!found) throw new Error(`it was not run: ${name}`);
    return found;
  }

  /** All facts recorded under a name. */
  fact(name) {
    return this.facts.filter(([key]) => key === name).map(([, ...rest]) => rest);
  }
}

/** A whole log. */
export function machine(log) {
  const found = { release: "?", cpusets: "?", over: false, cases: [], complaints: [], loose: [] };
  let at;
  let part;
  let lines;
  for (const line of log.split(/\r*\n/)) {
    const marker = /^@@ ([\w-]+) ?(.*)$/.exec(line);
    if (!marker) {
      (lines ?? found.loose).push(line);
      continue;
    }
    const [, word, rest] = marker;
    const current = found.cases.at(-1);
    if (word === "kernel") found.release = rest;
    else if (word === "cpusets") found.cpusets = rest;
    else if (word === "over") found.over = true;
    else if (word === "kernel-complaint") found.complaints.push(rest);
    else if (word === "case") {
      const [name, began] = rest.split(" ");
      if (current) current.seconds = Number(began) - current.began;
      if (name !== "end") found.cases.push(Object.assign(new Case(name), { began: Number(began) }));
    } else if (word === "look") current.looks.set(rest, (at = new Look(rest)));
    else if (word === "run") current.runs.set(rest, (at = { name: rest, parts: {} }));
    else if (word === "command") at.command = rest;
    else if (word === "time") at.seconds = rest.split(" ").reduce((began, ended) => ended - began);
    else if (word === "code") at.code = Number(rest);
    else if (word === "fact") current.facts.push(rest.split(" "));
    else if (word === "part") lines = at.parts[(part = rest)] = [];
    else if (word === "end") at = part = lines = undefined;
  }
  return found;
}
