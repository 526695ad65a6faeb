// SPDX-License-Identifier: MIT OR Apache-2.0
// film: the page of a film, a recording in progress or a channel: player, facts, addresses, and
// what lies beside it.

import { channels, index, isForbidden } from "./api.js";
import { addressOf, below } from "./addresses.js";
import { filmCard, filmOf, isFilm, onAir } from "./cards.js";
import { announce, el } from "./dom.js";
import { KEYS } from "./controls.js";
import { counted, duration, fileName, languageName, rate, size } from "./format.js";
import { isBundled } from "./hls_source.js";
import { icon } from "./icons.js";
import { crumbs } from "./library.js";
import { Player } from "./player.js";
import { addressList, addressesOf, showDialog } from "./share.js";

const BESIDE = 24,
  CHANNEL_MS = 15_000;

// Shows a view in an element; returns what ends it.
export function showFilm(target, view) {
  const abort = new AbortController();
  const ends = [() => abort.abort()];
  const body = el("article", { class: "film" });
  target.replaceChildren(body);
  (view.channel ? channel() : film()).catch((error) => {
    if (!abort.signal.aborted)
      body.replaceChildren(el("p", { class: "message", role: "alert" }, error.message));
  });
  return () => ends.forEach((end) => end());

  // The row of a file, or of a folder of renditions; `null` where none is listed. A viewer may be
  // allowed to play a film and not to list any.
  async function listed(name) {
    try {
      for (const asked of [name, `${name}/`]) {
        const { files } = await index({ name: asked, all: "1" }, abort.signal);
        if (files.length > 0) return files[0];
      }
    } catch (error) {
      if (!isForbidden(error) && error.status !== 404) throw error;
    }
    return null;
  }

  async function rowOf(name) {
    const row = await listed(name);
    if (row) return row;
    // Files in linked folders are served and not listed.
    const addresses = { hls: below(name, "master.m3u8"), dash: below(name, "manifest.mpd") };
    return { name, ...addresses, download: addressOf(name) };
  }

  async function film() {
    const row = await rowOf(view.name);
    if (abort.signal.aborted) return;
    // The name without a slash is that of the page.
    const shown = { ...filmOf(row), name: view.name };
    if (row.reason) shown.hasHls = shown.hasDash = true;
    const folder = view.name
      .split("/")
      .slice(0, -1)
      .map((part) => `${part}/`)
      .join("");
    const actions = [];
    if (row.download) {
      actions.push(
        el(
          "a",
          { class: "button", href: addressOf(row.name), download: fileName(row.name) },
          icon("download"),
          el("span", {}, "Download"),
        ),
      );
    }
    build(shown, { crumbs: crumbs(folder, true), facts: facts(row), actions, row, at: view.at });
    // The files of a title are films, too.
    const [beside, titled] = row.renditions
      ? [`${view.name}/`, () => "Files of this title"]
      : [folder, (name) => (name ? `More in ${name}` : "More films")];
    // The player stays where the folder may not be listed.
    await cards(beside, row.name, titled).catch(() => {});
  }

  async function channel() {
    const find = async () =>
      (await channels(abort.signal)).find(({ name }) => name === view.channel);
    const known = await find();
    // A folder may have the name of the channels.
    if (!known && (await listed(view.name))) return film();
    if (abort.signal.aborted) return;
    const row = { ...known, name: view.name, hls: known ? known.hls : true };
    const shown = {
      ...filmOf({ name: view.name, hls: below(view.name, "master.m3u8") }),
      title: known?.title || view.channel,
      note: "",
      isLive: true,
      hasDash: false,
      isFile: false,
      hasPoster: false,
    };
    const now = el("span", { class: "on-air", dir: "auto" }, known ? onAir(known) : "");
    build(shown, {
      crumbs: crumbs("", true),
      facts: [el("span", { class: "badge live" }, "Live"), now],
      actions: [],
      row,
      at: 0,
    });
    const timer = setInterval(async () => {
      const again = await find().catch(() => null);
      if (again) now.textContent = onAir(again);
    }, CHANNEL_MS);
    ends.push(() => clearInterval(timer));
  }

  function build(shown, { crumbs: way, facts: known, actions, row, at }) {
    document.title = `${shown.title} – pagewire`;
    const said = el("p", { class: "said", role: "status" });
    const tell = (text, isEnd) => {
      said.replaceChildren(`${text}. `);
      if (isEnd && row.download)
        said.append(
          "The file: ",
          el("a", { href: addressOf(row.name), dir: "auto" }, fileName(row.name)),
        );
      else if (isEnd && shown.isLive) said.append("Open its address below in another player.");
    };
    const player = new Player(shown, { showHelp, tell });
    ends.push(() => player.destroy());
    const heading = el("h1", { tabindex: "-1", dir: "auto" }, shown.title);
    const parts = [
      player.element,
      said,
      el(
        "div",
        { class: "film-head" },
        el("div", {}, way, heading, el("p", { class: "facts" }, known)),
        el("div", { class: "actions" }, actions),
      ),
    ];
    if (!isBundled()) {
      const note =
        "This server was built without hls.js: HLS is left to the browser's own player, " +
        "if it has one.";
      parts.push(el("p", { class: "note" }, note));
    }
    if (addressesOf(row).length > 0) {
      parts.push(
        el("section", { class: "panel" }, el("h2", {}, "Play elsewhere"), addressList(row)),
      );
    }
    const details = detailsOf(row);
    if (details) parts.push(details);
    body.replaceChildren(...parts);
    announce(shown.title);
    player.start(at);
  }

  // Other films of a folder.
  async function cards(folder, name, titled) {
    const { files } = await index({ folder, limit: BESIDE }, abort.signal);
    const others = files.filter((row) => row.name !== name && isFilm(row));
    if (others.length === 0 || abort.signal.aborted) return;
    const title = titled(fileName(folder));
    body.append(
      el(
        "section",
        {},
        el("h2", { dir: "auto" }, title),
        el("ul", { class: "grid row" }, others.map(filmCard)),
      ),
    );
  }
}

