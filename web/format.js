// SPDX-License-Identifier: MIT OR Apache-2.0
// format: titles, times and sizes as people read them.

// What release names put behind a title.
const TAGS = new RegExp(
  "\\b(?:480[pi]|576[pi]|720p|1080[pi]|2160p|4k|uhd|hdr(?:10)?|x26[45]|h[ .]?26[45]|hevc|avc|av1|" +
    "aac(?:[25][ .][01])?|ac3|dts|web[ -]?(?:dl|rip)|blu[ -]?ray|b[dr]rip|dvd(?:rip)?|hdtv|remux|" +
    "proper|repack)\\b.*$",
  "i",
);
const YEAR = /^(.+?)[ (\[]+((?:19|20)\d\d)(?:[)\]]| |$)/;
const EPISODE = /^(.*?)[ -]*\bs(\d{1,2})[ .-]?e(\d{1,3})\b[ -]*(.*)$/i;
const EXTENSION = /\.[a-z0-9]{1,5}$/i;

// Returns the last component of a name.
export function fileName(name) {
  // Bytes that are no UTF-8 are shown as such.
  const shown = name.replace(/[\u{10ff80}-\u{10ffff}]/gu, "\ufffd");
  return shown.replace(/\/+$/, "").split("/").at(-1);
}

// Returns title and what stands beside it, such as a year, of the name of a file.
export function titleOf(name) {
  const file = fileName(name);
  const isFolder = name.endsWith("/");
  let text = isFolder ? file : file.replace(EXTENSION, "") || file;
  // A sentence has spaces; a release's name has points or underscores in their place.
  if (!text.includes(" ")) text = text.replace(/[._]+/g, " ");
  text = text.replace(/_/g, " ").replace(/\s+/g, " ").trim();
  const episode = EPISODE.exec(text);
  if (episode) {
    const [, series, season, number, rest] = episode;
    const title = rest.replace(TAGS, "").trim();
    const place = `S${Number(season)} E${Number(number)}`;
    return { title: title || series.trim() || text, note: title ? `${series} · ${place}` : place };
  }
  const year = YEAR.exec(text);
  if (year) return { title: year[1].trim(), note: year[2] };
  if (text === text.toLowerCase()) text = text.charAt(0).toUpperCase() + text.slice(1);
  return { title: text.replace(TAGS, "").replace(/[ ([-]+$/, "") || text || file, note: "" };
}

// Returns the first letters of the first two words.
export function initials(title) {
  const words = title.split(/[^\p{L}\p{N}]+/u).filter(Boolean);
  const letters = words.slice(0, 2).map((word) => [...word][0].toUpperCase());
  return letters.join("") || "▸";
}

// Returns a hue that is the same for the same title.
export function hue(title) {
  let hash = 0;
  for (const letter of title) hash = (hash * 31 + letter.codePointAt(0)) >>> 0;
  return hash % 360;
}

// 5:03, 1:05:03.
export function clock(seconds) {
  if (!Number.isFinite(seconds)) return "–:––";
  const whole = Math.max(0, Math.floor(seconds));
  const [h, m, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (number) => String(number).padStart(2, "0");
  return h > 0 ? `${h}:${two(m)}:${two(s)}` : `${m}:${two(s)}`;
}

// 1 h 35 min, 12 min, 45 s.
export function duration(seconds) {
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  return minutes % 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${minutes / 60} h`;
}

// In words, for screen readers.
export function spoken(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const parts = [
    [Math.floor(whole / 3600), "hour"],
    [Math.floor(whole / 60) % 60, "minute"],
  ];
  parts.push([whole % 60, "second"]);
  const said = parts
    .filter(([count]) => count > 0)
    .map(([n, unit]) => `${n} ${unit}${n > 1 ? "s" : ""}`);
  return said.join(" ") || "start";
}

export function size(bytes) {
  for (const [unit, digits, factor] of [
    ["GB", 1, 1e9],
    ["MB", 0, 1e6],
    ["kB", 0, 1e3],
  ]) {
    if (bytes >= factor) return `${(bytes / factor).toFixed(digits)} ${unit}`;
  }
  return `${bytes} B`;
}

export function rate(bitsPerSecond) {
  const digits = (number) => (number < 10 ? 1 : 0);
  for (const [unit, factor] of [
    ["Gb/s", 1e9],
    ["Mb/s", 1e6],
  ]) {
    const number = bitsPerSecond / factor;
    if (number >= 1) return `${number.toFixed(digits(number))} ${unit}`;
  }
  return `${Math.round(bitsPerSecond / 1e3)} kb/s`;
}

export function counted(number, word) {
  return `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
}

// The language of a code, in the viewer's own.
export function languageName(code) {
  if (!code || code === "und") return "";
  try {
    return new Intl.DisplayNames(undefined, { type: "language" }).of(code) ?? code;
  } catch {
    return code;
  }
}
