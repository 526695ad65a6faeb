// SPDX-License-Identifier: MIT OR Apache-2.0
// progress: where the viewer stopped in each film, kept in this browser alone.

import { remember, remembered } from "./dom.js";

// Films that are remembered; the one seen longest ago is forgotten first.
const FILMS_MAX = 200;
// Nobody wants to go on in the first seconds, or in the credits.
const START_S = 15,
  END_SHARE = 0.95;

function load() {
  try {
    const known = JSON.parse(remembered("progress") ?? "[]");
    return Array.isArray(known) ? known.filter((entry) => Array.isArray(entry)) : [];
  } catch {
    return [];
  }
}

// Remembers a place of a film.
export function saveProgress(name, seconds, duration) {
  const others = load().filter(([known]) => known !== name);
  const isWorth = seconds > START_S && duration > 0 && seconds < duration * END_SHARE;
  if (isWorth) others.push([name, Math.floor(seconds), Math.floor(duration)]);
  remember("progress", JSON.stringify(others.slice(-FILMS_MAX)));
}

// Returns the place in seconds and the share of the film; zeros of one that was not begun.
export function progressOf(name) {
  const [, seconds, duration] = load().find(([known]) => known === name) ?? [name, 0, 0];
  return { seconds: Number(seconds) || 0, share: duration > 0 ? seconds / duration : 0 };
}
