"""A page that subscribes a browser as a device, and the service worker that shows what is sent to it."""
