// Forms that change rules and channels: their fields as one JSON object to the API, its refusal in words beside the button.
(function (tt) {
  "use strict";

  const read = {
    number: (text) => Number(text),
    list: (text) => text.split(",").map((one) => one.trim()).filter(Boolean),
    bool: (text) => text === "true",
  };

  // {name: value} of what is filled in; an empty field stays unsaid, so that the API's own default holds.
  function values(form) {
    const found = JSON.parse(form.dataset.fixed || "{}");
    for (const control of form.querySelectorAll("input[name],select[data-name]")) {
      const [name, kind] = (control.name || control.dataset.name).split(":");
      if (control.value !== "") found[name] = (read[kind] || String)(control.value);
    }
    return found;
  }

  document.addEventListener("submit", async function (event) {
    const form = event.target.closest("form[data-send]");
    if (!form) return;
    event.preventDefault();
    const body = values(form);
    const path = form.dataset.send.replace("{name}", encodeURIComponent(body.name || ""));
    form.querySelectorAll("[role=alert]").forEach((one) => one.remove());
    try {
      const answer = await fetch(path, { method: form.dataset.method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
      if (!answer.ok) throw new Error(((await answer.json()).error || {}).message || String(answer.status));
      tt.go(form.dataset.then);
      window.dash_clientside.set_props("tick", { data: Date.now() });
    } catch (error) {
      form.append(tt.make("p", { class: "tt-bad", role: "alert" }, String(error.message || error)));
    }
  });
})(window.tailtrace);
