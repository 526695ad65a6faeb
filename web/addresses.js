// SPDX-License-Identifier: MIT OR Apache-2.0
// addresses: names of files and the addresses of their pages, both ways.
//
// The top is where the folder of this module lies below, so that a proxy may serve all of it below
// a path of its own. Credentials in the page's own query (a signed address, a token) are carried
// into all that the page asks for: they may be the only ones that a viewer has.
//
// A byte of a name that is no UTF-8 is one character in the index, U+10FF00 and the byte; in
// addresses it is the byte.

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

// Characters that stand for bytes, as they are percent-encoded: F4 8F BE 80 to F4 8F BF BF.
const BYTES = /%F4%8F%B([EF])%([89AB][0-9A-F])/g;

// Returns percent-encoded text with the bytes of names in place of their characters.
export function withBytes(escaped) {
  return escaped.replace(BYTES, (_, half, low) =>
    half === "E" ? `%${low}` : `%${(parseInt(low, 16) + 0x40).toString(16).toUpperCase()}`,
  );
}

function escaped(name) {
  return withBytes(name.split("/").map(encodeURIComponent).join("/"));
}

// Returns the address of a file or, with a trailing slash, of a folder.
export function addressOf(name) {
  return carried(ROOT.href + escaped(name));
}

// Returns the address of something below a film, which may be a folder of renditions.
export function below(name, item) {
  return carried(`${ROOT.href}${escaped(name.replace(/\/+$/, ""))}/${item}`);
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

// Returns a part of a path as the index has it: escapes are characters where they are UTF-8, and
// bytes elsewhere, as those of characters that stand for bytes.
function decoded(part) {
  return part.replace(/(?:%[0-9a-f]{2})+/gi, (run) => {
    const bytes = run.match(/%../g);
    let text = "";
    for (let at = 0, taken; at < bytes.length; at += taken) {
      taken = 1;
      let letter = String.fromCodePoint(0x10ff00 + parseInt(bytes[at].slice(1), 16));
      for (let length = 1; length <= 4; length += 1) {
        try {
          const found = decodeURIComponent(bytes.slice(at, at + length).join(""));
          if (found.codePointAt(0) < 0x10ff80) [letter, taken] = [found, length];
          break;
        } catch {
          // Another byte may complete it.
        }
      }
      text += letter;
    }
    return text;
  });
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
