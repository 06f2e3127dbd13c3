// Section 4b: servers on the machine's loopback, which is this one's in the tests.

import http from "node:http";
import { is, ok, same, step } from "./asked.mjs";

// Says what came, by whichever method.
async function answer(request, response) {
  let body = "";
  for await (const chunk of request) body += chunk;
  response.setHeader("Set-Cookie", "a=b");
  response.setHeader("X-Own", "kept");
  response.statusCode = request.url === "/missing" ? 404 : 200;
  response.end(JSON.stringify({ method: request.method, url: request.url, headers: request.headers, body }));
}

export async function useProxy(place, label) {
  const server = http.createServer(answer);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await step(`proxy, ${label}`, () => proxied(place, port));
  await step(`targets, ${label}`, () => targets(place, port));
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await step(`errors of the proxy, ${label}`, () => errors(place, port));
}

async function said(place, method, path, request) {
  const response = await place.send(method, path, request);
  return [response, method === "HEAD" ? {} : await response.json()];
}

async function proxied(place, port) {
  for (const method of ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]) {
    const body = method === "GET" || method === "HEAD" ? undefined : "sent";
    const [response, found] = await said(place, method, `/proxy/${port}/some/path`, { query: { a: "b c" }, body });
    is(response.status, 200);
    same([response.headers.get("x-own"), response.headers.get("set-cookie")], ["kept", null]);
    is(response.headers.get("content-security-policy"), "sandbox allow-scripts allow-forms");
    if (method === "HEAD") continue;
    same([found.method, found.url, found.body], [method, "/some/path?a=b+c", body ?? ""]);
    ok(!JSON.stringify(found.headers).includes(place.token), "the token arrived");
  }
  is((await said(place, "GET", `/proxy/${port}/missing`))[0].status, 404);
}

async function targets(place, port) {
  for (const request of [
    { headers: { "X-Proxy-Target": `127.0.0.1:${port}` } },
    { headers: { "X-Local-Proxy-Target": `${port}` } },
    { query: { proxy_target: `localhost:${port}` } },
    { query: { x_local_target: `127.0.0.1:${port}` } },
  ])
    is((await said(place, "GET", "/proxy/there", request))[1].url, "/there");
}

async function errors(place, port) {
  await place.refused(502, "proxy_refused", "GET", `/proxy/${port}/`);
  for (const target of ["10.0.0.1:80", "example.org:80", "127.0.0.1:0"])
    await place.refused(400, "validation_error", "GET", "/proxy/", { headers: { "X-Proxy-Target": target } });
}
