// One terminal of the sandbox, as the page shows it: its screen, its button, and how much of its output has come.

import { FitAddon } from "./addon-fit.mjs";
import { Unicode11Addon } from "./addon-unicode11.mjs";
import { Terminal } from "./xterm.mjs";

const ACKNOWLEDGED_AT = 32 * 1024; // bytes; the server sends at most 128 KiB that were not acknowledged
const INPUT_PIECE = 64 * 1024; // bytes
const MOST = 1000; // columns and rows that the server accepts
const SCROLLBACK = 5000;

export class Tab {
  id = 0;
  received = 0; // the offset of the next byte of output
  attached = false;
  ended = false;
  #attachment = 0;
  #processed = 0;
  #connection;

  constructor(connection, { tabs, screens, select, close }) {
    this.#connection = connection;
    this.term = new Terminal({ allowProposedApi: true, cursorBlink: true, scrollback: SCROLLBACK, disableStdin: true });
    this.#makeButton(tabs, select, close);
    this.screen = document.createElement("div");
    this.screen.className = "screen";
    screens.append(this.screen);
    this.#openTerminal();
  }

  #makeButton(tabs, select, close) {
    this.button = document.createElement("div");
    this.button.className = "tab";
    this.label = document.createElement("button");
    this.label.type = "button";
    this.label.setAttribute("role", "tab");
    this.label.textContent = "New";
    this.label.onclick = () => select(this);
    const end = document.createElement("button");
    end.type = "button";
    end.className = "end";
    end.title = "End this terminal and its program";
    end.textContent = "×";
    end.onclick = () => close(this);
    this.button.append(this.label, end);
    tabs.append(this.button);
  }

  #openTerminal() {
    const { term } = this;
    this.fitAddon = new FitAddon();
    term.loadAddon(this.fitAddon);
    term.loadAddon(new Unicode11Addon());
    term.unicode.activeVersion = "11";
    term.open(this.screen);
    term.onData((text) => this.#input(new TextEncoder().encode(text)));
    term.onBinary((text) => this.#input(Uint8Array.from(text, (character) => character.charCodeAt(0))));
    term.onTitleChange((title) => this.id && (this.label.textContent = title.slice(0, 40) || `Terminal ${this.id}`));
    term.onResize(() => this.#sendSize());
    // In the next frame: a change of the layout while it is observed is an error.
    new ResizeObserver(() => requestAnimationFrame(() => this.fit())).observe(this.screen);
  }

  get size() {
    return { cols: Math.min(this.term.cols, MOST), rows: Math.min(this.term.rows, MOST) };
  }

  fit() {
    if (this.screen.clientWidth > 0) this.fitAddon.fit();
  }

  show(shown) {
    this.screen.hidden = !shown;
    this.button.classList.toggle("shown", shown);
    this.label.setAttribute("aria-selected", String(shown));
    if (!shown) return;
    this.fit();
    this.term.focus();
  }

  // The server sends what follows `offset` from now on.
  attach({ terminalId, cols, rows, offset }) {
    if (!this.id) this.label.textContent = `Terminal ${terminalId}`;
    this.id = terminalId;
    this.received = offset;
    this.#attachment += 1;
    this.#processed = 0;
    this.attached = true;
    this.term.options.disableStdin = this.ended;
    if (cols !== this.size.cols || rows !== this.size.rows) this.#sendSize();
  }

  detach() {
    this.attached = false;
    this.term.options.disableStdin = true;
  }

  // The screen as it is, in place of what is shown.
  restore(message) {
    this.term.reset();
    this.term.write(Uint8Array.from(atob(message.state), (character) => character.charCodeAt(0)));
    this.attach(message);
  }

  write(bytes) {
    this.received += bytes.length;
    const attachment = this.#attachment;
    this.term.write(bytes, () => this.#acknowledge(bytes.length, attachment));
  }

  end(text) {
    this.ended = true;
    this.term.options.disableStdin = true;
    this.button.classList.add("ended");
    this.term.write(`\r\n\x1b[0m\x1b[2m[${text}]\x1b[0m\r\n`);
  }

  remove() {
    this.term.dispose();
    this.screen.remove();
    this.button.remove();
  }

  #acknowledge(count, attachment) {
    if (attachment !== this.#attachment) return;
    this.#processed += count;
    if (this.#processed < ACKNOWLEDGED_AT) return;
    this.#connection.send({ a: "k", id: this.id, n: this.#processed });
    this.#processed = 0;
  }

  #input(bytes) {
    if (!this.attached || this.ended) return;
    for (let at = 0; at < bytes.length; at += INPUT_PIECE) {
      this.#connection.sendInput(this.id, bytes.subarray(at, at + INPUT_PIECE));
    }
  }

  #sendSize() {
    if (this.attached && !this.ended) this.#connection.send({ a: "r", id: this.id, ...this.size });
  }
}
