// SPDX-License-Identifier: MIT OR Apache-2.0
// library: a folder of films, or what was found by words.

import { channels, index, isForbidden, more } from "./api.js";
import {
  LOGIN,
  ROOT,
  addressOf,
  carried,
  plainAddress,
  searchAddress,
  sortedAddress,
} from "./addresses.js";
import { channelCard, fileLine, filmCard, folderCard, isFilm, isSideCar } from "./cards.js";
import { announce, el } from "./dom.js";
import { counted, fileName } from "./format.js";

const PAGE = 120,
  KEPT_MAX = 500,
  NEW_SHOWN = 12,
  NEW_MIN = 24;
const ORDERS = [
  ["", "Best match"],
  ["name", "Name"],
  ["newest", "Newest first"],
  ["duration", "Longest first"],
  ["size", "Largest first"],
];
// Not offered, but an address may have them.
const REVERSED = {
  "-name": "Name, from Z",
  "-newest": "Oldest first",
  "-duration": "Shortest first",
  "-size": "Smallest first",
};

// Shows a view in an element; returns what ends it. `view.kept` has the number of rows and the
// scroll position at which the view was left; `view.rows` becomes the number of rows loaded now.
export function showLibrary(target, view, navigate) {
  const abort = new AbortController();
  const isSearch = view.kind === "search";
  const title = isSearch ? `Results for “${view.words}”` : fileName(view.folder) || "Library";
  document.title = isSearch || view.folder ? `${title} – pagewire` : "pagewire";
  const limit = Math.min(KEPT_MAX, Math.max(PAGE, view.kept?.rows ?? 0));
  const query = isSearch ? { q: view.words, limit } : { folder: view.folder, limit };
  if (view.sort) query.sort = view.sort;
  const count = el("p", { class: "count" });
  const heading = el("h1", { tabindex: "-1", dir: "auto" }, title);
  const body = el("div", { class: "sections" }, skeleton());
  target.replaceChildren(
    el(
      "div",
      { class: "view-head" },
      el("div", { class: "view-title" }, isSearch ? null : crumbs(view.folder), heading, count),
      orders(view, navigate),
    ),
    body,
  );
  load().catch((error) => {
    if (!abort.signal.aborted)
      body.replaceChildren(el("p", { class: "message", role: "alert" }, reason(error)));
  });
  return () => abort.abort();

  function reason(error) {
    if (!isForbidden(error)) return error.message;
    const login = el("a", { href: LOGIN }, "Log in");
    return ["You may not see this list. ", login, ", or open the address of a film that you have."];
  }

  async function load() {
    const isHome = !isSearch && view.folder === "";
    const [found, extras] = await Promise.all([
      index(query, abort.signal),
      isHome ? home(abort.signal) : null,
    ]);
    const hasChannels = isHome && found.channels === true;
    const onNow = hasChannels ? await channels(abort.signal).catch(() => []) : [];
    if (abort.signal.aborted) return;
    const { files, found: figures, total } = found;
    const films = figures.files;
    count.textContent = isSearch
      ? films
        ? counted(films, "file")
        : ""
      : [
          figures.folders_total ? counted(figures.folders_total, "folder") : "",
          films ? counted(films, "file") : "",
        ]
          .filter(Boolean)
          .join(" · ");
    const sections = isHome ? extras(total, figures, onNow) : [];
    if (figures.folders.length > 0) {
      sections.push(
        section(
          "Folders",
          el("ul", { class: "grid" }, figures.folders.map(folderCard)),
          unlisted(figures.folders_total - figures.folders.length),
        ),
      );
    }
    const [grid, lines] = [el("ul", { class: "grid" }), el("ul", { class: "files" })];
    const filmSection = section("Films", grid);
    const lineSection = section("Other files", lines);
    view.rows = 0;
    const add = (rows) => {
      view.rows += rows.length;
      const films = rows.filter(isFilm);
      const others = rows.filter((row) => !isFilm(row) && !isSideCar(row, films));
      grid.append(...films.map(filmCard));
      lines.append(...others.map(fileLine));
      filmSection.hidden = grid.childElementCount === 0;
      lineSection.hidden = lines.childElementCount === 0;
    };
    add(files);
    if (files.length === 0 && figures.folders_total === 0 && sections.length === 0) {
      sections.push(empty(isSearch, total));
    }
    // One kind of thing needs no heading above it.
    const isAlone = sections.length === 0 && lineSection.hidden;
    if (isAlone) filmSection.querySelector("h2").classList.add("hidden");
    body.replaceChildren(...sections, filmSection, lineSection);
    if (found.next) body.append(rest(found.next, add));
    announce(`${title}: ${count.textContent || "nothing"}`);
    if (view.kept?.y) scrollTo(0, view.kept.y);
  }

  // The way to folders that an answer of the index leaves out.
  function unlisted(number) {
    if (number <= 0) return null;
    const plain = el("a", { href: plainAddress(view.folder) }, "the plain list");
    const said = `${counted(number, "more folder")}: search, or open `;
    return el("p", { class: "count" }, said, plain, ".");
  }

  function rest(next, add) {
    const said = el("p", { role: "alert" });
    const button = el("button", { type: "button", class: "button more" }, "Show more");
    const holder = el("div", { class: "more-holder" }, said, button);
    let isLoading = false;
    const go = async () => {
      if (isLoading) return;
      isLoading = true;
      try {
        const page = await more(next, abort.signal);
        add(page.files);
        next = page.next;
        said.textContent = "";
        button.textContent = "Show more";
        if (!next) holder.remove();
        // A button that is still in sight is told of again.
        watch.unobserve(holder);
        if (next) watch.observe(holder);
      } catch (error) {
        if (abort.signal.aborted) return;
        said.textContent = error.message;
        button.textContent = "Try again";
        watch.unobserve(holder);
      } finally {
        isLoading = false;
      }
    };
    button.addEventListener("click", go);
    const watch = new IntersectionObserver(([entry]) => entry.isIntersecting && go(), {
      rootMargin: "600px",
    });
    watch.observe(holder);
    abort.signal.addEventListener("abort", () => watch.disconnect());
    return holder;
  }
}

