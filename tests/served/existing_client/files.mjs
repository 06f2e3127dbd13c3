// Section 4b: files, lists, streams, searches, archives and links.

import { createHash } from "node:crypto";
import { gunzipSync, gzipSync } from "node:zlib";
import { all, is, isTime, linesOf, named, ok, same, step } from "./asked.mjs";

const ENTRY = "name path type size modified";
const TEXT = "one\ntwo needle\nthree\n";

export async function useFiles(place, label) {
  const root = `/files-${label}`;
  const call = (method, path, request) => place.call(method, path, request);
  await step(`write and read, ${label}`, () => writeAndRead(place, root, call));
  await step(`list, ${label}`, () => list(root, call));
  await step(`stream, ${label}`, () => stream(place, root));
  await step(`search, ${label}`, () => search(root, call));
  await step(`archives, ${label}`, () => archives(place, root, call));
  await step(`links, ${label}`, () => links(place, root, call));
  await step(`errors of files, ${label}`, () => errors(place, root));
  await step(`delete, ${label}`, () => remove(place, root, call));
}

async function writeAndRead(place, root, call) {
  same(await call("POST", "/files/mkdir", { json: { path: `${root}/a/b`, mode: "0750" } }), { success: true, path: `${root}/a/b` });
  await call("POST", "/files/mkdir", { json: { path: `${root}/a/b` } });
  const written = await call("POST", "/files/write", { json: { path: `${root}/a/one.py`, content: TEXT, mode: "0600" } });
  same(written, { success: true, path: `${root}/a/one.py`, size: TEXT.length });
  const deep = { path: `${root}/new/deep/log.txt`, content: "1\n" };
  await place.refused(404, "path_not_found", "POST", "/files/write", { json: deep });
  is((await call("POST", "/files/write", { json: { ...deep, create_dirs: true, append: true } })).size, 2);
  is((await call("POST", "/files/write", { json: { ...deep, append: true } })).size, 4);
  const bytes = Buffer.from([0, 255, 254, 10]);
  await call("POST", "/files/write", { json: { path: `${root}/bytes`, content: bytes.toString("base64"), encoding: "base64" } });
  const read = await call("GET", "/files/read", { query: { path: `${root}/a/one.py` } });
  same(read, {
    success: true, path: `${root}/a/one.py`, content: TEXT, size: TEXT.length, lines: 3, extension: "py", start_line: 1, end_line: 3,
  });
  const part = await call("GET", "/files/read", {
    query: { path: `${root}/a/one.py`, start_line: "2", end_line: "2", with_line_numbers: "true" },
  });
  same([part.content.trimStart(), part.start_line, part.end_line], ["2\ttwo needle\n", 2, 2]);
  const raw = await call("GET", "/files/read", { query: { path: `${root}/bytes` } });
  same([raw.encoding, raw.content], ["base64", bytes.toString("base64")]);
  const stat = await call("GET", "/files/stat", { query: { path: `${root}/a/one.py` } });
  named(stat, "success path name type size modified permissions is_code extension");
  same([stat.name, stat.type, stat.permissions, stat.is_code, stat.extension], ["one.py", "file", "0600", true, "py"]);
  isTime(stat.modified);
  const folder = await call("GET", "/files/stat", { query: { path: `${root}/a/b` } });
  same([folder.type, folder.permissions, folder.is_code], ["directory", "0750", false]);
}

async function list(root, call) {
  const ask = (query) => call("GET", "/files", { query: { path: root, ...query } });
  const plain = await ask({});
  named(plain, "success path entries count truncated");
  same(plain.entries.map((entry) => [entry.name, entry.type]), [["a", "directory"], ["bytes", "file"], ["new", "directory"]]);
  same([plain.path, plain.count, plain.truncated], [root, 3, false]);
  for (const entry of plain.entries) {
    named(entry, ENTRY);
    isTime(entry.modified);
    is(entry.path, `${root}/${entry.name}`);
  }
  const tree = await ask({ nested: "true" });
  same(tree.entries[0].children.map((entry) => entry.name), ["b", "one.py"]);
  same(tree.entries[0].children[0].children, []);
  is(tree.count, 7);
  const flat = await ask({ flatten: "true", light: "true" });
  named(flat.entries[0], "name path type");
  is(flat.count, 7);
  is((await ask({ flatten: "true", max_depth: "2" })).count, 6);
  const full = await ask({ flatten: "true", include_hash: "true", include_content: "true", include_extensions: "true" });
  const one = full.entries.find((entry) => entry.name === "one.py");
  same([one.content, one.extension], [TEXT, "py"]);
  is(one.hash, createHash("sha256").update(TEXT).digest("hex"));
  ok(!("content" in full.entries.find((entry) => entry.name === "bytes")));
  const few = await ask({ flatten: "true", include_content: "true", max_content_budget: "9" });
  same(few.entries.filter((entry) => "content" in entry).map((entry) => entry.name), ["log.txt"]);
  const files = async (query) => {
    const found = await ask({ flatten: "true", ...query });
    return found.entries.filter((entry) => entry.type === "file").map((entry) => entry.name);
  };
  same(await files({ code_files_only: "true" }), ["one.py"]);
  same(await files({ include_ext: "txt,md" }), ["log.txt"]);
  same(await files({ path_filter: "deep" }), ["log.txt"]);
  same(await files({ path_filter: "*.py" }), ["one.py"]);
  same(await files({ ignore_patterns: "a,*.txt" }), ["bytes"]);
  same(await files({ use_gitignore: "true", unknown: "field" }), ["one.py", "bytes", "log.txt"]);
  ok((await call("GET", "/files")).path.startsWith("/"));
}

