// SPDX-License-Identifier: MIT OR Apache-2.0
// plots: figures over time as lines with axes, and the same in words.
//
// A plot is an image with a description for screen readers; a pointer or the arrow keys show the
// value of one time.

import { el, svg } from "./dom.js";

const WIDTH = 400,
  HEIGHT = 170,
  LEFT = 66,
  RIGHT = 12,
  TOP = 12,
  BOTTOM = 26;

// Steps that people read easily.
function niceStep(most, count) {
  const rough = most / count || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= rough);
}

function timeText(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString(undefined, {
    hour: "2-digit",
    minute: "2-digit",
  });
}

// Returns a figure of `samples`, objects with `time_s`. `lines`: [{ field, name }]; `format` makes
// a value readable.
export function plot({ title, samples, lines, format, least = 1 }) {
  const valueOf = (sample, field) => {
    const value = sample[field];
    return Number.isFinite(value) ? value : null;
  };
  const known = lines
    .flatMap(({ field }) => samples.map((sample) => valueOf(sample, field)))
    .filter((value) => value !== null);
  const step = niceStep(Math.max(least, ...known), 3);
  const most = Math.max(step, Math.ceil(Math.max(least, ...known) / step) * step);
  const [first, last] = [samples[0]?.time_s ?? 0, samples.at(-1)?.time_s ?? 1];
  const x = (time) => LEFT + ((time - first) / Math.max(1, last - first)) * (WIDTH - LEFT - RIGHT);
  const y = (value) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - TOP - BOTTOM);

  const image = svg("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    class: "plot",
    role: "img",
    tabindex: "0",
    "aria-label": describe(),
  });
  for (let value = 0; value <= most + step / 1e6; value += step) {
    image.append(
      svg("line", { class: "grid-line", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
      svg(
        "text",
        { class: "tick-text", x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" },
        format(value),
      ),
    );
  }
  if (known.length === 0) {
    const middle = { x: (LEFT + WIDTH - RIGHT) / 2, y: (HEIGHT - BOTTOM + TOP) / 2 - 4 };
    const words = { class: "tick-text", ...middle, "text-anchor": "middle" };
    image.append(svg("text", words, "Nothing was measured yet"));
  }
  for (const share of samples.length === 0 ? [] : [0, 0.5, 1]) {
    const time = first + share * (last - first);
    const anchor = share === 0 ? "start" : share === 1 ? "end" : "middle";
    image.append(
      svg(
        "text",
        { class: "tick-text", x: x(time), y: HEIGHT - 8, "text-anchor": anchor },
        timeText(time),
      ),
    );
  }
  lines.forEach(({ field }, place) => {
    let path = "";
    let [isDrawn, start] = [false, first];
    for (const sample of samples) {
      const value = valueOf(sample, field);
      // Where nothing was measured the line has a gap.
      if (value !== null && !path) start = sample.time_s;
      if (value !== null)
        path += `${isDrawn ? "L" : "M"}${x(sample.time_s).toFixed(1)} ${y(value).toFixed(1)}`;
      isDrawn = value !== null;
    }
    if (lines.length === 1 && path && !path.slice(1).includes("M")) {
      const base = HEIGHT - BOTTOM;
      image.append(
        svg("path", { class: "area", d: `${path}L${x(last)} ${base}L${x(start)} ${base}Z` }),
      );
    }
    image.append(svg("path", { class: `line line-${place}`, d: path || "M0 0" }));
  });
  const mark = svg("line", { class: "mark", y1: TOP, y2: HEIGHT - BOTTOM, x1: -9, x2: -9 });
  image.append(mark);

  const reading = el("span", { class: "reading" });
  let at = samples.length - 1;
  const read = (place, isMarked) => {
    if (samples.length === 0) return;
    at = Math.min(samples.length - 1, Math.max(0, place));
    const sample = samples[at];
    const values = lines.map(({ field }) => valueOf(sample, field));
    // In the order of the legend.
    const said = values.map((value) => (value === null ? "–" : format(value))).join(" / ");
    reading.textContent = isMarked ? `${timeText(sample.time_s)}: ${said}` : said;
    const place_x = isMarked ? x(sample.time_s) : -9;
    mark.setAttribute("x1", place_x);
    mark.setAttribute("x2", place_x);
  };
  const latest = () => read(samples.length - 1, false);
  image.addEventListener("pointermove", (event) => {
    const box = image.getBoundingClientRect();
    const share =
      (((event.clientX - box.left) / box.width) * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT);
    read(Math.round(share * (samples.length - 1)), true);
  });
  image.addEventListener("pointerleave", latest);
  image.addEventListener("blur", latest);
  image.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -samples.length, End: samples.length }[
      event.key
    ];
    if (!move) return;
    event.preventDefault();
    read(at + move, true);
    image.setAttribute("aria-label", `${title}, ${reading.textContent}`);
  });
  latest();

  const legend =
    lines.length > 1
      ? el(
          "span",
          { class: "legend", "aria-hidden": "true" },
          lines.map(({ name }, place) => el("span", { class: `key key-${place}` }, name)),
        )
      : null;
  return el(
    "figure",
    { class: "panel" },
    el("figcaption", {}, el("span", { class: "plot-title" }, title), legend, reading),
    image,
  );

  function describe() {
    if (known.length === 0) return `${title}: nothing was measured yet`;
    const said = lines.map(({ field, name }) => {
      const values = samples
        .map((sample) => valueOf(sample, field))
        .filter((value) => value !== null);
      if (values.length === 0) return `${name}: nothing`;
      const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
      const texts = [values.at(-1), mean, Math.max(...values)].map(format);
      const named = lines.length > 1 ? `${name}: ` : "";
      return `${named}now ${texts[0]}, mean ${texts[1]}, highest ${texts[2]}`;
    });
    const span = `from ${timeText(first)} to ${timeText(last)}`;
    return `${title} ${span}; ${said.join("; ")}. Arrow keys read single values.`;
  }
}