// What the first page has besides: channels, recordings, what is new.
async function home(signal) {
  const none = { files: [] };
  const [live, newest] = await Promise.all([
    index({ live: "1", limit: NEW_SHOWN }, signal).catch(() => none),
    index({ sort: "newest", limit: NEW_SHOWN }, signal).catch(() => none),
  ]);
  return (total, figures, onNow) => {
    const sections = [];
    const row = (title, cards) => section(title, el("ul", { class: "grid row" }, cards));
    if (onNow.length > 0) sections.push(row("On now", onNow.map(channelCard)));
    if (live.files.length > 0) sections.push(row("Recording now", live.files.map(filmCard)));
    // A small library shows all of it anyway.
    const fresh = newest.files.filter((file) => isFilm(file) && !file.live);
    if (total.films >= NEW_MIN && figures.folders_total > 0)
      sections.push(row("Recently added", fresh.map(filmCard)));
    return sections;
  };
}

function section(title, ...content) {
  return el("section", {}, el("h2", {}, title), content);
}

function skeleton() {
  const card = () =>
    el("li", { class: "card skeleton", "aria-hidden": "true" }, el("span", { class: "poster" }));
  return el("ul", { class: "grid", "aria-busy": "true" }, Array.from({ length: 8 }, card));
}

function empty(isSearch, total) {
  const text = isSearch
    ? "Nothing is called so. Try fewer or other words."
    : total.files === 0
      ? "This library is empty. Put films into the served folder: they appear here."
      : "This folder is empty.";
  return el("p", { class: "message" }, text);
}

// The way from the top to a folder.
export function crumbs(folder, current) {
  const parts = folder.split("/").filter(Boolean);
  if (parts.length === 0 && !current) return null;
  const links = [el("li", {}, el("a", { href: carried(ROOT.href) }, "Library"))];
  parts.forEach((part, at) => {
    const isLast = at === parts.length - 1 && !current;
    const name = `${parts.slice(0, at + 1).join("/")}/`;
    links.push(
      el(
        "li",
        {},
        isLast
          ? el("span", { "aria-current": "page", dir: "auto" }, part)
          : el("a", { href: addressOf(name), dir: "auto" }, part),
      ),
    );
  });
  return el("nav", { "aria-label": "Folders", class: "crumbs" }, el("ol", {}, links));
}

function orders(view, navigate) {
  const isSearch = view.kind === "search";
  const offered = ORDERS.filter(([value]) => (isSearch ? true : value !== ""));
  if (Object.hasOwn(REVERSED, view.sort)) offered.push([view.sort, REVERSED[view.sort]]);
  const chosen = view.sort || (isSearch ? "" : "name");
  const select = el(
    "select",
    {
      id: "sort",
      onchange: () => {
        const sort = select.value === "name" && !isSearch ? "" : select.value;
        const address = isSearch
          ? searchAddress(view.words, sort)
          : sortedAddress(view.folder, sort);
        navigate(address, { keepsFocus: true });
        // The view has made a new one.
        document.querySelector("#sort")?.focus();
      },
    },
    offered.map(([value, label]) => el("option", { value, selected: value === chosen }, label)),
  );
  return el(
    "div",
    { class: "order" },
    el("label", { for: "sort" }, "Sort by"),
    el("span", { class: "order-select" }, select),
  );
}
