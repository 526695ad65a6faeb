// SPDX-License-Identifier: MIT OR Apache-2.0
// player: a film in the page: the video, its controls, and the choice of who plays it.
//
// Who plays is tried in turn: hls.js, the MPD by Media Source Extensions, the browser's own HLS,
// the file as it is. One that cannot play the format gives way to the next; other faults end with
// their reason in words.

import { below, addressOf } from "./addresses.js";
import { el, remembered } from "./dom.js";
import { icon } from "./icons.js";
import { Controls } from "./controls.js";
import { HlsSource, Unplayable } from "./hls_source.js";
import { MpdSource } from "./mpd_source.js";
import { NativeSource } from "./native_source.js";
import { Thumbnails } from "./thumbnails.js";
import { progressOf, saveProgress } from "./progress.js";

const SAVE_MS = 5000;

export class Player {
  // `film`: name, and of its row in the index what is there (isLive, has HLS and DASH, is a file).
  constructor(film, { showHelp, tell }) {
    Object.assign(this, { film, tell, isLive: film.isLive, source: null, isEnded: false });
    this.abort = new AbortController();
    this.video = el("video", { playsinline: true, preload: "auto", tabindex: "-1" });
    this.video.setAttribute("aria-label", film.title);
    this.big = el(
      "button",
      {
        type: "button",
        class: "big-play",
        "aria-label": "Play",
        hidden: true,
        onclick: () => {
          this.wantsPlay();
          this.video.play().catch(() => {});
        },
      },
      icon("play"),
    );
    this.busy = el("div", { class: "busy", "aria-hidden": "true" });
    this.element = el(
      "div",
      { class: "player", role: "region", "aria-label": "Player" },
      this.video,
    );
    this.controls = new Controls(this, showHelp);
    this.element.append(this.busy, this.big, this.controls.element);
    if (!film.hasPictures) {
      this.element.classList.add("sound-only");
      this.element.prepend(
        el("div", { class: "no-picture", "aria-hidden": "true" }, icon("audio")),
      );
    }
    const poster = below(film.name, "poster.jpg");
    if (film.hasPoster) this.usePoster(poster);
    this.watch();
  }

  // A poster that is missing would hide the first picture.
  usePoster(address) {
    const image = new Image();
    image.addEventListener("load", () => {
      if (this.video.readyState < 2) this.video.poster = address;
      if (!this.film.hasPictures)
        this.element.prepend(el("img", { class: "cover", src: address, alt: "" }));
    });
    image.src = address;
  }

  watch() {
    const { video, element } = this;
    const setBusy = (isBusy) => element.classList.toggle("waiting", isBusy);
    video.addEventListener("waiting", () => setBusy(true));
    video.addEventListener("seeking", () => setBusy(true));
    for (const name of ["playing", "seeked", "canplay", "pause", "error"]) {
      video.addEventListener(name, () => setBusy(false));
    }
    video.addEventListener("play", () => this.wantsPlay());
    this.saver = setInterval(() => this.save(), SAVE_MS);
    video.addEventListener("pause", () => this.save());
  }

  wantsPlay() {
    this.big.hidden = true;
  }

  save() {
    const { video, film } = this;
    if (!this.isLive && Number.isFinite(video.duration) && video.currentTime > 0) {
      saveProgress(film.name, video.currentTime, video.duration);
    }
  }

  // Returns ways to play, in the order in which they are tried.
  ways() {
    const { film, video } = this;
    const master = film.isPlaylist ? addressOf(film.name) : below(film.name, "master.m3u8");
    const { isLive } = film;
    const file = () => new NativeSource(video, addressOf(film.name), { isPlaylist: false, isLive });
    const ways = [];
    // Browsers play sound best as it is.
    if (film.isFile && !film.hasPictures && !isLive) ways.push(file);
    if (film.hasHls) ways.push(() => HlsSource.create(video, master));
    if (film.hasDash && !isLive) {
      ways.push(() => new MpdSource(video, below(film.name, "manifest.mpd")));
    }
    if (film.hasHls) ways.push(() => new NativeSource(video, master, { isPlaylist: true, isLive }));
    if (film.isFile && film.hasPictures && !isLive) ways.push(file);
    return ways;
  }

  async start(at) {
    const from = at > 0 ? at : this.isLive ? 0 : progressOf(this.film.name).seconds;
    this.element.classList.add("waiting");
    await this.tryWays(this.ways(), from, null);
  }

  async tryWays(ways, at, reason) {
    const [way, ...others] = ways;
    if (this.isEnded) return;
    if (!way) {
      this.fail(reason ?? new Error("There is no way to play it in a browser"));
      return;
    }
    this.source?.destroy();
    this.source = null;
    let isOver = false;
    // A source may end while it starts, and later.
    const onEnd = (error) => {
      if (isOver || this.isEnded) return;
      isOver = true;
      if (error instanceof Unplayable)
        this.tryWays(others, this.video.currentTime || at, reason ?? error);
      else this.fail(error);
    };
    try {
      const source = await way();
      if (this.isEnded) {
        source?.destroy();
        return;
      }
      if (!source) {
        await this.tryWays(others, at, reason);
        return;
      }
      this.source = source;
      await source.start(at, onEnd);
    } catch (error) {
      onEnd(error);
      return;
    }
    if (isOver || this.isEnded) return;
    if (this.source.note) this.tell(this.source.note);
    this.tellOfSoundAlone();
    this.choose();
    this.controls.refresh();
    this.loadThumbnails();
    // Without a click browsers play no sound: then a click is asked for.
    this.video.play().catch(() => {
      this.element.classList.remove("waiting");
      this.big.hidden = false;
    });
  }

  // Says so where a film with pictures plays without them.
  tellOfSoundAlone() {
    const { film, video } = this;
    const leftOut = film.row?.stream?.left_out ?? [];
    const pictures = leftOut.find((text) => text.includes("pictures"));
    if (!film.hasPictures) {
      if (pictures) this.tell(`Its sound alone: ${pictures}`);
      return;
    }
    const look = () => {
      if (video.videoWidth > 0 || this.isEnded) return;
      const [codec] = (film.row?.codecs ?? "").split(",");
      this.tell(`This browser plays its sound alone, not its pictures (${codec || "unknown"})`);
    };
    if (video.readyState >= 2) look();
    else video.addEventListener("loadeddata", look, { once: true });
  }

  // Shows the subtitles that the viewer chose before.
  choose() {
    const wanted = remembered("subtitles");
    const apply = () => {
      const listed = this.source?.subtitles() ?? [];
      if (listed.length === 0) return false;
      const found = listed.find(({ language }) => (language || "any") === wanted);
      if (found) found.choose();
      else this.source.hideSubtitles();
      this.controls.refresh();
      return true;
    };
    if (apply()) return;
    this.video.addEventListener("loadedmetadata", apply, { once: true });
  }

  async loadThumbnails() {
    const { film } = this;
    if (film.isLive || !film.hasPictures || !film.hasPoster) return;
    const { signal } = this.abort;
    const address = below(film.name, "thumbnails.vtt");
    const found = await Thumbnails.load(address, signal).catch(() => null);
    if (!this.isEnded) this.controls.seekBar.thumbnails = found;
  }

  fail(error) {
    this.element.classList.remove("waiting");
    this.element.classList.add("failed");
    this.tell(error.message.replace(/\.$/, ""), true);
  }

  destroy() {
    this.save();
    this.isEnded = true;
    this.abort.abort();
    clearInterval(this.saver);
    this.controls.destroy();
    this.source?.destroy();
    if (document.pictureInPictureElement === this.video)
      document.exitPictureInPicture().catch(() => {});
  }
}
