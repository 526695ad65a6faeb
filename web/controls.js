// SPDX-License-Identifier: MIT OR Apache-2.0
// controls: the buttons of the player, and its keys.
//
// They hide while a film plays and nobody moves; they stay while it is paused, while a menu is open
// and while the keyboard is among them.

import { el, remember, remembered } from "./dom.js";
import { clock } from "./format.js";
import { icon, setIcon } from "./icons.js";
import { menuButton } from "./menu.js";
import { SeekBar } from "./seek_bar.js";

const HIDE_MS = 3000,
  STEP_S = 5,
  LONG_STEP_S = 10,
  STEP_VOLUME = 0.1;
const SPEEDS = [0.5, 0.75, 1, 1.25, 1.5, 2];

// Keys, as the help shows them.
export const KEYS = [
  ["Space, K", "Play or pause"],
  ["← →", "Back or forward 5 seconds"],
  ["J L", "Back or forward 10 seconds"],
  ["↑ ↓", "Louder or quieter, with the focus in the player"],
  ["0 – 9", "To a tenth of the film"],
  ["F", "Full screen"],
  ["M", "Sound off or on"],
  ["C", "Subtitles off or on"],
  ["P", "Picture in picture"],
  ["< >", "Slower or faster"],
  ["?", "This help"],
];

export class Controls {
  // `player` has the element, the video and the source of the moment.
  constructor(player, showHelp) {
    const { video } = player;
    Object.assign(this, { player, video, showHelp });
    const control = (name, label, picture, act) =>
      el(
        "button",
        {
          type: "button",
          class: "control",
          "data-control": name,
          "data-icon": picture,
          "aria-label": label,
          title: label,
          onclick: act,
        },
        icon(picture),
      );
    this.seekBar = new SeekBar(video, (seconds) => this.seek(seconds));
    this.play = control("play", "Play", "play", () => this.toggle());
    this.mute = control("mute", "Mute", "volume", () => this.toggleMute());
    this.volume = el("input", {
      type: "range",
      class: "volume",
      min: "0",
      max: "1",
      step: "0.05",
      "aria-label": "Volume",
      oninput: () => this.setVolume(Number(this.volume.value)),
    });
    this.time = el("span", { class: "time" }, "0:00");
    this.live = el(
      "button",
      {
        type: "button",
        class: "live-button",
        hidden: true,
        onclick: () => this.goLive(),
      },
      "Live",
    );
    const menus = [
      ["subtitles", "Subtitles", "subtitles", () => this.subtitles()],
      ["audio", "Sound", "audio", () => player.source?.sounds() ?? []],
      ["quality", "Quality", "system", () => player.source?.qualities() ?? []],
      ["speed", "Speed", "speed", () => this.speeds()],
    ];
    this.menus = menus.map(([name, label, picture, choices]) => ({
      name,
      choices,
      ...menuButton({ name, label, picture, choices }),
    }));
    this.pip = control("pip", "Picture in picture", "pip", () => this.togglePip());
    this.full = control("fullscreen", "Full screen", "fullscreen", () => this.toggleFull());
    const help = control("help", "Keys", "help", showHelp);
    help.classList.add("wide-only");
    this.pip.hidden = !document.pictureInPictureEnabled;
    this.element = el(
      "div",
      { class: "controls" },
      this.seekBar.element,
      el(
        "div",
        { class: "control-row" },
        this.play,
        this.mute,
        this.volume,
        this.time,
        this.live,
        el("span", { class: "gap" }),
        ...this.menus.map(({ holder }) => holder),
        help,
        this.pip,
        this.full,
      ),
    );
    this.listen();
    this.setVolume(Number(remembered("volume") ?? 1));
    this.refresh();
  }

