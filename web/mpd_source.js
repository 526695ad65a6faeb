// SPDX-License-Identifier: MIT OR Apache-2.0
// mpd_source: plays a whole file by Media Source Extensions, from the segments that its MPD lists.
//
// Stands in where hls.js is missing or cannot: of what is enciphered with cbcs (clear key), and of
// files whose pictures or sound the browser plays alone. It plays the first sound, and one
// rendition, chosen when it begins; subtitles are tracks of the media element.
//
// Sources: ISO/IEC 23009-1 §5.3.9.4 (SegmentTemplate); Encrypted Media Extensions §9 (clear key).
// Does not play descriptions that change: recordings.

import { ROOT } from "./addresses.js";
import { Refusal, get } from "./api.js";
import { el } from "./dom.js";
import { Unplayable, labelOf } from "./hls_source.js";

const AHEAD_S = 30,
  BEHIND_S = 30,
  RETRIES_MAX = 4;
const MediaSourceKind = window.MediaSource ?? window.ManagedMediaSource;
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// Returns the bytes of a segment. A server that is busy and a network that is away are asked again.
async function fetched(address, signal) {
  for (let tries = 1; ; tries += 1) {
    try {
      return await (await get(address, { signal })).arrayBuffer();
    } catch (error) {
      const isBusy = error instanceof Refusal ? error.status === 503 : error instanceof TypeError;
      if (!isBusy || tries > RETRIES_MAX) throw error;
      await sleep(1000 * tries);
    }
  }
}

// The segments of an adaptation set, in seconds, from one of its representations.
class SegmentTrack {
  constructor(set, base) {
    const type = (one) => `${set.getAttribute("mimeType")}; codecs="${one.getAttribute("codecs")}"`;
    const played = [...set.querySelectorAll("Representation")]
      .filter((one) => MediaSourceKind.isTypeSupported(type(one)))
      .sort((one, other) => other.getAttribute("bandwidth") - one.getAttribute("bandwidth"));
    if (played.length === 0) return;
    const most = 0.7e6 * (navigator.connection?.downlink ?? Infinity);
    const chosen = played.find((one) => one.getAttribute("bandwidth") <= most) ?? played.at(-1);
    const template =
      chosen.querySelector("SegmentTemplate") ?? set.querySelector("SegmentTemplate");
    const scale = Number(template.getAttribute("timescale"));
    const offset = Number(template.getAttribute("presentationTimeOffset") ?? 0);
    this.type = type(chosen);
    this.offset = offset / scale;
    this.init = new URL(template.getAttribute("initialization"), base);
    this.segments = [];
    let [at, number] = [0, Number(template.getAttribute("startNumber") ?? 1)];
    for (const entry of template.querySelectorAll("S")) {
      at = Number(entry.getAttribute("t") ?? at);
      const lasts = Number(entry.getAttribute("d"));
      for (let left = Number(entry.getAttribute("r") ?? 0); left >= 0; left -= 1) {
        const address = new URL(template.getAttribute("media").replace("$Number$", number), base);
        this.segments.push({ address, end: (at + lasts - offset) / scale });
        [at, number] = [at + lasts, number + 1];
      }
    }
  }

  async append(bytes) {
    const { buffer } = this;
    const listeners = new AbortController();
    const { signal } = listeners;
    await new Promise((done, failed) => {
      buffer.addEventListener("updateend", done, { signal });
      const what = "This browser does not play a segment of it";
      buffer.addEventListener("error", () => failed(new Unplayable(what)), { signal });
      buffer.appendBuffer(bytes);
    }).finally(() => listeners.abort());
  }

  // Appends a segment when the browser has memory for it.
  async appendWhenFree(bytes, video, signal) {
    while (!signal.aborted) {
      try {
        return await this.append(bytes);
      } catch (error) {
        const isFull = error.name === "QuotaExceededError" && this.buffer.buffered.length > 0;
        if (!isFull) throw error;
        await this.remove(0, video.currentTime - 1);
        await this.remove(video.currentTime + AHEAD_S, Infinity);
        // Play may have to go on first.
        await sleep(250);
      }
    }
  }

  // The time up to which there is media from the place of play on.
  end(video) {
    const { buffered } = this.buffer;
    for (let at = 0; at < buffered.length; at += 1) {
      const [start, end] = [buffered.start(at), buffered.end(at)];
      if (start <= video.currentTime + 0.1 && video.currentTime <= end) return end;
    }
    return video.currentTime;
  }

  async remove(start, end) {
    const { buffered } = this.buffer;
    if (end <= start || buffered.length === 0) return;
    if (buffered.start(0) >= end || buffered.end(buffered.length - 1) <= start) return;
    await new Promise((done) => {
      this.buffer.addEventListener("updateend", done, { once: true });
      this.buffer.remove(start, end);
    });
  }

  // Fetches what comes next until it is stopped.
  async fill(video, signal) {
    this.buffer.timestampOffset = -this.offset;
    await this.append(await fetched(this.init, signal));
    let last = -1;
    while (!signal.aborted) {
      const end = this.end(video);
      let next = this.segments.findIndex((segment) => segment.end > end + 0.05);
      // What begins a little late is no reason to fetch it twice.
      if (next === last && end > video.currentTime) next += 1;
      this.isDone = next < 0 || next >= this.segments.length;
      if (this.isDone || end > video.currentTime + AHEAD_S) {
        await sleep(250);
        continue;
      }
      const bytes = await fetched(this.segments[next].address, signal);
      await this.appendWhenFree(bytes, video, signal);
      await this.remove(0, video.currentTime - BEHIND_S);
      last = next;
    }
  }
}

