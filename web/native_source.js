// SPDX-License-Identifier: MIT OR Apache-2.0
// native_source: plays an address by the browser's own player: HLS where it knows it (Safari,
// Chromium), or a file as it is.
//
// A playlist is begun anew after a fault, a few times without some seconds of play in between: a
// channel has sent too little as yet (503), or the browser's player gave up.

import { reasonOf } from "./api.js";
import { Unplayable, labelOf } from "./hls_source.js";

const RETRIES_MAX = 8,
  RETRY_MS = 1000,
  PLAYED_S = 10;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const HLS = "application/vnd.apple.mpegurl";

export class NativeSource {
  constructor(video, address, { isPlaylist, isLive }) {
    Object.assign(this, { video, address, isPlaylist, isLive, retries: 0, isEnded: false });
    this.onTime = () => {
      if (video.currentTime > PLAYED_S) this.retries = 0;
    };
    video.addEventListener("timeupdate", this.onTime);
  }

  async start(at, onEnd) {
    const { video, address } = this;
    if (this.isPlaylist && !video.canPlayType(HLS)) {
      throw new Unplayable("This browser does not play HLS by itself");
    }
    // Not kept: the element asks for the text of a later moment.
    const answer = await fetch(address, {
      method: this.isPlaylist ? "GET" : "HEAD",
      cache: "no-store",
    });
    if (this.isEnded) return;
    if (answer.status === 503 && (this.retries += 1) <= RETRIES_MAX) {
      await sleep(RETRY_MS);
      if (!this.isEnded) await this.start(at, onEnd);
      return;
    }
    if (!answer.ok) {
      // An answer to HEAD has no text.
      const reason = (await reasonOf(answer)) || `The server refused it with ${answer.status}`;
      // Who may not download a file may be allowed to play it.
      const isRefused = answer.status === 401 || answer.status === 403;
      throw !this.isPlaylist && isRefused ? new Unplayable(reason) : new Error(reason);
    }
    this.onError ??= () => this.again(onEnd);
    video.addEventListener("error", this.onError);
    video.src = address;
    if (at > 0) video.currentTime = at;
  }

  // Begins anew: where it was, or with what is sent now.
  async again(onEnd) {
    const { video } = this;
    const why = video.error?.message || "media error";
    // A format that is unknown stays so; what is written at this moment may be known in a second.
    const isUnknown = video.error?.code === MediaError.MEDIA_ERR_SRC_NOT_SUPPORTED;
    if (isUnknown && !this.isLive && video.currentTime === 0) {
      onEnd(new Unplayable("This browser does not play its format"));
      return;
    }
    if ((this.retries += 1) > RETRIES_MAX) {
      onEnd(new Unplayable(`This browser's player gave up (${why})`));
      return;
    }
    const at = Number.isFinite(video.duration) ? video.currentTime : 0;
    await sleep(RETRY_MS);
    if (this.isEnded) return;
    // A refusal to play comes as an error of the element, too.
    await this.start(at, onEnd).then(() => void video.play().catch(() => {}), onEnd);
  }

  sounds() {
    const tracks = [...(this.video.audioTracks ?? [])];
    return tracks.length < 2
      ? []
      : tracks.map((track, place) => ({
          label: labelOf(track, `Sound ${place + 1}`),
          isChecked: track.enabled,
          choose: () =>
            tracks.forEach((other) => {
              other.enabled = other === track;
            }),
        }));
  }

  subtitles() {
    const tracks = [...this.video.textTracks].filter(({ kind }) => kind !== "metadata");
    return tracks.map((track, place) => ({
      label: labelOf(track, `Subtitles ${place + 1}`),
      language: track.language,
      isChecked: track.mode === "showing",
      choose: () => {
        this.hideSubtitles();
        track.mode = "showing";
      },
    }));
  }

  hideSubtitles() {
    for (const track of this.video.textTracks) {
      if (track.kind !== "metadata") track.mode = "disabled";
    }
  }

  qualities() {
    return [];
  }

  liveEdge() {
    return null;
  }

  destroy() {
    this.isEnded = true;
    this.video.removeEventListener("timeupdate", this.onTime);
    if (this.onError) this.video.removeEventListener("error", this.onError);
    this.video.removeAttribute("src");
    this.video.load();
  }
}