  listen() {
    const { video, player } = this;
    for (const name of ["play", "pause", "ended", "timeupdate", "durationchange", "volumechange"]) {
      video.addEventListener(name, () => this.refresh());
    }
    // Nobody moves where a film begins by itself.
    video.addEventListener("play", () => this.wake());
    video.addEventListener("enterpictureinpicture", () => this.refresh());
    player.element.addEventListener("pointermove", (event) => {
      if (event.pointerType === "mouse") this.wake();
    });
    player.element.addEventListener("focusin", () => this.wake());
    video.addEventListener("click", (event) => {
      // A finger shows the controls first.
      if (event.pointerType === "touch" && this.isAsleep()) this.wake();
      else if (event.pointerType !== "touch") this.toggle();
      else player.element.classList.add("asleep");
    });
    video.addEventListener("dblclick", () => this.toggleFull());
    this.onKey = (event) => this.key(event);
    document.addEventListener("keydown", this.onKey);
    this.onFull = () => this.refresh();
    document.addEventListener("fullscreenchange", this.onFull);
  }

  destroy() {
    document.removeEventListener("keydown", this.onKey);
    document.removeEventListener("fullscreenchange", this.onFull);
    clearTimeout(this.timer);
  }

  isAsleep() {
    return this.player.element.classList.contains("asleep");
  }

