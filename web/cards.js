// SPDX-License-Identifier: MIT OR Apache-2.0
// cards: films, folders and channels as cards, other files as lines.

import { addressOf, below, filmAddress } from "./addresses.js";
import { server } from "./api.js";
import { el } from "./dom.js";
import { counted, duration, fileName, hue, initials, size, titleOf } from "./format.js";
import { icon } from "./icons.js";
import { progressOf } from "./progress.js";

const TRIES = 4;

// Returns what a row of the index is for people.
export function filmOf(row) {
  const { title, note } = titleOf(row.name);
  const tracks = row.tracks ?? [];
  const codecs = row.codecs ?? row.stream?.codecs ?? "";
  const isSound =
    tracks.length > 0
      ? !tracks.some(({ media }) => media === "video")
      : /^(?:mp4a|opus|ac-3|ec-3|flac|mp3)[^,]*$/i.test(codecs) ||
        /\.(?:mp3|aac|adts|wav|flac|m4a|m4b|opus|ogg|mka)$/i.test(row.name);
  return {
    name: row.name,
    title,
    note,
    isLive: row.live === true,
    isPlaylist: Boolean(row.playlist),
    hasHls: Boolean(row.hls || row.playlist),
    hasDash: Boolean(row.dash),
    isFile: Boolean(row.download) && !row.playlist,
    hasPictures: !isSound,
    hasPoster: server.pictures && !row.playlist && !row.live,
    row,
  };
}

// True for a row that has a page with a player.
export function isFilm(row) {
  return Boolean(
    row.hls || row.dash || row.playlist || row.rtsp || row.reason === "waiting to be read",
  );
}

// A picture of something: a poster if there is one, its initials on a colour of its own if not.
function poster(address, title, picture) {
  const plain = el(
    "span",
    { class: "initials", "aria-hidden": "true" },
    picture ? icon(picture) : initials(title),
  );
  const box = el("span", { class: "poster" }, plain);
  box.style.setProperty("--hue", String(hue(title)));
  if (address) {
    const image = el("img", { src: address, alt: "", loading: "lazy", decoding: "async" });
    image.addEventListener("load", () => {
      box.classList.add("has-picture");
      plain.remove();
    });
    let tries = TRIES;
    image.addEventListener("error", async () => {
      const wait_s = tries-- > 0 && image.isConnected ? await busyFor(address) : null;
      if (wait_s === null) image.remove();
      // A card of a view that was left asks no more.
      else setTimeout(() => image.isConnected && image.setAttribute("src", address), 1000 * wait_s);
    });
    box.append(image);
  }
  return box;
}

// Seconds after which a picture may be asked for again, where the server has too many to make just
// now; else null.
async function busyFor(address) {
  // A request for a picture gets no challenge, which would open a dialog.
  const headers = { Accept: "image/*" };
  const answer = await fetch(address, { method: "HEAD", headers }).catch(() => null);
  if (answer?.status !== 503) return null;
  return Math.min(30, Number(answer.headers.get("Retry-After")) || 5);
}

export function filmCard(row) {
  const film = filmOf(row);
  const picture = poster(film.hasPoster ? below(row.name, "poster.jpg") : null, film.title);
  picture.append(el("span", { class: "play-hint", "aria-hidden": "true" }, icon("play")));
  const facts = [film.note];
  if (row.renditions) facts.push(counted(row.renditions.length, "rendition"));
  if (row.reason) facts.push("Being read");
  else if (!film.isLive) facts.push(size(row.playlist?.bytes ?? row.bytes));
  if (film.isLive) picture.append(el("span", { class: "badge live" }, "Live"));
  else if (row.duration) picture.append(el("span", { class: "badge" }, duration(row.duration)));
  const { share } = progressOf(row.name.replace(/\/+$/, ""));
  if (share > 0) {
    const bar = el("span", { class: "seen", "aria-hidden": "true" });
    bar.style.setProperty("--share", `${Math.round(share * 100)}%`);
    picture.append(bar);
  }
  return el(
    "li",
    {},
    el(
      "a",
      { class: "card", href: filmAddress(row.name), title: fileName(row.name) },
      picture,
      el("span", { class: "card-title", dir: "auto" }, film.title),
      el("span", { class: "card-facts", dir: "auto" }, facts.filter(Boolean).join(" · ")),
    ),
  );
}

export function folderCard(folder) {
  const title = fileName(folder.name);
  const address = folder.first && server.pictures ? below(folder.first, "poster.jpg") : null;
  const facts = folder.films > 0 ? counted(folder.films, "film") : counted(folder.files, "file");
  const picture = poster(address, title, "folder");
  picture.classList.add("stack");
  return el(
    "li",
    {},
    el(
      "a",
      { class: "card folder", href: addressOf(folder.name) },
      picture,
      el("span", { class: "card-title", dir: "auto" }, title),
      el("span", { class: "card-facts" }, `${facts} · ${size(folder.bytes)}`),
    ),
  );
}

export function channelCard(channel) {
  const title = channel.title || channel.name;
  const name = `channel/${channel.name}`;
  const picture = poster(null, title);
  picture.append(el("span", { class: "play-hint", "aria-hidden": "true" }, icon("play")));
  picture.append(
    el(
      "span",
      { class: `badge ${channel.sending ? "live" : ""}` },
      channel.sending ? "On air" : "Off air",
    ),
  );
  const content = [
    picture,
    el("span", { class: "card-title", dir: "auto" }, title),
    el("span", { class: "card-facts", dir: "auto" }, onAir(channel)),
  ];
  return el(
    "li",
    {},
    channel.hls
      ? el("a", { class: "card", href: filmAddress(name) }, ...content)
      : el("div", { class: "card still" }, ...content),
  );
}

// What a channel shows now, in words.
export function onAir(channel) {
  if (channel.reason === "standby") return "Another server sends it";
  if (!channel.on_air) return "Nothing is on";
  return `Now: ${titleOf(channel.on_air).title}`;
}

// True for subtitles that belong to one of these films.
export function isSideCar({ name }, films) {
  const isOf = (film) => name.startsWith(`${film.name.replace(/\.[^./]*$/, "")}.`);
  return /\.(?:srt|vtt)$/i.test(name) && films.some(isOf);
}

// A file that no player opens, with the reason if it looks like a film.
export function fileLine(row) {
  return el(
    "li",
    {},
    el(
      "a",
      { class: "file", href: addressOf(row.name), download: fileName(row.name) },
      icon("file"),
      el("span", { class: "file-name", dir: "auto" }, fileName(row.name)),
      el("span", { class: "file-size" }, size(row.bytes)),
      row.reason ? el("span", { class: "file-reason" }, row.reason) : null,
    ),
  );
}
