// Runs before the first paint: the reader's theme, or the system's, so that no page flashes in the other one.
(function () {
  var stored = null;
  try { stored = localStorage.getItem("mantine-color-scheme-value"); } catch (error) { /* private mode */ }
  var dark = stored === "dark" || (stored !== "light" && window.matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.setAttribute("data-mantine-color-scheme", dark ? "dark" : "light");
  document.documentElement.style.colorScheme = dark ? "dark" : "light";
})();
