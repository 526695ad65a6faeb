// SPDX-License-Identifier: MIT OR Apache-2.0
// theme: light or dark as the viewer chose, before anything is painted. A classic script: modules
// run too late for that. Without a choice the system's setting counts, in style sheets alone.

(() => {
  try {
    const theme = localStorage.getItem("pagewire.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage may be off; then there is no choice to remember.
  }
})();
