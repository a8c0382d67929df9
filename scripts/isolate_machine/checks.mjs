// The checks of each case of scripts/isolate_machine/cases.sh: [what, (case, machine) => [whether it holds, evidence]].
import { NET, identity, interruptsOn, interruptsSpread, notBalanced, tasksOff, tasksOn, userTime } from "./judge.mjs";

export const checks = {
  healthy: [
    ["interrupts of the NIC come on many CPUs", (at) => interruptsSpread(at, "traffic-from", "traffic-to")],
    ["tasks may run everywhere", (at) => tasksOn(at, "before")],
  ],
  by_hand: [
    ["interrupts come on the network's CPUs alone", (at) => interruptsOn(at, "applied-from", "applied-to", NET)],
    ["tasks are off these CPUs", (at) => tasksOff(at, "applied")],
    ["nobody computes there", (at) => userTime(at, "applied-from", "applied-to")],
    ["nothing is balanced onto them", (at) => notBalanced(at, "applied")],
    ["undone by hand, all is as before", (at) => identity(at, "before", "after")],
  ],
};
