// Section 4b: terminals and watchers, and the socket that has all of them.

import { is, isTime, named, ok, same, step } from "./asked.mjs";

const TERMINAL = "id command cols rows alive exit_code created_at scrollback_size";
const SECONDS = 20;
const base64 = (text) => Buffer.from(text, "base64").toString();

export async function useTerminals(place, label) {
  await step(`terminals, ${label}`, () => terminals(place));
  await step(`watchers, ${label}`, () => watchers(place));
  if (globalThis.WebSocket) await step(`socket, ${label}`, () => socket(place));
}

async function terminals(place) {
  const made = await place.call("POST", "/terminals", { json: { cmd: ["sh", "-c", "echo shown; exit 3"], cols: 100, rows: 40, scrollback_size: 1024 } });
  named(made, `success ${TERMINAL}`);
  same([made.command[0], made.cols, made.rows, made.scrollback_size], ["sh", 100, 40, 1024]);
  isTime(made.created_at);
  let found, tries = 0;
  do {
    found = (await place.call("GET", "/terminals")).terminals.find((each) => each.id === made.id);
    named(found, TERMINAL);
  } while (found.alive && ++tries < 200);
  is(found.exit_code, 3);
  const back = await place.call("GET", `/terminals/${made.id}/scrollback`, { query: { bytes: 100 } });
  named(back, "success scrollback size scrollback_size max_scrollback_size alive exit_code");
  same([base64(back.scrollback), back.size, back.alive, back.exit_code], ["shown\r\n", 7, false, 3]);
  same(await place.call("DELETE", `/terminals/${made.id}`), { success: true, terminal_id: made.id });
  await place.refused(404, "not_found", "DELETE", `/terminals/${made.id}`);
  await place.refused(400, "validation_error", "POST", "/terminals", { json: { cols: 0 } });
}

async function watchers(place) {
  const folder = "/tmp";
  const { watcher } = await place.call("POST", "/watchers", { json: { root: folder, exclude: ["*"] } });
  named(watcher, "id root dir_count excludes active");
  same([watcher.root, watcher.excludes, watcher.active], [folder, ["*"], true]);
  ok(watcher.dir_count >= 1);
  same(await place.call("GET", `/watchers/${watcher.id}`), { success: true, watcher });
  ok((await place.call("GET", "/watchers")).watchers.some((each) => each.id === watcher.id));
  same(await place.call("DELETE", `/watchers/${watcher.id}`), { success: true, watcher_id: watcher.id });
  await place.refused(404, "not_found", "GET", `/watchers/${watcher.id}`);
}

// Frames and output of one socket; `until` waits for what a function finds in them.
class Screen {
  frames = [];
  output = {};
  waiting = [];

  constructor(place) {
    const url = new URL(`${place.url}${place.prefix}/ws`);
    url.protocol = "ws:";
    url.searchParams.set("token", place.token);
    this.socket = new WebSocket(url);
    this.socket.binaryType = "arraybuffer";
    this.socket.onmessage = ({ data }) => this.take(data);
    this.opened = new Promise((resolve, reject) => Object.assign(this.socket, { onopen: resolve, onerror: reject }));
  }

  take(data) {
    if (typeof data === "string") this.frames.push(JSON.parse(data));
    else {
      const bytes = Buffer.from(data);
      this.output[bytes[0]] = (this.output[bytes[0]] ?? "") + bytes.subarray(1).toString();
    }
    for (const look of this.waiting) look();
  }

  until(find) {
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error(JSON.stringify([this.frames, this.output]))), SECONDS * 1000);
      const look = () => {
        const found = find(this);
        if (!found) return;
        clearTimeout(late);
        this.waiting = this.waiting.filter((each) => each !== look);
        resolve(found);
      };
      this.waiting.push(look);
      look();
    });
  }
}

async function socket(place) {
  const screen = new Screen(place);
  await screen.opened;
  const { id } = await place.call("POST", "/terminals", { json: { cmd: ["sh", "-c", "read word; stty size; echo got $word"] } });
  const frame = (type, fields = {}) =>
    screen.until(({ frames }) => frames.find((each) => each.type === type && Object.entries(fields).every(([name, value]) => each[name] === value)));
  same(await frame("state", { id }), { channel: "terminal", type: "state", id, start: 0, offset: 0 });
  screen.socket.send(JSON.stringify({ channel: "terminal", type: "resize", id, cols: 77, rows: 22 }));
  screen.socket.send(Buffer.concat([Buffer.of(Number(id)), Buffer.from("hello\n")]));
  await screen.until(({ output }) => output[id]?.includes("got hello"));
  ok(screen.output[id].includes("22 77"));
  same(await frame("exit", { id }), { channel: "terminal", type: "exit", id, code: 0 });
  screen.socket.send("{}");
  is((await frame("error")).code, "unknown_frame");
  screen.socket.close();
}
