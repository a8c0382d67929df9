// Node's HTTP/2 client against silent.py's http2_server: each request except the first two has its own connection.
// silent.mjs HOST:PORT
import http2 from "node:http2";

const target = `http://${process.argv[2]}`;
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function ask(session, what) {
  const request = session.request({
    ":method": "POST",
    ":path": `/silent.v1.Test/${what}`,
    "content-type": "application/grpc",
    te: "trailers",
  });
  request.on("error", () => {});
  request.resume();
  const over = new Promise((resolve) => request.on("close", resolve));
  request.end(Buffer.alloc(5));
  return { request, over };
}

function connect() {
  const session = http2.connect(target);
  session.on("error", () => {});
  return session;
}

const session = connect();
for (const what of ["Good", "Error"]) await ask(session, what).over;
const cancelled = ask(session, "Never");
await wait(250);
cancelled.request.close(http2.constants.NGHTTP2_CANCEL);
await cancelled.over;
await ask(session, "Refuse").over;
session.close();

const other = connect();
await ask(other, "Good").over;
await ask(other, "Away").over;
other.destroy();

// The whole connection is dropped during a request.
const dropped = connect();
await ask(dropped, "Good").over;
ask(dropped, "Never");
await wait(300);
dropped.socket.destroy();
await wait(50);
process.exit(0);
