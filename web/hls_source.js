// SPDX-License-Identifier: MIT OR Apache-2.0
// hls_source: plays a playlist by hls.js, which `make web` bundles.
//
// hls.js itself retries requests. What it gives up is begun again here, a few times without some
// seconds of play in between: at the same place of a film, with what is sent now of a channel.
// Formats that the browser cannot play end it at once.

import { languageName } from "./format.js";

const RETRIES_MAX = 8,
  RETRY_MS = 1000,
  PLAYED_S = 10;

// The browser does not play it, and no retry helps.
export class Unplayable extends Error {}

export function isBundled() {
  return document.querySelector("meta[name=pagewire]")?.content.split(" ").includes("hls") ?? false;
}

export class HlsSource {
  // Loads the library; `null` where there is none, or the browser has no Media Source Extensions.
  static async create(video, address) {
    if (!isBundled()) return null;
    const { default: Hls } = await import("./hls.js");
    return Hls.isSupported() ? new HlsSource(Hls, video, address) : null;
  }

  constructor(Hls, video, address) {
    Object.assign(this, { Hls, video, address, retries: 0, hls: null, fail: null, isEnded: false });
    this.onTime = () => {
      if (video.currentTime - this.since > PLAYED_S) this.retries = 0;
    };
    video.addEventListener("timeupdate", this.onTime);
  }

  // Plays from a place on. Resolves when there is something to play; `onEnd` gets a later error.
  async start(at, onEnd) {
    if (this.isEnded) return;
    this.onEnd = onEnd;
    await new Promise((done, failed) => {
      this.fail = (error) => {
        failed(error);
        this.onEnd(error);
      };
      this.open(at > 0 ? at : -1, done);
    });
  }

  open(at, done) {
    const { Hls, video } = this;
    this.hls?.destroy();
    this.since = video.currentTime;
    // A worker would have to come from an address of its own.
    const settings = {
      enableWorker: false,
      startPosition: at,
      backBufferLength: 60,
      // The end of what is sent now is no end.
      liveDurationInfinity: true,
    };
    const hls = new Hls(settings);
    this.hls = hls;
    hls.on(Hls.Events.ERROR, (_, data) => {
      if (data.fatal) this.recover(data, done);
    });
    hls.on(Hls.Events.LEVEL_LOADED, (_, { details }) => {
      const keys = Object.values(details.fragments[0]?.levelkeys ?? {});
      if (keys.some((key) => key?.method === "SAMPLE-AES")) {
        this.fail(
          new Unplayable("Its samples are enciphered, which hls.js opens with a licence alone"),
        );
      }
    });
    hls.on(Hls.Events.MANIFEST_PARSED, () => done());
    hls.loadSource(this.address);
    hls.attachMedia(video);
  }

  async recover(data, done) {
    const { Hls, hls, video } = this;
    const { ErrorTypes, ErrorDetails } = Hls;
    const unplayable = [ErrorDetails.MANIFEST_INCOMPATIBLE_CODECS_ERROR];
    unplayable.push(
      ErrorDetails.BUFFER_ADD_CODEC_ERROR,
      ErrorDetails.BUFFER_INCOMPATIBLE_CODECS_ERROR,
    );
    if (unplayable.includes(data.details)) {
      this.fail(new Unplayable("This browser does not play its codecs"));
      return;
    }
    const status = data.response?.code ?? 0;
    const words = this.words(data);
    this.retries += 1;
    const isRefused = status >= 400 && status < 500 && status !== 410;
    if (isRefused || this.retries > RETRIES_MAX) {
      this.fail(new Error(words));
      return;
    }
    await new Promise((wait) => setTimeout(wait, RETRY_MS));
    if (this.hls !== hls) return;
    if (data.type === ErrorTypes.MEDIA_ERROR) {
      hls.recoverMediaError();
      video.play().catch(() => {});
      return;
    }
    const at = Number.isFinite(video.duration) ? video.currentTime : -1;
    this.open(at > 0 ? at : -1, done);
  }

  // The server's own words, if it said any.
  words(data) {
    const { networkDetails } = data;
    const text =
      networkDetails instanceof XMLHttpRequest && networkDetails.responseType !== "arraybuffer"
        ? networkDetails.responseText.trim()
        : "";
    if (text && text.length < 500) return text.replace(/^\d+ [A-Za-z ]+: /, "");
    return data.error?.message ?? data.details;
  }

  sounds() {
    const { hls } = this;
    return (hls?.audioTracks ?? []).map((track, place) => ({
      label: labelOf(track, `Sound ${place + 1}`),
      isChecked: place === hls.audioTrack,
      choose: () => {
        hls.audioTrack = place;
      },
    }));
  }

  subtitles() {
    const { hls } = this;
    return (hls?.subtitleTracks ?? []).map((track, place) => ({
      label: labelOf(track, `Subtitles ${place + 1}`),
      language: track.lang ?? "",
      isChecked: hls.subtitleDisplay && place === hls.subtitleTrack,
      choose: () => {
        hls.subtitleDisplay = true;
        hls.subtitleTrack = place;
      },
    }));
  }

  hideSubtitles() {
    if (this.hls) this.hls.subtitleTrack = -1;
  }

  qualities() {
    const { hls } = this;
    if (!hls || hls.levels.length < 2) return [];
    const levels = hls.levels.map((level, place) => ({
      label: level.height ? `${level.height}p` : `${Math.round(level.bitrate / 1000)} kb/s`,
      height: level.height ?? 0,
      isChecked: !hls.autoLevelEnabled && hls.currentLevel === place,
      choose: () => {
        hls.currentLevel = place;
      },
    }));
    const automatic = {
      label: "Automatic",
      isChecked: hls.autoLevelEnabled,
      choose: () => {
        hls.currentLevel = -1;
      },
    };
    return [automatic, ...levels.sort((one, other) => other.height - one.height)];
  }

  // Where what is sent now is, of a recording or channel.
  liveEdge() {
    return this.hls?.liveSyncPosition ?? null;
  }

  destroy() {
    this.isEnded = true;
    this.video.removeEventListener("timeupdate", this.onTime);
    this.hls?.destroy();
    this.hls = null;
  }
}

export function labelOf(track, otherwise) {
  const language = languageName(track.lang ?? track.language);
  const name = track.name ?? track.label ?? "";
  if (language && name && !name.toLowerCase().includes(language.toLowerCase())) {
    return name === (track.lang ?? track.language) ? language : `${language} (${name})`;
  }
  return name || language || otherwise;
}