async function stream(place, root) {
  const response = await place.send("GET", "/files/stream", { query: { path: root, flatten: "true" } });
  ok(response.headers.get("content-type").startsWith("application/x-ndjson"));
  const [start, ...entries] = (await all(linesOf(response))).map((line) => JSON.parse(line));
  const done = entries.pop();
  same(start, { event: "start", path: root });
  same(done, { event: "done", count: 7, truncated: false });
  is(entries.length, 7);
  for (const entry of entries) named(entry, ENTRY);
}

async function search(root, call) {
  const before = await call("GET", "/files/search/init");
  named(before, "success installed path version");
  is((await call("POST", "/files/search/init")).installed, true);
  const found = await call("GET", "/files/search", { query: { q: "NEEDLE", path: root, context_lines: "1" } });
  same(found, {
    success: true, query: "NEEDLE", path: root, total_matches: 1, total_files: 1, capped: false,
    results: { [`${root}/a/one.py`]: [{ line: 2, column: 5, text: "two needle", before: ["one"], after: ["three"] }] },
  });
  const ask = async (query) => (await call("GET", "/files/search", { query: { path: root, ...query } })).total_matches;
  is(await ask({ q: "NEEDLE", case_sensitive: "true" }), 0);
  is(await ask({ q: "^t[wh]", regex: "true" }), 2);
  is(await ask({ q: "need", whole_word: "true" }), 0);
  is(await ask({ q: "e", file_types: "txt", timeout: "5" }), 0);
  is(await ask({ q: "e", ignore_patterns: "a" }), 0);
  const capped = await call("GET", "/files/search", {
    query: { q: "e", path: root, max_results: "1", include_hidden: "true", no_gitignore: "true" },
  });
  same([capped.total_matches, capped.capped], [1, true]);
  same(await call("GET", "/files/search/files", { query: { q: "ONE", path: root } }), {
    success: true, query: "ONE", path: root, files: [`${root}/a/one.py`], total_files: 1, capped: false,
  });
  const none = { q: "ONE", path: root, case_sensitive: "true", include_hidden: "true", max_results: "5", ignore_patterns: "new" };
  is((await call("GET", "/files/search/files", { query: none })).total_files, 0);
}

async function archives(place, root, call) {
  const paths = { paths: [`${root}/a`], exclude_patterns: ["b"] };
  const response = await place.send("POST", "/files/transfer/download", { json: paths });
  is(response.status, 200);
  ok(response.headers.get("content-type").startsWith("application/gzip"));
  const archive = Buffer.from(await response.arrayBuffer());
  const text = gunzipSync(archive).toString("latin1");
  ok(text.includes(`${root.slice(1)}/a/one.py\0`) && !text.includes("/a/b/"));
  const gzip = { headers: { "Content-Type": "application/gzip" } };
  const upload = (body, dest) => ({ ...gzip, body, query: { dest } });
  same(await call("POST", "/files/transfer/upload", upload(archive, `${root}/back`)), {
    success: true, dest: `${root}/back`, files_extracted: 1, skipped: 0,
  });
  is((await call("GET", "/files/read", { query: { path: `${root}/back${root}/a/one.py` } })).content, TEXT);
  const streamed = new ReadableStream({
    start(controller) {
      for (let at = 0; at < archive.length; at += 100) controller.enqueue(archive.subarray(at, at + 100));
      controller.close();
    },
  });
  is((await call("POST", "/files/transfer/upload", upload(streamed, `${root}/again`))).files_extracted, 1);
  const broken = await place.refused(400, "archive_invalid", "POST", "/files/transfer/upload", upload("no archive", `${root}/x`));
  is(broken.details.files_extracted, 0);
  await place.refused(400, "archive_invalid", "POST", "/files/transfer/upload", upload(gzipSync("no tar".repeat(500)), `${root}/x`));
  await place.refused(404, "path_not_found", "POST", "/files/transfer/download", { json: { paths: [`${root}/absent`] } });
  await call("POST", "/files/delete", { query: { path: `${root}/back` } });
  await call("POST", "/files/delete", { json: { path: `${root}/again` } });
  await call("POST", "/files/delete", { json: { path: `${root}/x` } });
}

