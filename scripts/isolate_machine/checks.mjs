// The checks of each case of scripts/isolate_machine/cases.sh: [what, (case, machine) => [whether it holds, figures]].
// A check that does not apply to a machine returns nothing; one that could not be made returns `undefined` for whether
// it holds.
import {
  NET,
  ended,
  identity,
  interruptsOn,
  interruptsSpread,
  kernelThreads,
  notBalanced,
  partition,
  tasksOff,
  tasksOn,
  userTime,
} from "./judge.mjs";
import { cpus } from "./log.mjs";

/** Where cpusets are mounted, and whether they are version 1. */
const v1 = (machine) => machine.cpusets === "v1";
const done = (name) => [`${name} ends well`, (at) => ended(at, name, 0)];
const asBefore = (what, from, to, but) => [what, (at) => identity(at, from, to, but)];

/** Affinities of the NIC's interrupts. */
function affinities(at, name) {
  const look = at.look(name);
  const numbers = [...look.interrupts.keys()].filter((key) => key.includes("virtio0-")).map((key) => key.split(" ")[0]);
  return numbers.map((number) => look.values("irq").get(`/proc/irq/${number}/smp_affinity_list`));
}

/** Whether every interrupt of the NIC is restricted to the network's CPUs; with `all` false, that not every one is. */
function told(at, name, all) {
  const lists = affinities(at, name);
  const there = lists.filter((list) => [...cpus(list)].every((cpu) => NET.has(cpu)));
  return [lists.length > 8 && all === (there.length === lists.length), `their affinities: ${lists.join(" ")}`];
}

/** Each container's task may run on applications' CPUs only. */
function containersOff(at, name, wanted, but) {
  const tasks = at.look(name).tasks;
  const containers = at.fact("container").filter(([called, pid]) => wanted.test(called) && pid !== "refused");
  const allowed = containers.map(([called, pid]) => [called, tasks.get(pid)?.Cpus_allowed_list ?? "gone"]);
  const wrong = allowed.filter(([, list]) => list === "gone" || [...cpus(list)].some((cpu) => NET.has(cpu)) !== (but === "wide"));
  return [allowed.length > 0 && wrong.length === 0, allowed.map(([called, list]) => `${called} ${list}`).join(", ")];
}

/** Killed at this many records, at least twice before the end. */
function killed(at) {
  const kills = at.fact("killed");
  const middle = kills.filter(([, , , applied]) => applied === "0");
  const words = kills.map(([, , records, applied]) => `${records} records${applied === "0" ? "" : ", applied"}`);
  return [middle.length >= 2, `killed at ${words.join("; ")}`];
}

/** After each kill, everything is restored. */
function rolledBack(at) {
  const verdicts = at.fact("killed").map(([records]) => [records, ...identity(at, "before", `after-${records}`)]);
  const wrong = verdicts.filter(([, holds]) => !holds);
  const words = (wrong.length > 0 ? wrong : verdicts).map(([records, , figures]) => `at ${records}: ${figures}`);
  return [verdicts.length > 0 && wrong.length === 0, words.join("; ")];
}

/** A kill leaves something to undo; otherwise the case would test nothing. */
function somethingLeft(at) {
  const left = at.fact("killed").filter(([records]) => !identity(at, "before", `killed-${records}`)[0]);
  return [left.length >= 1, `${left.length} of ${at.fact("killed").length} left the machine changed`];
}

function mask(at, name) {
  return at.look(name).tasks.get(at.fact("pinned")[0][0])?.Cpus_allowed_list;
}

/** Number of queues of the interface. */
function queues(at, name) {
  return [...at.look(name).values("net").keys()].filter((path) => /eth0\/queues\/rx-\d+\/rps_cpus/.test(path)).length;
}

const withIrqbalance = (check) => (at, machine) =>
  at.fact("lacking").length > 0 ? [undefined, "irqbalance could not be had"] : check(at, machine);

