// Runs before everything else: takes what the server has drawn of the page, which follows in the same answer once it is there
// (assets/b_views.js hands it to Dash), and asks for the chart library where there will be charts.
(function () {
  const location = { pathname: window.location.pathname, search: window.location.search };
  const answer = new Promise((there) => document.addEventListener("DOMContentLoaded", () => {
    const drawn = document.getElementById("first-drawing");
    there(drawn && new Response(drawn.textContent, { headers: { "Content-Type": "application/json" } }));
    if (drawn) drawn.remove();
  }));
  const plotly = document.currentScript.dataset.plotly;
  const charts = /^\/(compare|gpus|map|replicas|slos)/.test(location.pathname); // charts over time need no library
  if (charts) {
    const link = document.createElement("link");
    Object.assign(link, { rel: "preload", as: "script", href: plotly });
    document.head.append(link);
  }
  window.tailtrace = { plotly, first: { ...location, view: document.documentElement.dataset.view, answer, charts } };
})();
