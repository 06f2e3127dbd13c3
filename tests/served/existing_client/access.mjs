// Section 4b: switching the runtime on and off, its tokens, and the routes that describe it.

import { Place, is, isTime, named, ok, same, step } from "./asked.mjs";

// Enable, tokens and rotation; returns the place of the runtime.
export async function openRuntime({ base, headers, workspace }) {
  const control = new Place(base, "", `/workspace/${workspace}/runtime-api-access`);
  const call = (method, path) => control.call(method, path, { headers });
  let place;
  await step("enable", async () => {
    same(Object.keys(await call("GET", "")).sort(), ["enabled", "success", "url"]);
    const made = await call("POST", "/enable");
    named(made, "success enabled token expires_at url");
    is(made.enabled, true);
    isTime(made.expires_at);
    const seconds = (Date.parse(made.expires_at) - Date.now()) / 1000;
    ok(seconds > 3500 && seconds < 3700, String(seconds));
    place = new Place(made.url, made.token);
    await place.call("GET", "/health");
    await call("POST", "/enable");
    await place.call("GET", "/health");
  });
  await step("tokens", async () => {
    const other = await call("GET", "/token");
    named(other, "success token expires_at url");
    await place.call("GET", "/health", { token: other.token });
    await place.call("GET", "/health");
    const raw = await call("GET", "/token/raw");
    named(raw, "success token ip port url");
    ok(typeof raw.ip === "string" && typeof raw.port === "number");
    await place.call("GET", "/health", { token: raw.token });
    const rotated = await call("POST", "/token");
    named(rotated, "success token expires_at url");
    for (const token of [place.token, other.token, raw.token]) {
      await place.refused(403, "forbidden", "GET", "/health", { token });
    }
    place.token = rotated.token;
    await place.call("GET", "/health");
  });
  return place;
}

export async function refuseTokens(place, { base, headers, other }, label) {
  await step(`wrong tokens, ${label}`, async () => {
    await place.refused(401, "unauthorized", "GET", "/health", { token: "" });
    await place.refused(401, "unauthorized", "GET", "/files", { token: "rtg_none" });
    await place.refused(401, "unauthorized", "GET", `/health?token=${place.token}`, { token: "" });
    const control = new Place(base, "", `/workspace/${other}/runtime-api-access`);
    const foreign = (await control.call("POST", "/enable", { headers })).token;
    if (/\/\/ws-|\/ws_/.test(place.url)) await place.refused(403, "forbidden", "GET", "/health", { token: foreign });
    else await place.call("GET", "/health", { token: foreign });
  });
}

export async function describe(place, label) {
  await step(`description, ${label}`, async () => {
    const health = await place.call("GET", "/health");
    same(health, { success: true, status: "ok" });
    const runtime = await place.call("GET", "/runtime");
    named(runtime, "success os arch cpus home shell protocol_version capabilities");
    same([runtime.os, runtime.protocol_version], ["linux", 1]);
    ok(runtime.cpus >= 1 && runtime.home.startsWith("/") && runtime.arch && runtime.capabilities.includes("exec"));
    const found = await place.call("GET", "/runtimes");
    named(found, "success version default_target capabilities aliases targets");
    same([found.version, found.default_target, found.aliases], [1, "default", { local: "default" }]);
    const [target] = found.targets;
    named(target, "id local available version capabilities runtime");
    same([target.id, target.local, target.available], ["default", true, true]);
    named(target.runtime, "os arch cpus home shell protocol_version capabilities");
  });
  await step(`not offered, ${label}`, async () => {
    for (const path of ["/nothing", "/desktop/start", "/runtimes/other/health"]) {
      await place.refused(404, "not_found", "GET", path);
    }
    await place.refused(405, "method_not_allowed", "DELETE", "/health");
    const page = await place.send("GET", "/health", { headers: { Origin: "https://example.org" } });
    is(page.headers.get("access-control-allow-origin"), "*");
    is(page.headers.get("access-control-allow-credentials"), null);
  });
}

export async function closeRuntime(place, { base, headers, workspace }) {
  await step("disable", async () => {
    const control = new Place(base, "", `/workspace/${workspace}/runtime-api-access`);
    const begun = await place.send("POST", "/exec/stream", { json: { cmd: ["sleep", "600"] } });
    const reader = begun.body.getReader();
    await reader.read();
    const off = await control.call("POST", "/disable", { headers });
    named(off, "success enabled message");
    is(off.enabled, false);
    await control.call("POST", "/disable", { headers });
    await place.refused(403, "forbidden", "GET", "/health");
    for (const [method, path] of [["GET", "/token"], ["POST", "/token"], ["GET", "/token/raw"]]) {
      await control.refused(409, "runtime_disabled", method, path, { headers });
    }
    const started = Date.now();
    try {
      while (!(await reader.read()).done);
    } catch {
      // cut off
    }
    ok(Date.now() - started < 10_000, "the stream goes on after the end of its token");
  });
}
