// What the page asks of the server: each drawing has an id; leaving a page stops its queries, a long one shows how far it is, a
// session that has ended leads to the login, and a server that does not answer is said to be away.
(function (tt) {
  "use strict";
  const original = window.fetch.bind(window);
  const SHOWN_AFTER = 900; // ms
  const ASKED_EVERY = 700;
  const MOST_STOPS = 20;
  const waiting = new Map(); // view id -> answers still on their way
  let view = "";
  let timer = 0;
  let begun = 0;
  let lost = -1; // when a request last failed

  const words = () => (document.getElementById("words") || { dataset: {} }).dataset;
  const name = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

  // Asked again while its answer is out: a view that was between two statements is stopped in the next one.
  function stop(id, times = 0) {
    original("/api/v1/views/" + id, { method: "DELETE", keepalive: true }).catch(() => undefined);
    if (times < MOST_STOPS) setTimeout(() => waiting.get(id) && stop(id, times + 1), ASKED_EVERY);
  }

  function bar() {
    let node = document.getElementById("tt-progress");
    if (!node) {
      node = tt.make("div", { id: "tt-progress", class: "tt-progress", role: "status", hidden: true }, tt.make("span", {}), tt.make("button", { class: "tt-button is-small", onclick: () => stop(view) }));
      document.body.append(node);
    }
    return node;
  }

  function away(shown) {
    if (shown) lost = performance.now();
    let node = document.getElementById("tt-away");
    if (!shown) return node && node.remove();
    if (node) return undefined;
    const again = () => window.dash_clientside.set_props("tick", { data: Date.now() });
    node = tt.make("div", { id: "tt-away", class: "tt-away", role: "alert" }, words().away || "The server does not answer.", " ",
      tt.make("button", { class: "tt-button is-small", onclick: again }, words().again || "Try again"));
    document.body.append(node);
    return undefined;
  }

  async function tell() {
    clearTimeout(timer);
    const id = view;
    if (!waiting.get(id)) return void (bar().hidden = true);
    timer = setTimeout(tell, ASKED_EVERY);
    if (performance.now() - begun < SHOWN_AFTER) return undefined;
    let share = "";
    try {
      const found = await (await original("/api/v1/views/" + id)).json();
      if (found.rows_total) share = Math.min(100, Math.round((100 * found.rows_read) / found.rows_total)) + " %";
    } catch (error) { /* the next round asks again */ }
    if (view !== id || !waiting.get(id)) return undefined;
    const node = bar();
    node.hidden = false;
    node.firstChild.textContent = tt.words(words().progress || "{seconds} s {share}", { seconds: Math.round((performance.now() - begun) / 1000), share });
    node.lastChild.textContent = words().cancel || "Cancel";
    return undefined;
  }

  function ended(id) {
    const left = (waiting.get(id) || 1) - 1;
    if (left) waiting.set(id, left);
    else waiting.delete(id);
    if (id === view) tell();
  }

  // What static/first.js has asked for already, if that is what Dash asks for first.
  function early(options) {
    const first = tt.first;
    tt.first = null;
    const asked = JSON.parse(options.body).inputs.map((one) => one.value);
    return first && asked[0] === first.pathname && asked[1] === first.search ? first : null;
  }

  window.fetch = async function (input, options) {
    const url = typeof input === "string" ? input : (input && input.url) || "";
    if (!url.includes("_dash-update-component")) return original(input, options);
    const draws = options && typeof options.body === "string" && options.body.includes("body.children..");
    const first = draws ? early(options) : null;
    if (draws) {
      if (waiting.get(view)) stop(view);
      view = first ? first.view : name();
      begun = performance.now();
    }
    const id = view;
    waiting.set(id, (waiting.get(id) || 0) + 1);
    clearTimeout(timer);
    timer = setTimeout(tell, SHOWN_AFTER);
    const asked = performance.now();
    const headers = new Headers((options && options.headers) || {});
    headers.set("X-Tailtrace-View", id);
    try {
      // The chart library is read while the answer is on its way.
      if (first && first.charts) tt.charts().catch(() => undefined);
      let answer = first && (await first.answer);
      if (!answer || !answer.ok) answer = await original(input, { ...options, headers });
      // An answer to what was asked before the server went away says nothing of now.
      if (answer.status >= 502 || asked > lost) away(answer.status >= 502);
      if (answer.status !== 401) return answer;
      // The page is being left; Dash would read the body of a 401 twice and fail at it.
      window.location.assign("/login?next=" + encodeURIComponent(window.location.pathname + window.location.search));
      return new Promise(() => undefined);
    } catch (error) {
      away(true);
      throw error;
    } finally {
      ended(id);
    }
  };
  window.addEventListener("pagehide", () => waiting.get(view) && stop(view));
})(window.tailtrace);
