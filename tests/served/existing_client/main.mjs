// A program as existing clients of a runtime are: it knows `fetch` and WebSocket (where Node.js has it), and the routes of section 4b of the wire contract.
//
// Reads {base, headers, workspace, other, host} as JSON from standard input, prints {results, asked}. `host`: an address
// with a name of the workspace's own.

import dns from "node:dns";
import { closeRuntime, describe, openRuntime, refuseTokens } from "./access.mjs";
import { Place, all, asked, results } from "./asked.mjs";
import { useFiles } from "./files.mjs";
import { useProxy } from "./proxy.mjs";
import { useTasks } from "./tasks.mjs";
import { useTerminals } from "./terminals.mjs";

// Names below localhost lead to this machine, as browsers have it.
const { lookup } = dns;
dns.lookup = (name, ...rest) => lookup(name.endsWith(".localhost") ? "127.0.0.1" : name, ...rest);

const given = JSON.parse((await all(process.stdin)).join(""));
const place = await openRuntime(given);
const places = {
  path: place,
  alias: new Place(place.url, place.token, "/runtimes/default"),
  local: new Place(place.url, place.token, "/runtimes/local"),
  host: new Place(given.host, place.token),
};
for (const [label, each] of Object.entries(places)) {
  await describe(each, label);
  if (label === "local") continue; // the same routes as those of the other alias
  await useFiles(each, label);
  await useTasks(each, label);
  await useTerminals(each, label);
  await useProxy(each, label);
}
await refuseTokens(places.path, given, "path");
await refuseTokens(places.host, given, "host");
await closeRuntime(place, given);
process.stdout.write(JSON.stringify({ results, asked: [...asked] }));
process.exit(0);
