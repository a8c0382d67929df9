// Sends packets to a machine of scripts/isolate_machine.sh until ended, from many ports, so that all queues of its NIC
// receive some. The machine need not be up yet.
import { createSocket } from "node:dgram";

const [address] = process.argv.slice(2);
const PORTS = 64;
const EVERY_MS = 20;

const packet = Buffer.alloc(64);
const sockets = Array.from({ length: PORTS }, () => {
  const socket = createSocket("udp4");
  socket.on("error", () => {});
  return socket;
});
setInterval(() => {
  for (const socket of sockets) socket.send(packet, 9, address, () => {});
}, EVERY_MS);
