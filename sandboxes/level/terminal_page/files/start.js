// Runs before anything else of the page is loaded: the token leaves the address bar and this entry of the history at once.
"use strict";

(() => {
  const nonce = document.currentScript.nonce;
  const createElement = document.createElement.bind(document);

  // The terminal makes style elements of its own, which the page's policy allows with the nonce only.
  document.createElement = (name, options) => {
    const made = createElement(name, options);
    if (made instanceof HTMLStyleElement) made.nonce = nonce;
    return made;
  };

  function takeFromAddress() {
    const found = new URLSearchParams(location.hash.slice(1)).get("token") ?? "";
    if (location.hash) history.replaceState(null, "", location.pathname + location.search);
    return found;
  }

  let first = takeFromAddress();
  // The token of the address, once; also of one that was typed into the address bar of the open page.
  window.takeToken = () => {
    const taken = first || takeFromAddress();
    first = "";
    return taken;
  };
})();
