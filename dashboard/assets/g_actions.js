// Buttons that change something: one request to the API, then the page draws itself anew, or the answer is told beside the button.
(function (tt) {
  "use strict";
  document.addEventListener("click", async function (event) {
    if (event.target.closest("[data-again]")) return window.dash_clientside.set_props("tick", { data: Date.now() });
    const button = event.target.closest("button[data-post]");
    if (!button || button.disabled) return undefined;
    if (button.dataset.confirm && !window.confirm(button.dataset.confirm)) return undefined;
    button.disabled = true;
    const told = button.nextElementSibling;
    if (told && told.matches(".tt-told")) told.remove();
    const say = (words, bad) => button.after(tt.make("span", { class: (bad ? "tt-bad" : "tt-good") + " tt-told", role: bad ? "alert" : "status" }, " " + words));
    try {
      const sent = { method: button.dataset.method || "POST", headers: { "Content-Type": "application/json" } };
      if (button.dataset.body) sent.body = button.dataset.body;
      const answer = await fetch(button.dataset.post, sent);
      const found = answer.status === 204 ? {} : await answer.json();
      if (!answer.ok) throw new Error((found.error || {}).message || String(answer.status));
      if ("delivered" in found) return say(found.delivered ? button.dataset.good : found.error, !found.delivered);
      if (button.dataset.then) tt.go(button.dataset.then);
      window.dash_clientside.set_props("tick", { data: Date.now() });
    } catch (error) {
      say(String(error.message || error), true);
    } finally {
      button.disabled = false;
    }
    return undefined;
  });
})(window.tailtrace);
