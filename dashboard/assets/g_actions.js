// Buttons that change something: one request to the API, then the page draws itself anew.
(function (tt) {
  "use strict";
  document.addEventListener("click", async function (event) {
    if (event.target.closest("[data-again]")) return window.dash_clientside.set_props("tick", { data: Date.now() });
    const button = event.target.closest("button[data-post]");
    if (!button || button.disabled) return;
    button.disabled = true;
    try {
      const answer = await fetch(button.dataset.post, { method: "POST", headers: { "Content-Type": "application/json" }, body: button.dataset.body });
      if (!answer.ok) throw new Error(((await answer.json()).error || {}).message || String(answer.status));
      window.dash_clientside.set_props("tick", { data: Date.now() });
    } catch (error) {
      button.disabled = false;
      button.after(tt.make("span", { class: "tt-bad", role: "alert" }, " " + String(error.message || error)));
    }
  });
})(window.tailtrace);