export class MpdSource {
  constructor(video, address) {
    Object.assign(this, {
      video,
      address,
      abort: new AbortController(),
      texts: [],
      tell: () => {},
    });
  }

  // Plays from a place on. Resolves when there is something to play; `onEnd` gets a later error.
  async start(at, onEnd) {
    const { video, address } = this;
    const { signal } = this.abort;
    if (!MediaSourceKind) throw new Unplayable("This browser has no Media Source Extensions");
    const text = await (await get(address, { signal })).text();
    const mpd = new DOMParser().parseFromString(text, "application/xml");
    if (mpd.documentElement.getAttribute("type") === "dynamic") {
      throw new Unplayable("The recording is still written");
    }
    const [tracks, missing] = [[], []];
    for (const [kind, name] of [
      ["video", "pictures"],
      ["audio", "sound"],
    ]) {
      const sets = [...mpd.querySelectorAll(`AdaptationSet[contentType=${kind}]`)];
      const track = sets.map((set) => new SegmentTrack(set, address)).find((one) => one.segments);
      if (track) tracks.push(track);
      else if (sets.length > 0) {
        const codecs = sets[0].querySelector("Representation").getAttribute("codecs");
        missing.push(`${name} (${codecs})`);
      }
    }
    if (missing.length > 0) {
      this.note = `This browser does not play its ${missing.join(" and ")}`;
      // Pictures without sound are worth a look.
      if (!tracks.some((track) => track.type.startsWith("video"))) throw new Unplayable(this.note);
    }
    await this.openKeys(mpd, tracks);
    signal.throwIfAborted();
    const source = new MediaSourceKind();
    video.disableRemotePlayback = true;
    this.url = URL.createObjectURL(source);
    video.src = this.url;
    await new Promise((done) => source.addEventListener("sourceopen", done, { once: true }));
    source.duration = Math.max(...tracks.map((track) => track.segments.at(-1).end));
    for (const track of tracks) track.buffer = source.addSourceBuffer(track.type);
    if (at > 0) video.currentTime = at;
    this.addSubtitles(mpd);
    this.timer = setInterval(() => {
      const isIdle = tracks.every((track) => track.isDone && !track.buffer.updating);
      if (isIdle && source.readyState === "open") source.endOfStream();
    }, 250);
    Promise.all(tracks.map((track) => track.fill(video, signal))).catch((error) => {
      if (!signal.aborted) onEnd(error);
    });
  }

  // Gets the keys of what is enciphered with cbcs.
  async openKeys(mpd, tracks) {
    const { video } = this;
    const licence = mpd.getElementsByTagNameNS("*", "Laurl")[0];
    if (!licence) return;
    if (!navigator.requestMediaKeySystemAccess) {
      const where = "browsers open it on pages of https:// or of their own machine alone";
      throw new Unplayable(`It is enciphered: ${where}`);
    }
    const { pathname, search } = new URL(licence.textContent, this.address);
    // The server does not know the path of a proxy before it.
    const path = pathname.startsWith(ROOT.pathname) ? pathname : ROOT.pathname + pathname.slice(1);
    const { signal } = this.abort;
    const set = await (await get(new URL(path + search, ROOT), { signal })).text();
    const kinds = (kind) =>
      tracks
        .filter(({ type }) => type.startsWith(kind))
        .map(({ type }) => ({ contentType: type, encryptionScheme: "cbcs" }));
    const access = await navigator.requestMediaKeySystemAccess("org.w3.clearkey", [
      {
        initDataTypes: ["keyids"],
        videoCapabilities: kinds("video"),
        audioCapabilities: kinds("audio"),
      },
    ]);
    const keys = await access.createMediaKeys();
    await video.setMediaKeys(keys);
    const session = keys.createSession();
    const bytes = (text) => new TextEncoder().encode(text);
    session.addEventListener("message", () => session.update(bytes(set)).catch(() => {}));
    const kids = JSON.parse(set).keys.map(({ kid }) => kid);
    await session.generateRequest("keyids", bytes(JSON.stringify({ kids })));
  }

  addSubtitles(mpd) {
    const sets = mpd.querySelectorAll("AdaptationSet[contentType=text][mimeType='text/vtt']");
    this.texts = [...sets].map((set) => {
      const src = new URL(set.querySelector("BaseURL").textContent, this.address).href;
      const [srclang, label] = [
        set.getAttribute("lang") ?? "",
        set.querySelector("Label")?.textContent,
      ];
      const track = el("track", { kind: "subtitles", src, srclang, label: label ?? "" });
      this.video.append(track);
      track.track.mode = "disabled";
      return track;
    });
  }

  sounds() {
    return [];
  }

  qualities() {
    return [];
  }

  subtitles() {
    return this.texts.map(({ track }, place) => ({
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
    for (const { track } of this.texts) track.mode = "disabled";
  }

  liveEdge() {
    return null;
  }

  destroy() {
    this.abort.abort();
    clearInterval(this.timer);
    this.texts.forEach((track) => track.remove());
    this.video.removeAttribute("src");
    this.video.load();
    if (this.url) URL.revokeObjectURL(this.url);
    if (this.video.mediaKeys) this.video.setMediaKeys(null).catch(() => {});
  }
}
