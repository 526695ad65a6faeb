// SPDX-License-Identifier: MIT OR Apache-2.0
// thumbnails: pictures along a film's time, from its `thumbnails.vtt`: cues that name a rectangle
// of an image.
//
// Sources: WebVTT; Media Fragments URI 1.0 §4.2.2 (xywh).

const CUE = /(?:(\d+):)?(\d+):(\d+\.\d+)\s+-->\s+(?:(\d+):)?(\d+):(\d+\.\d+)/;
const BOX = /^(.*)#xywh=(?:pixel:)?(\d+),(\d+),(\d+),(\d+)$/;

export class Thumbnails {
  // `address` is that of the cues; images are beside it.
  static async load(address, signal) {
    let answer = await fetch(address, { signal });
    if (answer.status === 503) {
      // The server makes too many pictures just now.
      const wait_s = Math.min(30, Number(answer.headers.get("Retry-After")) || 5);
      await new Promise((done) => setTimeout(done, 1000 * wait_s));
      answer = await fetch(address, { signal });
    }
    if (!answer.ok) return null;
    const found = new Thumbnails(address, await answer.text());
    return found.cues.length > 0 ? found : null;
  }

  constructor(address, text) {
    this.cues = [];
    this.images = new Map();
    const lines = text.split(/\r?\n/);
    for (let at = 0; at + 1 < lines.length; at += 1) {
      const [time, box] = [CUE.exec(lines[at]), BOX.exec(lines[at + 1]?.trim() ?? "")];
      if (!time || !box) continue;
      const seconds = (h, m, s) => Number(h ?? 0) * 3600 + Number(m) * 60 + Number(s);
      const [x, y, width, height] = box.slice(2).map(Number);
      // The server has written the page's credentials behind it.
      const image = new URL(box[1], address).href;
      const [start, end] = [seconds(...time.slice(1, 4)), seconds(...time.slice(4, 7))];
      this.cues.push({ start, end, image, x, y, width, height });
    }
  }

  // Draws the picture of a time; false where there is none (yet).
  draw(canvas, seconds) {
    let [low, high] = [0, this.cues.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.cues[middle].end <= seconds) low = middle + 1;
      else high = middle;
    }
    const cue = this.cues[Math.min(low, this.cues.length - 1)];
    let image = this.images.get(cue.image);
    if (!image) {
      image = new Image();
      image.src = cue.image;
      this.images.set(cue.image, image);
      image.addEventListener("load", () => canvas.dispatchEvent(new Event("pagewire:loaded")));
    }
    if (!image.complete || image.naturalWidth === 0) return false;
    if (canvas.width !== cue.width) canvas.width = cue.width;
    if (canvas.height !== cue.height) canvas.height = cue.height;
    const { x, y, width, height } = cue;
    canvas.getContext("2d").drawImage(image, x, y, width, height, 0, 0, width, height);
    return true;
  }
}
