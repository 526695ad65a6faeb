// SPDX-License-Identifier: MIT OR Apache-2.0
// addresses: names of files and the addresses of their pages, both ways.
//
// The top is where the folder of this module lies below, so that a proxy may serve all of it below
// a path of its own. Credentials in the page's own query (a signed address, a token) are carried
// into all that the page asks for: they may be the only ones that a viewer has.

export const ROOT = new URL("../../", import.meta.url);
// A page that was opened with them in its address could fetch nothing.
ROOT.username = ROOT.password = "";
// Asks for a user, then leads to the top.
export const LOGIN = `${ROOT.href}.pagewire/login`;
const PLAYER = "player.html";
// Parameters that mean something to the page itself.
const OWN = new Set(["q", "sort", "t", "plain"]);

function withQuery(address, query) {
  return `${address}${address.includes("?") ? "&" : "?"}${query}`;
}

// Returns an address with the credentials of the page.
export function carried(address) {
  const foreign = [...new URLSearchParams(location.search)].filter(([name]) => !OWN.has(name));
  if (foreign.length === 0) return address;
  return withQuery(address, new URLSearchParams(foreign));
}

// Returns the address of a file or, with a trailing slash, of a folder.
export function addressOf(name) {
  return carried(ROOT.href + name.split("/").map(encodeURIComponent).join("/"));
}

// Returns the address of something below a film, which may be a folder of renditions.
export function below(name, item) {
  const plain = name.replace(/\/+$/, "").split("/").map(encodeURIComponent).join("/");
  return carried(`${ROOT.href}${plain}/${item}`);
}

// Returns the address of the page of a film.
export function filmAddress(name) {
  return below(name, PLAYER);
}

// Returns the address of a folder in another order.
export function sortedAddress(folder, sort) {
  const address = addressOf(folder);
  return sort ? withQuery(address, `sort=${sort}`) : address;
}

// Returns the address of the table of a folder.
export function plainAddress(folder) {
  return withQuery(addressOf(folder), "plain=1");
}

// Returns the address of a search.
export function searchAddress(words, sort) {
  const query = new URLSearchParams();
  if (words) query.set("q", words);
  if (sort) query.set("sort", sort);
  const text = query.toString();
  return carried(ROOT.href + (text ? `?${text}` : ""));
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

// Returns what an address of this page shows.
export function viewOf(location) {
  const path = location.pathname.slice(ROOT.pathname.length);
  const parts = path.split("/").filter(Boolean).map(decoded);
  const query = new URLSearchParams(location.search);
  const [words, sort] = [query.get("q") ?? "", query.get("sort") ?? ""];
  if (parts.length > 1 && parts.at(-1) === PLAYER) {
    const name = parts.slice(0, -1).join("/");
    const at = Number(query.get("t"));
    const channel = parts[0] === "channel" && parts.length === 3 ? parts[1] : null;
    return { kind: "film", name, channel, at: Number.isFinite(at) ? at : 0 };
  }
  if (words.trim()) return { kind: "search", words: words.trim(), sort };
  return { kind: "folder", folder: parts.map((part) => `${part}/`).join(""), sort };
}
