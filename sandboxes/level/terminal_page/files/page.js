// The page: tabs of terminals over one connection. After the connection was cut each goes on at the byte it had reached.

import { Connection } from "./connection.js";
import { Tab } from "./tab.js";

const STATE_LINES = 2000;
const element = (id) => document.getElementById(id);
const [tabsBar, screens, newButton, others, status, connectButton, ask, tokenField] = [
  "tabs", "screens", "new", "others", "status", "connect", "ask", "token",
].map(element);

const tabs = [];
const waiting = new Map(); // what to do with an answer, by its requestId
let shown = null;
let requests = 0;
let losses = []; // of this connection; shown for as long as it lasts, as a person may look later
let refusal = ""; // why the last terminal that was asked for was not made, until one is

const connection = new Connection({
  opened: goOn,
  message: handleMessage,
  output: (frame) => tabOf(frame[0])?.write(frame.subarray(1)),
  lost: (text, seconds) => detachAll(`${text}; next attempt in ${seconds} s`),
  stopped: (text) => {
    detachAll(text);
    connectButton.hidden = false;
  },
  refused: (text) => {
    detachAll(text);
    askForToken();
  },
});

function tabOf(id) {
  return tabs.find((tab) => tab.id === id);
}

function show(text) {
  status.textContent = text;
}

function showConnected() {
  show([...losses, refusal].filter(Boolean).join("; ") || "Connected");
}

function request(message, answered) {
  requests += 1;
  waiting.set(requests, answered);
  connection.send({ ...message, requestId: requests });
}

function connect(token) {
  ask.hidden = connectButton.hidden = true;
  show("Connecting");
  connection.open(token);
}

function askForToken() {
  newButton.disabled = others.hidden = true;
  ask.hidden = false;
  tokenField.value = "";
  tokenField.focus();
}

function detachAll(text) {
  waiting.clear();
  newButton.disabled = others.hidden = true;
  for (const tab of tabs) tab.detach();
  show(text);
}

function goOn() {
  newButton.disabled = false;
  losses = [];
  refusal = "";
  for (const tab of [...tabs]) {
    if (!tab.id) discard(tab); // it was asked for as the connection was cut; if it exists, it is in the list
    else attach(tab);
  }
  if (!tabs.length) create();
  else if (!shown) select(tabs[0]);
  listOthers(showConnected); // answered after all that was sent before it
}

function attach(tab) {
  request({ action: "terminal_attach", id: tab.id, offset: tab.received, ack: true }, (message) => {
    if (message.type === "terminal_error" && !tab.ended) tab.end(message.message);
  });
}

function restore(tab, id) {
  request({ action: "get_state", id, maxLines: STATE_LINES, ack: true }, (message) => {
    if (message.type === "terminal_state") tab.restore(message);
    else if (!tab.ended) tab.end(message.message);
  });
}

function create() {
  const tab = open();
  request({ action: "terminal_create", ...tab.size, ack: true }, (message) => {
    const before = refusal;
    if (message.type === "terminal_created") {
      refusal = "";
      tab.attach({ ...message, offset: 0 });
    } else {
      refusal = message.message;
      discard(tab);
    }
    if (before || refusal) showConnected();
  });
}

function open() {
  const tab = new Tab(connection, { tabs: tabsBar, screens, select, close });
  tabs.push(tab);
  select(tab);
  return tab;
}

function select(tab) {
  shown = tab;
  for (const each of tabs) each.show(each === tab);
}

function discard(tab) {
  tabs.splice(tabs.indexOf(tab), 1);
  tab.remove();
  if (shown !== tab) return;
  shown = null;
  if (tabs.length) select(tabs[0]);
}

function close(tab) {
  if (!tab.id || !connection.isOpen) return;
  request({ action: "terminal_close", terminalId: tab.id }, () => {
    discard(tab);
    listOthers();
  });
}

function listOthers(answered) {
  request({ action: "terminal_list" }, (message) => {
    if (message.type === "terminal_error") show(message.message);
    else answered?.();
    const found = (message.terminals ?? []).filter((each) => each.running && !tabOf(each.terminalId));
    others.replaceChildren(new Option(`${found.length} more`, ""));
    for (const each of found) others.append(new Option(`Terminal ${each.terminalId}`, each.terminalId));
    others.hidden = !found.length;
  });
}

// A gap: what the program said in between is gone, so the screen is made again from what is known of it.
function attached(message) {
  const tab = tabOf(message.terminalId);
  if (!tab) return;
  tab.attach(message);
  if (!message.skipped) return;
  losses.push(`${message.skipped.toLocaleString("en")} bytes of terminal ${tab.id} were not kept for this page`);
  showConnected();
  restore(tab, tab.id);
}

function exited({ terminalId, exitCode, signal }) {
  const tab = tabOf(terminalId);
  if (tab && !tab.ended) tab.end(signal ? `ended by signal ${signal}` : `ended with code ${exitCode}`);
}

function handleMessage(message) {
  const answered = waiting.get(message.requestId);
  waiting.delete(message.requestId);
  if (message.type === "terminal_attached") attached(message);
  else if (message.type === "terminal_exited") exited(message);
  else if (message.type === "terminal_closed" && !answered) tabOf(message.terminalId)?.end("closed elsewhere");
  else if (message.type === "terminal_error" && !answered) show(message.message);
  answered?.(message);
}

newButton.onclick = () => create();
connectButton.onclick = () => connect();
others.onchange = () => {
  const id = Number(others.value);
  if (!id || tabOf(id)) return;
  const tab = open();
  tab.id = id;
  tab.label.textContent = `Terminal ${id}`;
  restore(tab, id);
  listOthers();
};
ask.onsubmit = (event) => {
  event.preventDefault();
  connect(tokenField.value.trim());
  tokenField.value = "";
};
addEventListener("hashchange", () => {
  const token = window.takeToken();
  if (token) connect(token);
});

document.title = `Terminal ${location.pathname.split("/").at(-2) || location.hostname.split(".")[0]}`;
const given = window.takeToken();
if (given) {
  connect(given);
} else {
  show("");
  askForToken();
}
