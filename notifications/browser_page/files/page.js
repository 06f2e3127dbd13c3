// Subscribes this browser to the notifications of an account. The access token is never stored.

const API = "/notifications";
const WORKER = "/notifications/browser/worker.js";
const DEVICE_KEY = "notifications-device-id";

/** The id of this browser as a device: made once, and the same after a new subscription. */
export function deviceId() {
  let found = localStorage.getItem(DEVICE_KEY);
  if (!found) {
    found = `browser-${crypto.randomUUID()}`;
    localStorage.setItem(DEVICE_KEY, found);
  }
  return found;
}

export async function startWorker() {
  if (!("serviceWorker" in navigator)) {
    throw new Error("This browser has no service workers here. They need https, or localhost.");
  }
  await navigator.serviceWorker.register(WORKER);
  return await readyRegistration();
}

async function readyRegistration() {
  const registration = await navigator.serviceWorker.getRegistration(WORKER);
  const worker = registration.installing || registration.waiting;
  if (worker && !registration.active) {
    await new Promise((resolve) => worker.addEventListener("statechange", () => {
      if (worker.state === "activated") resolve();
    }));
  }
  return registration;
}

/** Registers a subscription, as `PushSubscription.toJSON()` gives it, as this browser's. */
export async function registerDevice(token, subscription) {
  const body = { device_id: deviceId(), platform: "web", web_push: subscription };
  return await call(token, "POST", "/devices", body);
}

export async function removeDevice(token) {
  return await call(token, "DELETE", `/devices/${encodeURIComponent(deviceId())}`);
}

async function call(token, method, path, body) {
  const response = await fetch(API + path, {
    method,
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    body: body && JSON.stringify(body),
    credentials: "omit",
  });
  const answer = await response.json();
  if (!answer.success) {
    const details = Object.values(answer.details || {}).flat().join(" ");
    throw new Error(details || answer.message);
  }
  return answer;
}

async function subscribe(token) {
  const registration = await startWorker();
  if (await Notification.requestPermission() !== "granted") {
    throw new Error("This browser does not let this page show notifications.");
  }
  const { key } = await call(token, "GET", "/web-push-key");
  const options = { userVisibleOnly: true, applicationServerKey: key };
  const subscription = await registration.pushManager.subscribe(options);
  await registerDevice(token, subscription.toJSON());
  return "Notifications are shown here from now on.";
}

async function unsubscribe(token) {
  const registration = await navigator.serviceWorker?.getRegistration(WORKER);
  const subscription = await registration?.pushManager.getSubscription();
  await subscription?.unsubscribe();
  await removeDevice(token);
  return "Nothing is sent here any more.";
}

async function run(work) {
  const status = document.querySelector("#status");
  status.textContent = "…";
  try {
    status.textContent = await work(document.querySelector("#token").value.trim());
  } catch (error) {
    status.textContent = error.message;
  }
}

document.querySelector("#ask").addEventListener("submit", (event) => {
  event.preventDefault();
  run(subscribe);
});
document.querySelector("#unsubscribe").addEventListener("click", () => run(unsubscribe));
