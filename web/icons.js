// SPDX-License-Identifier: MIT OR Apache-2.0
// icons: the pictures of buttons, drawn here on a grid of 24.

import { svg } from "./dom.js";

const PATHS = {
  play: "M8 5v14l11-7z",
  pause: "M7 5h4v14H7zM13 5h4v14h-4z",
  replay: "M12 5V1L7 6l5 5V7a6 6 0 1 1-6 6H4a8 8 0 1 0 8-8z",
  volume:
    "M4 9v6h4l5 5V4L8 9zm12.5 3a4.5 4.5 0 0 0-2.5-4v8a4.5 4.5 0 0 0 2.5-4zM14 3.2v2.1a7 7 0 0" +
    " 1 0 13.4v2.1a9 9 0 0 0 0-17.6z",
  muted: "M4 9v6h4l5 5V4L8 9zm12.6 3 2.7-2.7-1.4-1.4-2.7 2.7-.2-.2v3.2l.2-.2 2.7 2.7 1.4-1.4z",
  subtitles:
    "M4 5a2 2 0 0 0-2 2v10a2 2 0 0 0 2 2h16a2 2 0 0 0 2-2V7a2 2 0 0 0-2-2zm1 7h3v2H5zm5 0h9v2" +
    "h-9zm-5 3h8v2H5zm10 0h4v2h-4z",
  audio: "M12 3v10.3A4 4 0 1 0 14 17V7h4V3z",
  speed:
    "M20.4 8.6 19.2 10.4A8 8 0 0 1 18.6 18H5.4A8 8 0 0 1 14 6.3l1.8-1.2A10 10 0 0 0 3.7 19a2 " +
    "2 0 0 0 1.7 1h13.2a2 2 0 0 0 1.7-1 10 10 0 0 0 .1-10.4zM10.6 15.4a2 2 0 0 0 2.8 0L19 7l-" +
    "8.4 5.6a2 2 0 0 0 0 2.8z",
  pip:
    "M19 11h-8v6h8zm2-8H3a2 2 0 0 0-2 2v14a2 2 0 0 0 2 2h18a2 2 0 0 0 2-2V5a2 2 0 0 0-2-2zm0 " +
    "16H3V5h18z",
  fullscreen: "M7 14H5v5h5v-2H7zM5 10h2V7h3V5H5zm12 7h-3v2h5v-5h-2zM14 5v2h3v3h2V5z",
  window: "M5 16h3v3h2v-5H5zm3-8H5v2h5V5H8zm6 11h2v-3h3v-2h-5zm2-11V5h-2v5h5V8z",
  help:
    "M12 2a10 10 0 1 0 0 20 10 10 0 0 0 0-20zm1 17h-2v-2h2zm2-7.8-.9 1A3.4 3.4 0 0 0 13 15h-2" +
    "v-.5c0-1.1.5-2.1 1.2-2.8l1.2-1.3A2 2 0 1 0 10 9H8a4 4 0 1 1 7 2.2z",
  search:
    "M15.5 14h-.8l-.3-.3a6.5 6.5 0 1 0-.7.7l.3.3v.8l5 5 1.5-1.5zm-6 0a4.5 4.5 0 1 1 0-9 4.5 4" +
    ".5 0 0 1 0 9z",
  folder: "M10 4H4a2 2 0 0 0-2 2v12a2 2 0 0 0 2 2h16a2 2 0 0 0 2-2V8a2 2 0 0 0-2-2h-8z",
  copy:
    "M16 1H4a2 2 0 0 0-2 2v14h2V3h12zm3 4H8a2 2 0 0 0-2 2v14a2 2 0 0 0 2 2h11a2 2 0 0 0 2-2V7" +
    "a2 2 0 0 0-2-2zm0 16H8V7h11z",
  code:
    "M3 11h8V3H3zm2-6h4v4H5zM3 21h8v-8H3zm2-6h4v4H5zm8-12v8h8V3zm6 6h-4V5h4zm0 10h2v2h-2zm-6-" +
    "6h2v2h-2zm2 2h2v2h-2zm-2 2h2v2h-2zm2 2h2v2h-2zm2-2h2v2h-2zm0-4h2v2h-2zm2 2h2v2h-2z",
  download: "M19 9h-4V3H9v6H5l7 7zM5 18v2h14v-2z",
  sun:
    "M12 7a5 5 0 1 0 0 10 5 5 0 0 0 0-10zM11 1h2v4h-2zm0 18h2v4h-2zM1 11h4v2H1zm18 0h4v2h-4zM" +
    "4.2 5.6l1.4-1.4 2.9 2.8-1.5 1.5zm11.3 11.4 1.5-1.5 2.8 2.9-1.4 1.4zM4.2 18.4l2.8-2.9 1.5" +
    " 1.5-2.9 2.8zM15.5 7l2.9-2.8 1.4 1.4L17 8.5z",
  moon: "M12 3a9 9 0 1 0 9 9c0-.5 0-.9-.1-1.4A5.4 5.4 0 1 1 13.4 3.1C12.9 3 12.5 3 12 3z",
  system:
    "M4 4h16a2 2 0 0 1 2 2v9a2 2 0 0 1-2 2h-6v2h2v2H8v-2h2v-2H4a2 2 0 0 1-2-2V6a2 2 0 0 1 2-2" +
    "zm0 2v9h16V6z",
  file: "M6 2a2 2 0 0 0-2 2v16a2 2 0 0 0 2 2h12a2 2 0 0 0 2-2V8l-6-6zm7 7V3.5L18.5 9z",
  close:
    "M19 6.4 17.6 5 12 10.6 6.4 5 5 6.4 10.6 12 5 17.6 6.4 19 12 13.4 17.6 19 19 17.6 13.4 12z",
  check: "M9 16.2 4.8 12l-1.4 1.4L9 19 21 7l-1.4-1.4z",
};

// Returns a picture by its name; it has no name for screen readers, its button has one.
export function icon(name) {
  const path = svg("path", { d: PATHS[name] });
  const attributes = { viewBox: "0 0 24 24", class: "icon", "aria-hidden": "true" };
  return svg("svg", { ...attributes, focusable: "false" }, path);
}

// Shows another picture in a button.
export function setIcon(button, name) {
  if (button.dataset.icon === name) return;
  button.dataset.icon = name;
  button.querySelector(".icon").replaceWith(icon(name));
}
