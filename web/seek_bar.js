// SPDX-License-Identifier: MIT OR Apache-2.0
// seek_bar: the place of play as a slider, with what is loaded, and a picture of where the pointer
// is.
//
// The slider is the browser's own (input type=range): keyboard, touch and screen readers know it.

import { el } from "./dom.js";
import { clock, spoken } from "./format.js";

export class SeekBar {
  constructor(video, seek) {
    this.video = video;
    this.thumbnails = null;
    this.isHeld = false;
    this.input = el("input", {
      type: "range",
      class: "seek",
      min: "0",
      max: "0",
      step: "0.1",
      value: "0",
      "aria-label": "Seek",
      "data-control": "seek",
    });
    this.canvas = el("canvas", { width: "160", height: "90", hidden: true });
    this.time = el("span", {});
    this.preview = el(
      "div",
      { class: "preview", "aria-hidden": "true", hidden: true },
      this.canvas,
      this.time,
    );
    this.element = el("div", { class: "seek-bar" }, this.preview, this.input);
    this.input.addEventListener("input", () => {
      this.isHeld = true;
      this.paint(Number(this.input.value));
    });
    this.input.addEventListener("change", () => {
      this.isHeld = false;
      seek(Number(this.input.value));
    });
    // One that was moved to where it was tells no change. A change comes first.
    for (const name of ["pointerup", "pointercancel"]) {
      this.input.addEventListener(name, () => setTimeout(() => (this.isHeld = false)));
    }
    this.element.addEventListener("pointermove", (event) => this.show(event));
    this.element.addEventListener("pointerleave", () => {
      this.preview.hidden = true;
    });
    this.canvas.addEventListener("pagewire:loaded", () => this.draw());
    for (const name of ["timeupdate", "durationchange", "progress", "seeking", "seeked"]) {
      video.addEventListener(name, () => this.update());
    }
  }

  // The times that can be sought.
  range() {
    const { duration, seekable } = this.video;
    if (Number.isFinite(duration) && duration > 0) return [0, duration];
    if (seekable.length === 0) return [0, 0];
    return [seekable.start(0), seekable.end(seekable.length - 1)];
  }

  update() {
    const [start, end] = this.range();
    Object.assign(this.input, { min: String(start), max: String(end) });
    this.input.disabled = end <= start;
    if (!this.isHeld) this.input.value = String(this.video.currentTime);
    this.paint(this.isHeld ? Number(this.input.value) : this.video.currentTime);
  }

  paint(seconds) {
    const [start, end] = this.range();
    const share = (time) =>
      end > start ? Math.min(1, Math.max(0, (time - start) / (end - start))) : 0;
    const { buffered, currentTime } = this.video;
    let loaded = currentTime;
    for (let at = 0; at < buffered.length; at += 1) {
      if (buffered.start(at) <= currentTime + 0.1) loaded = Math.max(loaded, buffered.end(at));
    }
    this.input.style.setProperty("--played", `${share(seconds) * 100}%`);
    this.input.style.setProperty("--loaded", `${share(loaded) * 100}%`);
    this.input.setAttribute("aria-valuetext", `${spoken(seconds)} of ${spoken(end)}`);
  }

  show(event) {
    const [start, end] = this.range();
    const box = this.input.getBoundingClientRect();
    if (end <= start || box.width === 0) return;
    const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    this.at = start + share * (end - start);
    this.time.textContent = clock(this.at);
    this.preview.hidden = false;
    this.draw();
    const half = this.preview.offsetWidth / 2;
    const left = Math.min(box.width - half, Math.max(half, share * box.width));
    this.preview.style.left = `${left}px`;
  }

  draw() {
    this.canvas.hidden = !(this.thumbnails?.draw(this.canvas, this.at) ?? false);
  }
}
