// What must hold of a machine of scripts/isolate_machine.sh: each check returns whether it holds, and the figures that
// show it.
import { cpus } from "./log.mjs";

/** CPUs of the network in every plan with two of them: the first pair of the NIC's node. */
export const NET = new Set([4, 5]);
/** Packets arrive continuously; an interrupt that grows by less than this in the two seconds of observation does not
 * receive them. */
const FEW = 5;

/** Growth of the NIC's interrupts by CPU: [all, by name]. */
export function nic(from, to) {
  const before = from.interrupts;
  const all = Array(8).fill(0);
  const each = new Map();
  for (const [name, counts] of to.interrupts) {
    if (!name.includes("virtio0-")) continue;
    const grown = counts.map((count, cpu) => count - (before.get(name)?.[cpu] ?? 0));
    grown.forEach((count, cpu) => (all[cpu] += count));
    each.set(name, grown);
  }
  return [all, each];
}

/** The NIC's interrupts arrive on these CPUs, and on no others. */
export function interruptsOn(at, from, to, wanted) {
  const [all] = nic(at.look(from), at.look(to));
  const on = all.flatMap((count, cpu) => (count >= FEW ? [cpu] : []));
  const elsewhere = all.reduce((sum, count, cpu) => sum + (wanted.has(cpu) ? 0 : count), 0);
  return [on.length > 0 && elsewhere === 0 && on.length === wanted.size, `grew by CPU: ${all.join(" ")}`];
}

/** The NIC's interrupts also arrive on CPUs that are not the network's. */
export function interruptsSpread(at, from, to) {
  const [all] = nic(at.look(from), at.look(to));
  return [all.filter((count, cpu) => count >= FEW && !NET.has(cpu)).length >= 2, `grew by CPU: ${all.join(" ")}`];
}

/** No user code runs on the network's CPUs; elsewhere it does. */
export function userTime(at, from, to, free = NET) {
  const before = at.look(from).user;
  const grown = at.look(to).user.map((jiffies, cpu) => jiffies - before[cpu]);
  const there = grown.filter((_, cpu) => free.has(cpu)).reduce((sum, one) => sum + one, 0);
  const rest = grown.reduce((sum, one) => sum + one, 0) - there;
  return [there <= 1 && rest > 10, `user time by CPU, ticks: ${grown.join(" ")}`];
}

/** No user task may run there; bound kernel threads may. */
export function tasksOff(at, name, net = NET) {
  const tasks = [...at.look(name).tasks.values()];
  const users = tasks.filter((task) => !task.kernel);
  const there = users.filter((task) => [...cpus(task.Cpus_allowed_list ?? "")].some((cpu) => net.has(cpu)));
  const names = there.slice(0, 4).map((task) => `${task.Name} (${task.pid}) ${task.Cpus_allowed_list}`);
  return [users.length > 8 && there.length === 0, `${there.length} of ${users.length} user tasks may run there ${names.join(", ")}`];
}

/** Some task may run there: the bench would notice. */
export function tasksOn(at, name) {
  const [off, evidence] = tasksOff(at, name);
  return [!off, evidence];
}

/** No load is balanced onto them. */
export function notBalanced(at, name, net = NET) {
  const balanced = [...at.look(name).domains].filter(([, domains]) => domains !== "").map(([cpu]) => cpu);
  const there = balanced.filter((cpu) => net.has(cpu));
  return [there.length === 0 && balanced.length > 0, `CPUs with scheduling domains: ${balanced.join(",") || "none"}`];
}

/** Everything is as before; `but` lists groups that appeared meanwhile. */
export function identity(at, from, to, but = []) {
  const [before, after] = [at.look(from), at.look(to)];
  const wrong = [];
  let same = 0;
  const compare = (what, one, other) => {
    for (const key of new Set([...one.keys(), ...other.keys()])) {
      if (but.some((group) => String(key).includes(group))) continue;
      if (one.get(key) === other.get(key)) same += 1;
      else wrong.push(`${what}${key}: ${one.get(key) ?? "nothing"} -> ${other.get(key) ?? "nothing"}`);
    }
  };
  const configured = (look) => new Map([...look.values("irq")].filter(([path]) => !path.includes("effective")));
  compare("", configured(before), configured(after));
  compare("", before.values("net"), after.values("net"));
  compare("", before.values("cpusets"), after.values("cpusets"));
  compare("group ", new Map(before.parts.groups.map((path) => [path, "there"])), new Map(after.parts.groups.map((path) => [path, "there"])));
  compare("domains of CPU ", before.domains, after.domains);
  for (const [pid, task] of before.tasks) {
    const now = after.tasks.get(pid);
    if (!now || now.Name !== task.Name || task.kernel) continue;
    for (const key of ["Cpus_allowed_list", "group"]) compare(`${task.Name} (${pid}) ${key}`, new Map([["", task[key]]]), new Map([["", now[key]]]));
  }
  return [wrong.length === 0 && same > 100, wrong.length > 0 ? `${wrong.length} differ: ${wrong.slice(0, 6).join("; ")}` : `${same} values as before`];
}

/** A command ended with this exit code, and its output matches. */
export function ended(at, name, code, said) {
  const run = at.run(name);
  const text = [...run.parts.error, ...run.parts.output].join(" ");
  const hits = said === undefined || said.test(text);
  const words = `exit ${run.code} after ${run.seconds.toFixed(2)} s`;
  return [run.code === code && hits, run.code === code && hits ? words : `${words}: ${text.slice(0, 300)}`];
}

/** Kernel threads may run where they could before. */
export function kernelThreads(at, from, to) {
  const [before, after] = [at.look(from).tasks, at.look(to).tasks];
  const wrong = [];
  let same = 0;
  for (const [pid, task] of before) {
    const now = after.get(pid);
    // Worker pools come and go, and move, by themselves.
    if (!now || now.Name !== task.Name || !task.kernel || task.worker || now.worker) continue;
    if (task.Cpus_allowed_list === now.Cpus_allowed_list && task.group === now.group) same += 1;
    else wrong.push(`${task.Name} ${task.Cpus_allowed_list} ${task.group} -> ${now.Cpus_allowed_list} ${now.group}`);
  }
  return [wrong.length === 0 && same > 20, wrong.length > 0 ? `${wrong.length} of ${same + wrong.length} differ: ${wrong.slice(0, 6).join("; ")}` : `${same} of them`];
}

/** The kernel has made the CPUs a partition of their own, and reports it everywhere. */
export function partition(at, name) {
  const read = at.look(name).values("cpusets");
  const found = (path) => read.get(`/sys/fs/cgroup/${path}`);
  const [kind, has, rest, isolated] = [
    found("spangap-net/cpuset.cpus.partition"),
    found("spangap-net/cpuset.cpus.effective"),
    found("cpuset.cpus.effective"),
    found("cpuset.cpus.isolated"),
  ];
  // Kernels before 6.7 do not have the last file.
  const holds = kind === "isolated" && has === "4-5" && rest === "0-3,6-7" && (isolated === undefined || isolated === "4-5");
  return [holds, `partition ${kind}, its CPUs ${has}, those of the root ${rest}, isolated ${isolated ?? "not told"}`];
}
