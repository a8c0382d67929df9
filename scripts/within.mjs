// Runs programs that must end within a time. One that does not is ended with its process group, and where its
// threads were is said first: a test that hangs would otherwise leave no trace but that everything took too long.
import { spawn } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";

/** Programs that run: the name of each, by process, and when it began. */
const running = new Map();

/** What runs, and for how long. */
export function isRunning() {
  const seconds = (began) => `${((performance.now() - began) / 1000).toFixed(0)} s`;
  return `running: ${[...running.values()].map(({ name, began }) => `${name} (${seconds(began)})`).join(", ") || "nothing"}`;
}

/** Runs a program in a process group of its own; returns how it failed, and "" if it did not. */
export function runWithin(seconds, name, [program, ...words], options) {
  return new Promise((ended) => {
    const child = spawn(program, words, { ...options, detached: true });
    running.set(child.pid, { name, began: performance.now() });
    let late = "";
    const limit = setTimeout(() => {
      late = `not done after ${seconds} s, and ended`;
      console.log(`-- ${name} is ${late}; its threads:\n${threads(child.pid)}`);
      end(child.pid);
    }, seconds * 1000);
    const finish = (how) => {
      clearTimeout(limit);
      running.delete(child.pid);
      ended(late || how);
    };
    child.once("error", (error) => finish(error.message));
    // What its descendants still write is not waited for.
    child.once("exit", (code, signal) => finish(signal ?? (code === 0 ? "" : `exit status ${code}`)));
  });
}

/** Ends the process group that this process leads. */
function end(leader) {
  try {
    process.kill(-leader, "SIGKILL");
  } catch (error) {
    if (error.code !== "ESRCH") throw error;
  }
}

const read = (file) => {
  try {
    return readFileSync(file, "utf8").trim();
  } catch {
    return "?";
  }
};

/** Threads of a process and of its descendants: name, state, system call, and as root the kernel's stack. */
function threads(root) {
  const processes = readdirSync("/proc").filter((entry) => /^\d+$/.test(entry)).map(Number);
  // After the name, which may contain anything: state, parent.
  const parents = new Map(processes.map((pid) => [pid, Number(read(`/proc/${pid}/stat`).split(") ").at(-1).split(" ")[1])]));
  const family = [root];
  for (const pid of family) family.push(...processes.filter((other) => parents.get(other) === pid));
  const lines = [];
  for (const pid of family) {
    lines.push(`process ${pid}: ${read(`/proc/${pid}/cmdline`).replaceAll("\0", " ").slice(0, 300)}`);
    let tasks = [];
    try {
      tasks = readdirSync(`/proc/${pid}/task`);
    } catch {
      // It has ended since.
    }
    for (const task of tasks) {
      const of = (file) => read(`/proc/${pid}/task/${task}/${file}`);
      const state = of("stat").split(") ").at(-1).split(" ")[0];
      const stack = of("stack").split("\n").slice(0, 6).map((line) => line.replace(/^\[<0>\] /, "").replace(/\+.*/, "")).join(" < ");
      lines.push(`  ${task} ${of("comm")}: ${state}, in ${of("wchan")}, system call ${of("syscall").split(" ")[0]}; ${stack}`);
    }
  }
  return lines.join("\n");
}

for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.once(signal, () => {
    console.log(`-- ${signal}; ${isRunning()}`);
    for (const leader of running.keys()) end(leader);
    process.kill(process.pid, signal);
  });
}
