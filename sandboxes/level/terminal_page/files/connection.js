// The WebSocket of the page. It is opened again after it was cut, with growing pauses, until the token ends.

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 15000;
// Without any message for this long the server is asked for one; without an answer the connection counts as cut.
const SILENCE = 20000;
const TOKEN_ENDED = 4401;
const GOING_AWAY = 1001;
// Of the platform's staff: they open sockets and nothing else, so nothing else is asked with them.
const STAFF_PREFIX = "sbs_";
const ADDRESS = new URL(location.pathname.replace(/terminal$/, ""), location.href);

export class Connection {
  #token = "";
  #socket = null;
  #pause = FIRST_PAUSE;
  #timer = 0;
  #heardAt = 0;
  #handlers;

  // Handlers: opened(), message(object), output(bytes), lost(text, seconds), stopped(text), refused(text).
  constructor(handlers) {
    this.#handlers = handlers;
    setInterval(() => this.#checkSilence(), SILENCE / 4);
    addEventListener("online", () => this.#retryNow());
  }

  get isOpen() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  // The token stays in this object alone.
  open(token = this.#token) {
    this.#token = token;
    this.#heardAt = 0;
    this.#drop();
    const address = new URL("ws", ADDRESS);
    address.protocol = ADDRESS.protocol === "https:" ? "wss:" : "ws:";
    address.searchParams.set("token", token);
    const socket = (this.#socket = new WebSocket(address));
    socket.binaryType = "arraybuffer";
    socket.onmessage = ({ data }) => this.#receive(data);
    socket.onclose = (event) => socket === this.#socket && this.#closed(event);
  }

  send(message) {
    if (this.isOpen) this.#socket.send(JSON.stringify(message));
  }

  sendInput(id, bytes) {
    if (!this.isOpen) return;
    const frame = new Uint8Array(bytes.length + 1);
    frame[0] = id;
    frame.set(bytes, 1);
    this.#socket.send(frame);
  }

  #drop() {
    clearTimeout(this.#timer);
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
  }

  #receive(data) {
    this.#heardAt = performance.now();
    if (typeof data !== "string") {
      this.#handlers.output(new Uint8Array(data));
      return;
    }
    const message = JSON.parse(data);
    if (message.type === "connected") {
      this.#pause = FIRST_PAUSE;
      this.#handlers.opened();
    }
    this.#handlers.message(message);
  }

  #closed(event) {
    const wasOpen = this.#heardAt > 0;
    this.#heardAt = 0;
    this.#socket = null;
    if (event.code === TOKEN_ENDED) this.#end(event.reason);
    else if (event.code === GOING_AWAY && event.reason) this.#handlers.stopped(event.reason);
    else if (wasOpen) this.#retryLater("The connection was lost");
    else this.#explain();
  }

  #end(reason) {
    this.#token = "";
    this.#handlers.refused(reason);
  }

  #retryLater(text) {
    const pause = this.#pause * (0.75 + Math.random() / 2);
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE);
    this.#timer = setTimeout(() => this.open(), pause);
    this.#handlers.lost(text, Math.ceil(pause / 1000));
  }

  #retryNow() {
    if (this.#socket || !this.#token) return;
    this.#pause = FIRST_PAUSE;
    this.open();
  }

  // A browser does not tell a page why a handshake was refused; another request with the token is.
  async #explain() {
    const token = this.#token;
    const answer = token.startsWith(STAFF_PREFIX) ? null : await this.#ask(token);
    if (this.#socket || token !== this.#token) return;
    if (!answer || answer.status < 400 || answer.status === 429 || answer.status >= 500) {
      this.#retryLater(answer?.message ?? "The machine does not answer");
    } else if (answer.status === 401 || answer.code === "forbidden") {
      this.#end(answer.message);
    } else {
      this.#handlers.stopped(answer.message);
    }
  }

  async #ask(token) {
    try {
      const answer = await fetch(new URL("files/exists", ADDRESS), {
        method: "POST",
        headers: { Authorization: "Bearer " + token, "Content-Type": "application/json" },
        body: JSON.stringify({ filePath: "/" }),
        credentials: "omit",
      });
      const { code, message } = await answer.json();
      return { status: answer.status, code, message };
    } catch {
      return null;
    }
  }

  #checkSilence() {
    if (!this.isOpen || !this.#heardAt) return;
    const silence = performance.now() - this.#heardAt;
    if (silence > 2 * SILENCE) {
      this.#heardAt = 0;
      this.#drop();
      this.#retryLater("The connection was lost");
    } else if (silence > SILENCE) {
      this.send({ action: "terminal_list" });
    }
  }
}
