// Terminals without a browser, by lines of JSON: {make, cols, rows} or {write, data} name one; {screen} is answered by what it
// shows. argv: the path of xterm-headless.mjs.

import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const { Terminal } = await import(pathToFileURL(process.argv[2]));
const terminals = new Map();

function screenOf(terminal) {
  const { active } = terminal.buffer;
  const lines = Array.from({ length: terminal.rows }, (_, row) => active.getLine(active.baseY + row)?.translateToString(true) ?? "");
  return { lines, cursor: [active.cursorX, active.cursorY], buffer: active.type, modes: { ...modesOf(terminal.modes) } };
}

function modesOf(modes) {
  const { applicationCursorKeysMode, applicationKeypadMode, bracketedPasteMode, insertMode, mouseTrackingMode, originMode } = modes;
  const { sendFocusMode, wraparoundMode } = modes;
  return {
    applicationCursorKeysMode, applicationKeypadMode, bracketedPasteMode, insertMode, mouseTrackingMode, originMode,
    sendFocusMode, wraparoundMode,
  };
}

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  if (asked.make) {
    terminals.set(asked.make, new Terminal({ cols: asked.cols, rows: asked.rows, allowProposedApi: true }));
  } else if (asked.write) {
    terminals.get(asked.write).write(Buffer.from(asked.data, "base64"));
  } else {
    const terminal = terminals.get(asked.screen);
    await new Promise((done) => terminal.write("", done));
    process.stdout.write(JSON.stringify(screenOf(terminal)) + "\n");
  }
}
