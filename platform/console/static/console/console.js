// Tabs, charts and live views of the admin. Data comes as JSON in the page; nothing of it is run.
"use strict";
(() => {
  const COLORS = ["#6366f1", "#22c55e", "#f59e0b", "#ef4444", "#06b6d4", "#a855f7", "#84cc16", "#ec4899"];
  const charts = [];

  const faint = () => getComputedStyle(document.documentElement).getPropertyValue("--mvm-faint").trim();
  const line = () => getComputedStyle(document.documentElement).getPropertyValue("--mvm-line").trim();

  function dataset(kind, [label, values], index) {
    const color = COLORS[index % COLORS.length];
    const area = kind === "bar" ? { backgroundColor: color, maxBarThickness: 28 } : { borderColor: color, backgroundColor: color };
    return { label, data: values, borderWidth: kind === "bar" ? 0 : 2, pointRadius: 0, tension: 0.2, ...area };
  }

  function optionsOf(kind, extra) {
    const stacked = kind === "bar";
    return {
      animation: false, responsive: true, maintainAspectRatio: false, interaction: { mode: "index", intersect: false },
      plugins: { legend: { labels: { boxWidth: 10, boxHeight: 10, color: faint() } } },
      scales: {
        x: { stacked, grid: { display: false }, ticks: { color: faint(), maxTicksLimit: 7, maxRotation: 0 } },
        y: { stacked, beginAtZero: true, grid: { color: line() }, ticks: { color: faint(), maxTicksLimit: 6 }, ...extra },
      },
    };
  }

  function chartOf(canvas, kind, labels, series, extra = {}) {
    const data = { labels, datasets: series.map((each, index) => dataset(kind, each, index)) };
    const made = new Chart(canvas, { type: kind, data, options: optionsOf(kind, extra) });
    charts.push([made, kind, extra]);
    return made;
  }

  function drawCharts(root) {
    for (const canvas of root.querySelectorAll("canvas[data-chart]:not([data-drawn])")) {
      if (canvas.offsetParent === null) continue; // in a tab that is not shown
      const { kind, labels, series } = JSON.parse(document.getElementById(canvas.dataset.chart).textContent);
      canvas.dataset.drawn = "1";
      chartOf(canvas, kind, labels, series);
    }
  }

  function recolor() {
    for (const [made, kind, extra] of charts) {
      made.options = optionsOf(kind, extra);
      made.update();
    }
  }

  function openTab(link) {
    for (const each of link.parentElement.querySelectorAll("[role=tab]")) {
      const chosen = each === link;
      each.setAttribute("aria-selected", String(chosen));
      document.getElementById(each.getAttribute("aria-controls")).hidden = !chosen;
    }
    const isForm = document.getElementById(link.getAttribute("aria-controls")).classList.contains("mvm-form");
    for (const each of document.querySelectorAll("[data-form-only]")) each.hidden = !isForm;
    history.replaceState(null, "", link.getAttribute("href"));
    drawCharts(document);
  }

  // Event streams, read by fetch: an EventSource cannot send a token.
  async function readEvents(url, token, signal, onMessage) {
    const headers = { Authorization: `Bearer ${token}` };
    const answer = await fetch(url, { headers, signal, cache: "no-store", credentials: "omit" });
    if (!answer.ok) {
      const body = await answer.json().catch(() => ({}));
      throw new Error(body.message || `The stream answered ${answer.status}.`);
    }
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const lines = part.split("\n");
        const data = lines.filter((each) => each.startsWith("data:")).map((each) => each.slice(5)).join("\n");
        const event = lines.find((each) => each.startsWith("event:"));
        if (data && (!event || event.slice(6).trim() === "message")) onMessage(JSON.parse(data));
      }
    }
  }

  const SECONDS = 60;

  function liveChart(root) {
    const labels = Array.from({ length: SECONDS }, (_, index) => (index - SECONDS + 1) + " s");
    const empty = () => Array(SECONDS).fill(null);
    const names = [["CPU %", "cpu_usage"], ["memory %", "memory_usage"], ["disk %", "disk_usage"]];
    const canvas = root.querySelector("canvas[data-live]");
    const drawn = chartOf(canvas, "line", labels, names.map(([label]) => [label, empty()]), { suggestedMax: 100 });
    return (stats) => {
      names.forEach(([, name], index) => {
        const data = drawn.data.datasets[index].data;
        data.shift();
        data.push(typeof stats[name] === "number" ? stats[name] : null);
      });
      drawn.update();
    };
  }

  function logTail(root) {
    const box = root.querySelector("[data-log]");
    return (entry) => {
      if (entry.cleared) { box.textContent = ""; return; }
      const atEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 20;
      box.append((entry.message ?? entry.line ?? entry.text ?? JSON.stringify(entry)) + "\n");
      while (box.childNodes.length > 500) box.firstChild.remove();
      if (atEnd) box.scrollTop = box.scrollHeight;
    };
  }

  async function watch(root, button) {
    const status = root.querySelector("[data-status]");
    const form = root.querySelector("form");
    button.disabled = true;
    status.textContent = "Asking for access…";
    try {
      const answer = await fetch(form.action, { method: "POST", body: new FormData(form), headers: { Accept: "application/json" } });
      if (!answer.ok) throw new Error(answer.status === 403 ? "Your roles do not allow it." : `The admin answered ${answer.status}.`);
      const { token, seconds, stats, log } = await answer.json();
      const ended = new AbortController();
      addEventListener("pagehide", () => ended.abort());
      status.textContent = `Live, for ${Math.round(seconds / 60)} minutes at most.`;
      await Promise.all([
        readEvents(stats, token, ended.signal, liveChart(root)),
        readEvents(log, token, ended.signal, logTail(root)).catch((error) => logTail(root)({ message: error.message })),
      ]);
      status.textContent = "Ended.";
    } catch (error) {
      status.textContent = error.message;
    }
    button.disabled = false;
  }

  addEventListener("load", () => {
    for (const tabs of document.querySelectorAll(".mvm-tabs")) {
      tabs.addEventListener("click", (event) => {
        const link = event.target.closest("[role=tab]");
        if (!link || event.metaKey || event.ctrlKey) return;
        event.preventDefault();
        openTab(link);
      });
    }
    for (const root of document.querySelectorAll("[data-live-root]")) {
      const form = root.querySelector("form");
      form.addEventListener("submit", (event) => {
        event.preventDefault();
        watch(root, form.querySelector("button"));
      });
    }
    drawCharts(document);
    new MutationObserver(recolor).observe(document.documentElement, { attributes: true, attributeFilter: ["class"] });
  });
})();