function facts(row) {
  const { note } = filmOf(row);
  const texts = [note];
  if (row.duration) texts.push(duration(row.duration));
  if (row.bytes) texts.push(size(row.playlist?.bytes ?? row.bytes));
  if (row.renditions) texts.push(counted(row.renditions.length, "rendition"));
  const shown = texts.filter(Boolean).map((text) => el("span", { dir: "auto" }, text));
  if (row.live) shown.unshift(el("span", { class: "badge live" }, "Live"));
  return shown;
}

// What engineers want to know, folded away.
function detailsOf(row) {
  const { stream = {} } = row;
  const lines = [["File", row.name]];
  if (row.codecs ?? stream.codecs) lines.push(["Codecs", row.codecs ?? stream.codecs]);
  if (stream.bits_per_second) lines.push(["Mean rate", rate(stream.bits_per_second)]);
  for (const track of row.tracks ?? []) {
    const said = [track.codec, languageName(track.language), rate(track.bits_per_second)];
    lines.push([track.media === "video" ? "Pictures" : "Sound", said.filter(Boolean).join(", ")]);
  }
  if (row.modified) lines.push(["Changed", new Date(row.modified * 1000).toLocaleString()]);
  if (row.reason) lines.push(["Not streamed", row.reason]);
  for (const text of [...(stream.warnings ?? []), ...(stream.left_out ?? [])])
    lines.push(["Note", text]);
  for (const fault of row.faults ?? []) lines.push(["Fault", fault]);
  return el(
    "details",
    { class: "panel" },
    el("summary", {}, "Details"),
    el(
      "dl",
      {},
      lines.map(([name, text]) => [el("dt", {}, name), el("dd", { dir: "auto" }, text)]),
    ),
  );
}

export function showHelp() {
  const rows = KEYS.map(([keys, act]) => [
    el(
      "dt",
      {},
      keys.split(" ").map((key) => (key === "–" ? key : el("kbd", {}, key.replace(/,$/, "")))),
    ),
    el("dd", {}, act),
  ]);
  showDialog("Keys", el("dl", { class: "keys" }, rows));
}