export const checks = {
  healthy: [
    ["interrupts of the NIC come on many CPUs", (at) => interruptsSpread(at, "traffic-from", "traffic-to")],
    ["tasks may run everywhere", (at) => tasksOn(at, "before")],
    done("show"),
  ],
  by_hand: [
    ["interrupts come on the network's CPUs alone", (at) => interruptsOn(at, "applied-from", "applied-to", NET)],
    ["tasks are off these CPUs", (at) => tasksOff(at, "applied")],
    ["nobody computes there", (at) => userTime(at, "applied-from", "applied-to")],
    ["nothing is balanced onto them", (at) => notBalanced(at, "applied")],
    asBefore("undone by hand, all is as before", "before", "after"),
  ],
  applied: [
    done("plan"),
    done("apply"),
    ["interrupts come on the network's CPUs alone", (at) => interruptsOn(at, "applied-from", "applied-to", NET)],
    ["tasks are off these CPUs", (at) => tasksOff(at, "applied")],
    ["nobody computes there", (at) => userTime(at, "applied-from", "applied-to")],
    ["nothing is balanced onto them", (at) => notBalanced(at, "applied")],
    ["the partition is isolated", (at, machine) => (v1(machine) ? undefined : partition(at, "applied"))],
    ["a container made between plan and apply is off them", (at) => containersOff(at, "applied", /between/)],
    ["containers made while applying are off them", (at) => containersOff(at, "applied", /while/)],
    ["a container made after it is off them", (at) => containersOff(at, "applied", /after/)],
    done("verify"),
    done("status"),
    done("confirm"),
    ["a second apply is refused", (at) => ended(at, "again", 1, /already/)],
    done("rollback"),
    asBefore("rolled back, all is as before", "before", "after", ["/between", "/while", "/after", "-between", "-while", "-after"]),
    ["containers made meanwhile have all CPUs", (at) => containersOff(at, "after", /./, "wide")],
    ["threads of the kernel are as before", (at) => kernelThreads(at, "before", "after")],
    done("rollback-again"),
    asBefore("rolled back again, nothing happens", "after", "after-again"),
  ],
  killed: [
    ["apply was killed in its middle, at several moments", killed],
    ["what it had done was to be seen", somethingLeft],
    ["rolled back, all is as before", rolledBack],
  ],
  guard: [
    done("apply"),
    ["applied, it is changed", (at) => told(at, "applied", true)],
    asBefore("not confirmed, all is as before", "before", "after"),
  ],
  orphaned: [
    ["killed, it is changed", (at) => [!identity(at, "before", "killed")[0], `${at.fact("killed")[0][0]} records`]],
    asBefore("the guard alone puts all back", "before", "after"),
  ],
  pinned: [
    ["a pinned thread keeps what is left", (at) => [mask(at, "applied") === "3", `3-4 -> ${mask(at, "applied")}`]],
    ["it has its CPUs back", (at) => [mask(at, "after") === "3-4", mask(at, "after") ?? "it is gone"]],
    asBefore("rolled back, all is as before", "before", "after"),
    ["a thread on the network's CPUs alone: no plan", (at) => ended(at, "refused", 1, /may run on the network's CPUs only/)],
  ],
  queues: [
    done("apply"),
    ["one queue for each CPU", (at) => [queues(at, "before") === 4 && queues(at, "applied") === 2, `${queues(at, "before")} -> ${queues(at, "applied")}`]],
    ["interrupts come on the network's CPUs alone", (at) => interruptsOn(at, "applied-from", "applied-to", NET)],
    ["its queues are back", (at) => [queues(at, "after") === 4, String(queues(at, "after"))]],
    ["and work", (at) => interruptsSpread(at, "after-from", "after-to")],
    asBefore("rolled back, all is as before", "before", "after"),
  ],
  irqbalance: [
    ["unasked, it undoes what was applied", withIrqbalance((at) => told(at, "leave-later", false))],
    ["asked, our interrupts stay", withIrqbalance((at) => told(at, "ban-later", true))],
    ["and come there alone", withIrqbalance((at) => interruptsOn(at, "ban-from", "ban-to", NET))],
    ["rolled back, it moves them again", withIrqbalance((at) => told(at, "free-again", false))],
  ],
};