async function links(place, root, call) {
  const link = async (fields) => call("POST", "/files/links", { json: { path: `${root}/linked`, ttl_seconds: 60, ...fields } });
  const put = await link({ method: "PUT", max_bytes: 10 });
  named(put, "success url expires_at");
  isTime(put.expires_at);
  const bytes = Buffer.from("0123456789");
  is((await fetch(put.url, { method: "PUT", body: "longer than ten" })).status, 413);
  const done = await fetch(put.url, { method: "PUT", body: bytes });
  same([done.status, await done.json()], [200, { success: true, size: 10 }]);
  const got = await link({ method: "GET" });
  is(await (await fetch(got.url)).text(), "0123456789");
  const part = await fetch(got.url, { headers: { Range: "bytes=2-4" } });
  same([part.status, await part.text(), part.headers.get("content-range")], [206, "234", "bytes 2-4/10"]);
  is((await fetch(got.url, { headers: { Range: "bytes=99-" } })).status, 416);
  is((await fetch(put.url)).status, 405);
  is((await fetch(got.url, { method: "PUT", body: "x" })).status, 405);
  is((await fetch(`${got.url}x`)).status, 401);
  const short = await place.refused(400, "validation_error", "POST", "/files/links", { json: { path: "/x", method: "GET", ttl_seconds: 59 } });
  ok(short.message.includes("ttl_seconds") && short.details.ttl_seconds, short.message);
  await call("POST", "/files/delete", { json: { path: `${root}/linked` } });
}

async function errors(place, root) {
  const wrong = {
    "/files": [{ max_depth: "65" }, { max_depth: "no" }, { nested: "yes" }, { path: "relative" }, { max_content_budget: "-1" }],
    "/files/stream": [{ max_depth: "0" }],
    "/files/read": [{ path: "" }, { path: `${root}/bytes`, start_line: "0" }, { path: `${root}/bytes`, start_line: "3", end_line: "2" }],
    "/files/stat": [{ path: "a" }],
    "/files/search": [{ q: "" }, { q: "(", regex: "true" }, { q: "x", context_lines: "11" }, { q: "x", max_results: "1001" }],
    "/files/search/files": [{ q: "x", max_results: "0" }],
  };
  for (const [path, queries] of Object.entries(wrong)) {
    for (const query of queries) {
      const field = { regex: "q", start_line: "start_line" }[Object.keys(query)[1]] ?? Object.keys(query).at(-1);
      const named = query.end_line ? "end_line" : field;
      const found = await place.refused(400, "validation_error", "GET", path, { query });
      ok(found.message.includes(named) && found.details[named].length, `${path} ${named}: ${found.message}`);
    }
  }
  const bodies = {
    "/files/write": [{ path: "/x", content: 1 }, { path: "/x", content: "!", encoding: "base64" }, { path: "/x", content: "", mode: "999" }],
    "/files/mkdir": [{ path: "x" }],
    "/files/delete": [{ path: 1 }],
    "/files/transfer/download": [{ paths: [] }, { paths: ["/a/../b"] }],
  };
  const fields = ["content", "content", "mode", "path", "path", "paths", "paths"];
  for (const [path, given] of Object.entries(bodies)) {
    for (const json of given) {
      const field = fields.shift();
      const found = await place.refused(400, "validation_error", "POST", path, { json });
      ok(found.message.includes(field) && (found.details[field] ?? found.details[`${field}.0`]), `${path} ${field}: ${found.message}`);
    }
  }
  await place.refused(400, "invalid_json", "POST", "/files/write", { body: "{" });
  await place.refused(400, "path_invalid", "POST", "/files/delete", { json: { path: "/" } });
  for (const path of ["/files", "/files/stream", "/files/read", "/files/stat"]) {
    await place.refused(404, "path_not_found", "GET", path, { query: { path: `${root}/absent` } });
  }
  await place.refused(400, "path_invalid", "GET", "/files/read", { query: { path: root } });
  await place.refused(400, "validation_error", "POST", "/files/transfer/upload", { query: { dest: "here" }, body: "" });
}

async function remove(place, root, call) {
  await place.refused(404, "path_not_found", "POST", "/files/delete", { json: { path: `${root}/absent` } });
  await place.refused(400, "validation_error", "POST", "/files/delete");
  same(await call("POST", "/files/delete", { json: { path: root } }), { success: true, path: root });
  await place.refused(404, "path_not_found", "GET", "/files/stat", { query: { path: root } });
}
