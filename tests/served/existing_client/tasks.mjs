// Section 4b: tasks, their events, and their input.

import { all, eventsOf, is, isTime, named, ok, same, step } from "./asked.mjs";

const SHORT = "id command status guest_pid exit_code log_truncated timed_out created_at started_at exited_at ttl_seconds";
const FULL = `success ${SHORT} stdout stderr truncated`;
const output = (events, name = "stdout") =>
  Buffer.concat(events.filter((event) => event.name === name).map((event) => Buffer.from(event.data.data, "base64"))).toString();

export async function useTasks(place, label) {
  await step(`run, ${label}`, () => run(place));
  await step(`events, ${label}`, () => events(place));
  await step(`resume, ${label}`, () => resume(place));
  await step(`input, ${label}`, () => input(place));
  await step(`removal, ${label}`, () => removal(place));
  await step(`errors of tasks, ${label}`, () => errors(place));
}

async function run(place) {
  const start = (json) => place.call("POST", "/exec", { json });
  const task = await start({ cmd: ["sh", "-c", "echo out; echo err >&2; exit 3"], keep_logs: true, ttl_seconds: 600 });
  named(task, FULL);
  same([task.status, task.exit_code, task.stdout, task.stderr], ["exited", 3, "out\n", "err\n"]);
  same([task.truncated, task.log_truncated, task.timed_out, task.ttl_seconds], [false, false, false, 600]);
  ok(/^\d+$/.test(task.id) && task.guest_pid > 0);
  for (const name of ["created_at", "started_at", "exited_at"]) isTime(task[name]);
  is((await start({ cmd: ["echo $((40+2))"] })).stdout, "42\n");
  is((await start({ cmd: "echo $A | tr a b", env: { A: "aa" } })).stdout, "bb\n");
  is((await start({ cmd: ["echo", "$HOME"], exec_mode: "direct" })).stdout, "$HOME\n");
  is((await start({ cmd: ["echo", "a", "&&", "echo", "b"], exec_mode: "shell" })).stdout, "a\nb\n");
  const late = await start({ cmd: ["sleep", "30"], timeout_seconds: 1 });
  same([late.status, late.exit_code, late.timed_out], ["failed", 124, true]);
  const shown = await place.call("GET", `/exec/${task.id}`);
  same(shown, task);
  const list = await place.call("GET", "/exec");
  named(list, "success tasks");
  is(list.tasks[0].id, late.id);
  for (const each of list.tasks) named(each, SHORT, "error");
}

async function events(place) {
  const response = await place.send("POST", "/exec/stream", { json: { cmd: "echo one; echo two >&2; exit 5" } });
  is(response.status, 200);
  ok(response.headers.get("content-type").startsWith("text/event-stream"));
  const found = await all(eventsOf(response));
  const [first, last] = [found[0], found.at(-1)];
  is(first.name, "task_id");
  same(first.data, { task_id: first.id.split("-")[0] });
  same([output(found), output(found, "stderr")], ["one\n", "two\n"]);
  is(last.name, "exit");
  named(last.data, "exit_code pid status");
  same([last.data.exit_code, last.data.status], [5, "exited"]);
  is(last.id, `${first.data.task_id}-8`);
}

async function resume(place) {
  const begun = await place.send("POST", "/exec/stream", { json: { cmd: "printf 0123456789; sleep 1; printf abcdef" } });
  let id = "", task = "";
  for await (const event of eventsOf(begun)) {
    if (event.name === "task_id") task = event.data.task_id;
    if (event.name === "stdout") {
      id = event.id;
      break;
    }
  }
  ok(id.startsWith(`${task}-`));
  const follow = async (query, headers) =>
    output(await all(eventsOf(await place.send("GET", "/exec/stream", { query: { task_id: task, ...query }, headers }))));
  is(await follow({}, { "Last-Event-ID": id }), "0123456789abcdef".slice(Number(id.split("-")[1])));
  is(await follow({ offset: "12" }), "cdef");
  is(await follow({ offset: "4" }, { "Last-Event-ID": id }), "456789abcdef");
  is(await follow({}), "0123456789abcdef");
}

async function input(place) {
  const begun = await place.send("POST", "/exec/stream", { json: { cmd: ["cat"] } });
  const found = [];
  for await (const event of eventsOf(begun)) {
    found.push(event);
    if (event.name !== "task_id") continue;
    const give = (body, query) =>
      place.call("POST", `/exec/${event.data.task_id}/input`, { body, query, headers: { "Content-Type": "application/octet-stream" } });
    same(await give(Buffer.from("typed\n")), { success: true, bytes_written: 6 });
    same(await give("", { eof: "true" }), { success: true, bytes_written: 0 });
  }
  is(output(found), "typed\n");
  is(found.at(-1).data.exit_code, 0);
  await place.refused(409, "task_ended", "POST", `/exec/${found[0].data.task_id}/input`, { body: "x" });
}

async function removal(place) {
  const begun = await place.send("POST", "/exec/stream", { json: { cmd: ["sleep", "600"] } });
  const { value: first } = await eventsOf(begun).next();
  const task = first.data.task_id;
  is((await place.call("GET", `/exec/${task}`)).status, "running");
  const gone = await place.call("DELETE", `/exec/${task}`);
  named(gone, "success message task");
  named(gone.task, SHORT, "error");
  is(gone.task.id, task);
  await place.refused(404, "not_found", "GET", `/exec/${task}`);
  const all = await place.call("DELETE", "/exec");
  named(all, "success deleted");
  ok(all.deleted > 0);
  same((await place.call("GET", "/exec")).tasks, []);
}

async function errors(place) {
  const wrong = [
    ["cmd", {}], ["cmd", { cmd: [] }], ["cmd", { cmd: [1] }], ["exec_mode", { cmd: "x", exec_mode: "odd" }],
    ["timeout_seconds", { cmd: "x", timeout_seconds: 601 }], ["ttl_seconds", { cmd: "x", ttl_seconds: -1 }],
    ["keep_logs", { cmd: "x", keep_logs: "yes" }], ["env", { cmd: "x", env: { "a b": "c" } }],
    ["working_dir", { cmd: "x", working_dir: "relative" }],
  ];
  for (const [field, json] of wrong) {
    const found = await place.refused(400, "validation_error", "POST", "/exec", { json });
    ok(found.message.includes(field) && found.details[field], `${field}: ${found.message}`);
  }
  for (const query of [{}, { task_id: "x" }]) {
    const found = await place.refused(400, "validation_error", "GET", "/exec/stream", { query });
    ok(found.details.task_id && found.message.includes("task_id"), found.message);
  }
  const failed = await place.call("POST", "/exec", { json: { cmd: ["/no/such/program"] } });
  same([failed.status, typeof failed.error], ["failed", "string"]);
  for (const [method, path] of [["GET", "/exec/999"], ["DELETE", "/exec/999"], ["POST", "/exec/999/input"], ["GET", "/exec/x"]]) {
    await place.refused(404, "not_found", method, path);
  }
  await place.refused(404, "not_found", "GET", "/exec/stream", { query: { task_id: "999" } });
}
