// Runs before everything else: asks for the first drawing of the page while the scripts that will show it are still being read
// (assets/b_views.js hands it to Dash), and for the chart library where there will be charts.
(function () {
  const location = { pathname: window.location.pathname, search: window.location.search };
  const view = Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const outputs = ["sidebar.children", "range.children", "controls.children", "drawn.data", "looked.data", "body.tree", "body.children"].map((one) => {
    const [id, property] = one.split(".");
    return { id, property };
  });
  const inputs = [
    { id: "url", property: "pathname", value: location.pathname },
    { id: "url", property: "search", value: location.search },
    { id: "tick", property: "data", value: 0 },
  ];
  const answer = fetch("/_dash-update-component", {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Tailtrace-View": view },
    body: JSON.stringify({
      output: ".." + outputs.map((one) => one.id + "." + one.property).join("...") + "..",
      outputs, inputs, changedPropIds: ["url.pathname", "url.search"], state: [{ id: "drawn", property: "data" }],
    }),
  }).catch(() => null);
  const plotly = document.currentScript.dataset.plotly;
  const charts = !/^\/requests\/./.test(location.pathname);
  if (charts) {
    const link = document.createElement("link");
    Object.assign(link, { rel: "preload", as: "script", href: plotly });
    document.head.append(link);
  }
  window.tailtrace = { plotly, first: { ...location, view, answer, charts } };
})();
