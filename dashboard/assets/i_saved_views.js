// Named views: name -> address without its cursor, in this browser's storage.
(function (tt) {
  "use strict";
  const KEY = "tailtrace-views";

  function load() {
    try {
      const found = JSON.parse(localStorage.getItem(KEY) || "{}");
      return found && typeof found === "object" ? found : {};
    } catch (error) {
      return {};
    }
  }

  function here() {
    const parameters = new URLSearchParams(window.location.search);
    parameters.delete("cursor");
    return window.location.pathname + (parameters.size ? "?" + parameters : "");
  }

  function fill(place, words) {
    const keep = (views) => (localStorage.setItem(KEY, JSON.stringify(views)), fill(place, words));
    const views = load();
    const name = tt.make("input", { type: "text", maxlength: "60", placeholder: words.name, "aria-label": words.name, class: "tt-find" });
    const save = () => name.value.trim() && keep({ ...load(), [name.value.trim()]: here() });
    name.addEventListener("keydown", (event) => event.key === "Enter" && save());
    const rows = Object.entries(views).filter(([, path]) => String(path).startsWith("/") && !String(path).startsWith("//")).map(([key, path]) =>
      tt.make("div", { class: "tt-saved-row" },
        tt.make("a", { href: path, "data-nav": "1" }, key),
        tt.make("button", { class: "tt-plain", "aria-label": words.remove + ": " + key, onclick: () => { const left = load(); delete left[key]; keep(left); } }, "×")));
    place.replaceChildren(
      ...(rows.length ? rows : [tt.make("span", { class: "tt-muted" }, words.none)]),
      tt.make("div", { class: "tt-saved-row" }, name, tt.make("button", { class: "tt-button is-small", onclick: save }, words.save)));
  }

  tt.SavedViews = function ({ words }) {
    const { createElement, useEffect, useRef } = window.React;
    const place = useRef(null);
    useEffect(() => fill(place.current, words), []);
    return createElement("div", { ref: place, id: "saved-views", className: "tt-drop tt-saved" });
  };
})(window.tailtrace);
