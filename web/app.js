// SPDX-License-Identifier: MIT OR Apache-2.0
// app: the page. Shows what its address names, and follows links without loading it anew.

import { LOGIN, ROOT, carried, searchAddress, viewOf } from "./addresses.js";
import { showFilm } from "./film.js";
import { showLibrary } from "./library.js";
import { startThemeSwitch } from "./theme_switch.js";

const SEARCH_MS = 250;

const main = document.querySelector("main");
const form = document.querySelector(".search");
const field = form.querySelector("input");
let end = () => {};
let shown = "";
let current = {};
// Address at which a search began, and the timer of the next one.
let before = null;
let timer;

// Shows what the address names now.
function show({ keepsFocus = false } = {}) {
  // A place in the page is no other view.
  if (shown === location.pathname + location.search) return;
  shown = location.pathname + location.search;
  end();
  const view = { ...viewOf(location), kept: history.state };
  current = view;
  if (document.activeElement !== field) field.value = view.words ?? "";
  end = view.kind === "film" ? showFilm(main, view) : showLibrary(main, view, navigate);
  // Screen readers begin at the new content.
  if (!keepsFocus) main.focus({ preventScroll: true });
}

function navigate(address, options = {}) {
  clearTimeout(timer);
  if (!options.isSearch) before = null;
  if (address !== location.href) {
    // The way back leads to the same rows at the same place.
    if (!options.replaces) history.replaceState({ rows: current.rows, y: scrollY }, "");
    history[options.replaces ? "replaceState" : "pushState"](null, "", address);
  }
  show(options);
  if (!options.keepsFocus) scrollTo(0, 0);
}

// True for the address of a view of this page.
function isView(url) {
  if (url.origin !== ROOT.origin || !url.pathname.startsWith(ROOT.pathname)) return false;
  if (url.searchParams.has("plain") || url.searchParams.has("all")) return false;
  return url.pathname.endsWith("/") || url.pathname.endsWith("/player.html");
}

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  const isPlain =
    event.button === 0 && !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);
  if (!link || !isPlain || link.target || link.hasAttribute("download")) return;
  const url = new URL(link.href);
  if (url.hash || !isView(url)) return;
  event.preventDefault();
  navigate(url.href);
});
addEventListener("popstate", () => {
  clearTimeout(timer);
  before = null;
  show();
});

function search() {
  const words = field.value.trim();
  const view = viewOf(location);
  if (words === (view.words ?? "")) return;
  const replaces = view.kind === "search";
  // Emptied, the field leads back to where the search began.
  before ??= replaces ? searchAddress("", "") : location.href;
  const address = words ? searchAddress(words, "") : before;
  navigate(address, { keepsFocus: true, isSearch: true, replaces });
  if (!words) before = null;
}

field.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(search, SEARCH_MS);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(timer);
  search();
});
addEventListener("keydown", (event) => {
  const isTyped = event.target.closest?.("input, textarea, select, dialog");
  if (event.key !== "/" || isTyped || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  field.focus();
});

// Relative addresses of the document would change with those of the views.
for (const link of document.querySelectorAll(".brand, .foot a")) link.href = carried(link.href);
const favicon = document.querySelector("link[rel=icon]");
favicon.href = new URL(favicon.href).href;
document.querySelector(".log-in")?.setAttribute("href", LOGIN);
startThemeSwitch(document.querySelector(".theme"));
show({ keepsFocus: true });
