// Requests as existing clients make them, by `fetch` alone, and what the steps expect of the answers.

import { deepStrictEqual, ok, strictEqual } from "node:assert";

export { deepStrictEqual as same, ok, strictEqual as is };

// Method and path below the address of each request that was made: the test compares them with the routes that there are.
export const asked = new Set();
export const results = {};

export async function step(name, work) {
  try {
    await work();
    results[name] = "ok";
  } catch (failure) {
    results[name] = String(failure?.stack ?? failure);
  }
}

// The address of a runtime and its token. `prefix`: the path of an alias.
export class Place {
  constructor(url, token, prefix = "") {
    Object.assign(this, { url, token, prefix });
  }

  // The whole response. Clients send the type of JSON on every request, with a body or without.
  async send(method, path, { query = {}, json, body, headers = {}, token = this.token } = {}) {
    const target = new URL(this.url + this.prefix + path);
    for (const [name, value] of Object.entries(query)) target.searchParams.set(name, value);
    asked.add(`${method} ${this.prefix}${path}`);
    return fetch(target, {
      method,
      headers: { "Content-Type": "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}), ...headers },
      body: json === undefined ? body : JSON.stringify(json),
      ...(body instanceof ReadableStream ? { duplex: "half" } : {}),
    });
  }

  // The object in a success.
  async call(method, path, request) {
    const response = await this.send(method, path, request);
    const text = await response.text();
    strictEqual(response.status, 200, `${method} ${path}: ${response.status} ${text}`);
    const found = JSON.parse(text);
    strictEqual(found.success, true);
    return found;
  }

  // The body of an error, which has the fields of section 1 of the contract.
  async refused(status, code, method, path, request) {
    const response = await this.send(method, path, request);
    const text = await response.text();
    strictEqual(response.status, status, `${method} ${path}: ${response.status} ${text}`);
    const found = JSON.parse(text);
    strictEqual(found.success, false);
    strictEqual(found.code, code);
    strictEqual(found.error, { unauthorized: "Unauthorized", forbidden: "Forbidden" }[code] ?? code);
    ok(found.message.length > 10 && found.request_id, text);
    strictEqual(response.headers.get("x-request-id"), found.request_id);
    return found;
  }
}

// Exactly these names, of which those of `optional` may be absent.
export function named(object, names, optional = "") {
  const left = new Set(Object.keys(object));
  for (const name of optional.split(" ")) left.delete(name);
  deepStrictEqual([...left].sort(), names.split(" ").sort());
}

export function isTime(text) {
  ok(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/.test(text) && !Number.isNaN(Date.parse(text)), text);
}

// The lines of a stream, as it comes.
export async function* linesOf(response) {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of response.body) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop();
    yield* lines;
  }
  if (rest) yield rest;
}

// The events of a stream. A field's name is followed by a colon and one blank, without which clients take no data.
export async function* eventsOf(response) {
  let event = {};
  for await (const line of linesOf(response)) {
    if (line.startsWith("event: ")) event.name = line.slice(7);
    else if (line.startsWith("id: ")) event.id = line.slice(4);
    else if (line.startsWith("data: ")) event.data = JSON.parse(line.slice(6));
    else if (line === "" && event.name) {
      yield event;
      event = {};
    } else ok(line === "" || line.startsWith(": "), line);
  }
}

export async function all(source) {
  const found = [];
  for await (const item of source) found.push(item);
  return found;
}
