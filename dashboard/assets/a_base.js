// Shared helpers of the page scripts. Everything read from telemetry is written with textContent, never as HTML.
(function (tt) {
  "use strict";

  function three(value) {
    return value < 9.995 ? value.toFixed(2) : value < 99.95 ? value.toFixed(1) : Math.round(value).toLocaleString("en");
  }

  // Nanoseconds as text, like dashboard/format.py.
  tt.duration = function (ns) {
    if (ns === null || ns === undefined) return "–";
    if (ns === 0) return "0";
    const size = Math.abs(ns);
    if (size >= 999.5e6) return three(ns / 1e9) + " s";
    if (size >= 999.5e3) return three(ns / 1e6) + " ms";
    if (size >= 999.5) return three(ns / 1e3) + " µs";
    return Math.round(ns) + " ns";
  };

  // tt.make("div", {class: "x", title: "y", "data-z": 1}, "text" | node, ...)
  tt.make = function (tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [key, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
      else node.setAttribute(key, value === true ? "" : value);
    }
    for (const child of children) {
      if (child === null || child === undefined) continue;
      node.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return node;
  };

  tt.words = function (template, values) {
    return template
      .replace(/\{(\w+)\|([^|}]*)\|([^}]*)\}/g, (whole, key, one, more) => (String(values[key]) === "1" ? one : more))
      .replace(/\{(\w+)\}/g, (whole, key) => (key in values ? values[key] : whole));
  };

  tt.stageColour = (stage) => (stage ? "var(--stage-" + stage.replace(/[^a-z_]/g, "") + ")" : "var(--span)");

  // The part of the address that only the browser needs: replaced, never pushed, so Back leaves the page.
  tt.remember = function (changes) {
    const parameters = new URLSearchParams(window.location.search);
    for (const [key, value] of Object.entries(changes)) {
      if (value === null || value === "") parameters.delete(key);
      else parameters.set(key, value);
    }
    const query = parameters.toString();
    window.history.replaceState(window.history.state, "", window.location.pathname + (query ? "?" + query : ""));
  };

  // The reader's time zone: a choice kept in a cookie, else UTC.
  tt.zone = function () {
    const found = document.cookie.match(/(?:^|; )tailtrace_zone=([^;]+)/);
    return found ? decodeURIComponent(found[1]) : "UTC";
  };

  // How far the zone is ahead of UTC at an instant, in ms.
  function ahead(instant) {
    const parts = new Intl.DateTimeFormat("en-US", {
      timeZone: tt.zone(), hourCycle: "h23", year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric",
    }).formatToParts(instant);
    const at = Object.fromEntries(parts.map((part) => [part.type, Number(part.value)]));
    return Date.UTC(at.year, at.month - 1, at.day, at.hour, at.minute, at.second) - Math.floor(instant / 1000) * 1000;
  }

  // "2026-11-30 14:05:00" in the reader's zone, as charts and pickers have it, to ISO in UTC, as addresses have it.
  tt.addressTime = function (text) {
    const shown = Date.parse(String(text).replace(" ", "T").slice(0, 19).padEnd(16, "T00:00") + "Z");
    return new Date(shown - ahead(shown - ahead(shown))).toISOString().slice(0, 19) + "Z";
  };

  // The other way; Unix nanoseconds are understood too.
  tt.pickerTime = function (text) {
    if (!text) return "";
    const instant = /^\d+$/.test(text) ? Number(BigInt(text) / 1000000n) : Date.parse(/Z|[+-]\d\d:?\d\d$/.test(text) ? text : text + "Z");
    return Number.isFinite(instant) ? new Date(instant + ahead(instant)).toISOString().slice(0, 19).replace("T", " ") : "";
  };

  tt.copy = async function (text, button) {
    let done = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch (error) {
      const area = tt.make("textarea", { style: "position:fixed;opacity:0" });
      area.value = text;
      document.body.append(area);
      area.select();
      done = document.execCommand("copy");
      area.remove();
    }
    if (done && button) {
      button.classList.add("is-copied");
      setTimeout(() => button.classList.remove("is-copied"), 1200);
    }
  };

  // Follow a link of the application without loading anew; dcc.Location listens for this event.
  tt.go = function (href) {
    const before = window.location.pathname;
    window.history.pushState({}, "", href);
    window.dispatchEvent(new CustomEvent("_dashprivate_pushstate"));
    if (window.location.pathname !== before) window.scrollTo(0, 0);
  };

  // The part of Plotly that has our kinds of charts, loaded once.
  let charts = null;
  tt.charts = function () {
    charts = charts || new Promise((loaded, failed) => document.head.append(tt.make("script", { src: tt.plotly, onload: loaded, onerror: failed })));
    return charts;
  };

  document.addEventListener("click", function (event) {
    const anchor = event.target.closest("a[data-nav]");
    if (anchor && event.button === 0 && !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey)) {
      event.preventDefault();
      tt.go(anchor.getAttribute("href"));
      return;
    }
    const target = event.target.closest("[data-copy],[data-copy-link],[data-language],[data-zone],[data-theme],[data-as-table],tr[data-href]");
    if (!target) return;
    if (target.dataset.copy) tt.copy(target.dataset.copy, target);
    else if (target.dataset.copyLink) tt.copy(window.location.origin + target.dataset.copyLink, target);
    else if (target.dataset.asTable) tt.asTable(target);
    else if (target.dataset.zone) {
      const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
      const zone = target.dataset.zone === "own" ? own : target.dataset.zone;
      document.cookie = "tailtrace_zone=" + encodeURIComponent(zone) + ";path=/;max-age=31536000;samesite=lax";
      window.location.reload();
    } else if (target.dataset.theme) {
      localStorage.setItem("mantine-color-scheme-value", target.dataset.theme);
      window.location.reload();
    } else if (target.dataset.language) {
      document.cookie = "tailtrace_language=" + target.dataset.language + ";path=/;max-age=31536000;samesite=lax";
      window.location.reload();
    } else if (!event.target.closest("a,button") && !String(window.getSelection())) {
      if (event.ctrlKey || event.metaKey || event.shiftKey) window.open(target.dataset.href, "_blank", "noopener");
      else tt.go(target.dataset.href);
    }
  });

  function announceTheme() {
    const scheme = document.documentElement.getAttribute("data-mantine-color-scheme");
    document.documentElement.style.colorScheme = scheme;
    window.dispatchEvent(new Event("tt-theme"));
  }
  new MutationObserver(announceTheme).observe(document.documentElement, { attributeFilter: ["data-mantine-color-scheme"] });
})(window.tailtrace);
