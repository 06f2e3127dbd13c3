// Shows what is sent to this browser. It asks for nothing, and follows no address that a message names.

const PAGE = "/notifications/browser";

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("push", (event) => {
  const { title, body, data } = messageOf(event.data);
  event.waitUntil(self.registration.showNotification(title || "Notification", { body: body || "", data }));
});

function messageOf(sent) {
  try {
    return sent.json() || {};
  } catch {
    return { body: sent ? sent.text() : "" };
  }
}

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(showPage());
});

async function showPage() {
  const pages = await self.clients.matchAll({ type: "window", includeUncontrolled: true });
  const open = pages.find((page) => new URL(page.url).pathname === PAGE);
  return open ? open.focus() : self.clients.openWindow(PAGE);
}