  wake() {
    const { element } = this.player;
    element.classList.remove("asleep");
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      const isBusy = this.menus.some((menu) => menu.isOpen()) || this.video.paused;
      const hasKeyboard = this.element.querySelector(":focus-visible") !== null;
      if (!isBusy && !hasKeyboard) element.classList.add("asleep");
    }, HIDE_MS);
  }

  // Shows what is so.
  refresh() {
    const { video, player } = this;
    const isEnded = video.ended;
    setIcon(this.play, isEnded ? "replay" : video.paused ? "play" : "pause");
    this.name(this.play, isEnded ? "Play again" : video.paused ? "Play" : "Pause");
    const isMuted = video.muted || video.volume === 0;
    setIcon(this.mute, isMuted ? "muted" : "volume");
    this.name(this.mute, isMuted ? "Unmute" : "Mute");
    this.volume.value = String(video.muted ? 0 : video.volume);
    this.volume.style.setProperty("--played", `${this.volume.value * 100}%`);
    const isFull = document.fullscreenElement === player.element;
    setIcon(this.full, isFull ? "window" : "fullscreen");
    this.name(this.full, isFull ? "Leave full screen" : "Full screen");
    const isLive = player.isLive && !Number.isFinite(video.duration);
    const [start, end] = this.seekBar.range();
    const behind = end - video.currentTime;
    this.time.textContent = isLive
      ? behind > 20
        ? `−${clock(behind)}`
        : ""
      : `${clock(video.currentTime)} / ${clock(end - start)}`;
    this.live.hidden = !isLive;
    this.live.classList.toggle("at-edge", behind <= 20);
    for (const { name, holder, choices } of this.menus) {
      const least = { subtitles: 2, audio: 2, quality: 2, speed: 1 }[name];
      holder.hidden = choices().length < least || (isLive && name === "speed");
    }
    if (video.paused) player.element.classList.remove("asleep");
  }

  name(button, label) {
    if (button.title === label) return;
    button.title = label;
    button.setAttribute("aria-label", label);
  }

  toggle() {
    const { video } = this;
    this.player.wantsPlay();
    if (video.paused || video.ended) video.play().catch(() => {});
    else video.pause();
    this.wake();
  }

  seek(seconds) {
    const [start, end] = this.seekBar.range();
    // The very end would end the film.
    this.video.currentTime = Math.min(Math.max(start, end - 0.2), Math.max(start, seconds));
    this.wake();
  }

  goLive() {
    const edge = this.player.source?.liveEdge() ?? this.seekBar.range()[1] - 5;
    this.seek(edge);
    this.video.play().catch(() => {});
  }

  toggleMute() {
    const { video } = this;
    if (video.volume === 0) return this.setVolume(0.5);
    video.muted = !video.muted;
  }

  setVolume(volume) {
    const chosen = Number.isFinite(volume) ? Math.min(1, Math.max(0, volume)) : 1;
    this.video.volume = chosen;
    if (chosen > 0) this.video.muted = false;
    remember("volume", String(chosen));
  }

  subtitles() {
    const listed = this.player.source?.subtitles() ?? [];
    const off = {
      label: "Off",
      isChecked: !listed.some(({ isChecked }) => isChecked),
      choose: () => {
        remember("subtitles", null);
        this.player.source.hideSubtitles();
      },
    };
    const kept = listed.map((one) => ({
      ...one,
      choose: () => {
        remember("subtitles", one.language || "any");
        one.choose();
      },
    }));
    return [off, ...kept];
  }

  toggleSubtitles() {
    const [off, ...listed] = this.subtitles();
    if (!off.isChecked) {
      this.lastSubtitles = listed.findIndex(({ isChecked }) => isChecked);
      off.choose();
    } else {
      (listed[this.lastSubtitles ?? 0] ?? listed[0])?.choose();
    }
  }

  speeds() {
    const { video } = this;
    return SPEEDS.map((speed) => ({
      label: speed === 1 ? "Normal" : `${speed}×`,
      isChecked: video.playbackRate === speed,
      choose: () => {
        video.playbackRate = speed;
      },
    }));
  }

  stepSpeed(step) {
    const at = SPEEDS.indexOf(this.video.playbackRate);
    this.video.playbackRate = SPEEDS[Math.min(SPEEDS.length - 1, Math.max(0, at + step))];
  }

  togglePip() {
    if (document.pictureInPictureElement) document.exitPictureInPicture().catch(() => {});
    else this.video.requestPictureInPicture?.().catch(() => {});
  }

  toggleFull() {
    const { element } = this.player;
    if (document.fullscreenElement) document.exitFullscreen().catch(() => {});
    else if (element.requestFullscreen) element.requestFullscreen().catch(() => {});
    // A phone of Apple's knows the full screen of videos alone.
    else this.video.webkitEnterFullscreen?.();
  }

  key(event) {
    const { target, key } = event;
    if (event.ctrlKey || event.altKey || event.metaKey || event.defaultPrevented) return;
    const isText = target.closest?.("input:not([type=range]), select, textarea, dialog");
    const isButton = target.closest?.("button, a, summary") && (key === " " || key === "Enter");
    if (isText || isButton) return;
    // Elsewhere keys scroll and choose. A new view has the focus on its main part.
    const isInside = this.player.element.contains(target);
    const isPage = target.matches?.("html, body, main");
    const isVertical = key === "ArrowUp" || key === "ArrowDown";
    if (!isInside && (isVertical || !isPage)) return;
    if (target === this.volume && key.startsWith("Arrow")) return;
    const { video } = this;
    const acts = {
      " ": () => this.toggle(),
      k: () => this.toggle(),
      ArrowLeft: () => this.seek(video.currentTime - STEP_S),
      ArrowRight: () => this.seek(video.currentTime + STEP_S),
      j: () => this.seek(video.currentTime - LONG_STEP_S),
      l: () => this.seek(video.currentTime + LONG_STEP_S),
      ArrowUp: () => this.setVolume(video.volume + STEP_VOLUME),
      ArrowDown: () => this.setVolume(video.volume - STEP_VOLUME),
      f: () => this.toggleFull(),
      m: () => this.toggleMute(),
      c: () => this.toggleSubtitles(),
      p: () => this.togglePip(),
      "<": () => this.stepSpeed(-1),
      ">": () => this.stepSpeed(1),
      "?": () => this.showHelp(),
    };
    const tenth = /^[0-9]$/.test(key)
      ? () => {
          const [start, end] = this.seekBar.range();
          this.seek(start + ((end - start) * Number(key)) / 10);
        }
      : null;
    const act = acts[key.length === 1 ? key.toLowerCase() : key] ?? tenth;
    if (!act) return;
    event.preventDefault();
    act();
    this.wake();
  }
}
