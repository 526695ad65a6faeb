// SPDX-License-Identifier: MIT OR Apache-2.0
// Plays an address in one of four players, follows a list of steps, and reports the state of the
// media element before and after each: the plan is JSON in the fragment of the page's address, the
// report JSON that is posted to `report`.
//
// Sources: HTML standard §4.8.11 (media elements); Media Playback Quality; Web Audio (spectrum);
// the API documents of hls.js, dash.js and Shaka Player; Encrypted Media Extensions (clear key).
// Does not judge: the test does.
'use strict';

const plan = JSON.parse(decodeURIComponent(location.hash.slice(1)));
const video = document.getElementById('video');
const began = performance.now();
const errors = [];
const samples = [];
// Start, end and text of each cue: players drop those that were shown.
const cues = new Map();
// Time of the frame that was last composed.
let shown = null;
// Sound as it is heard, and its spectrum.
const listener = new AudioContext();
const analyser = listener.createAnalyser();
analyser.fftSize = 8192;
listener.createMediaElementSource(video).connect(analyser);

// The loudest pitch of the last 0.2 s.
function pitch() {
  const spectrum = new Float32Array(analyser.frequencyBinCount);
  analyser.getFloatFrequencyData(spectrum);
  const loudest = Math.max(...spectrum);
  if (!Number.isFinite(loudest)) return null;
  return spectrum.indexOf(loudest) * listener.sampleRate / analyser.fftSize;
}

// dash.js keeps TTML as it is to be rendered.
const text_in = (part) => (part.text || '') + (part.contents || []).map(text_in).join('');

function note_cues() {
  for (const track of video.textTracks) {
    for (const cue of track.cues || []) {
      const text = cue.text || (cue.isd ? text_in(cue.isd) : '');
      if (text) cues.set(`${cue.startTime} ${cue.endTime} ${text}`,
          [cue.startTime, cue.endTime, text]);
    }
  }
}

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function until(holds, what, seconds) {
  const deadline = performance.now() + seconds * 1000;
  while (!holds()) {
    if (performance.now() > deadline) throw new Error(`${what}: not within ${seconds} s`);
    await wait(20);
  }
}

// dash.js does not end the stream when one of its buffers is changed at that moment; the element
// then stays at the end of what is there.
const has_ended = () => video.ended ||
    plan.player === 'dash.js' && video.currentTime >= video.duration - 0.001;

function state() {
  const quality = video.getVideoPlaybackQuality();
  const buffered = [];
  for (let at = 0; at < video.buffered.length; at++) {
    buffered.push([video.buffered.start(at), video.buffered.end(at)]);
  }
  return {
    wall_s: (performance.now() - began) / 1000,
    time_s: video.currentTime,
    duration_s: Number.isFinite(video.duration) ? video.duration : null,
    shown_s: shown,
    frames: quality.totalVideoFrames,
    dropped: quality.droppedVideoFrames,
    pitch_hz: pitch(),
    sound_bytes: video.webkitAudioDecodedByteCount,
    width: video.videoWidth,
    height: video.videoHeight,
    buffered,
    ended: has_ended(),
  };
}

const load = (source) => new Promise((resolve, reject) => {
  const script = document.createElement('script');
  script.src = source;
  script.onload = resolve;
  script.onerror = () => reject(new Error(`no ${source}`));
  document.head.append(script);
});

// Each starts its player and returns what differs between players: the sounds that can be chosen
// and the pictures, by name, the choice of one, and that of the first subtitles.
const PLAYERS = {
  async 'native'() {
    if (!video.canPlayType('application/vnd.apple.mpegurl')) return null;
    video.crossOrigin = 'anonymous';
    video.src = plan.url;
    return {};
  },

  async 'hls.js'() {
    await load('hls.js');
    const config = {};
    if (plan.clear_key_url) {
      config.emeEnabled = true;
      config.drmSystems = {'org.w3.clearkey': {licenseUrl: plan.clear_key_url}};
    }
    const hls = new Hls(config);
    hls.on(Hls.Events.ERROR, (_, data) => {
      errors.push(`${data.fatal ? 'fatal ' : ''}${data.details} ${data.error}`);
    });
    hls.loadSource(plan.url);
    hls.attachMedia(video);
    return {
      sounds: () => hls.audioTracks.map((track) => track.lang || track.name),
      choose_sound: (index) => { hls.audioTrack = index; },
      chosen_sound: () => hls.audioTrack,
      pictures: () => hls.levels.map((level) => `${level.width}x${level.height}`),
      choose_picture: (index) => { hls.currentLevel = index; },
      choose_text: () => {
        hls.subtitleDisplay = true;
        hls.subtitleTrack = 0;
      },
    };
  },

  async 'dash.js'() {
    await load('dash.js');
    const player = dashjs.MediaPlayer().create();
    // Nothing is to be fetched but what the test serves.
    player.updateSettings({streaming: {utcSynchronization: {enabled: false}}});
    player.on('error', ({error}) => errors.push(`fatal ${error.code} ${error.message}`));
    if (plan.clear_keys) {
      player.setProtectionData({'org.w3.clearkey': {clearkeys: plan.clear_keys}});
    }
    player.initialize(video, plan.url, false);
    player.attachTTMLRenderingDiv(document.body.appendChild(document.createElement('div')));
    const sounds = () => player.getTracksFor('audio');
    const pictures = () => player.getRepresentationsByType('video');
    return {
      sounds: () => sounds().map((track) => track.lang || String(track.index)),
      choose_sound: (index) => player.setCurrentTrack(sounds()[index]),
      chosen_sound: () => sounds().indexOf(player.getCurrentTrackFor('audio')),
      pictures: () => pictures().map((one) => `${one.width}x${one.height}`),
      choose_picture: (index) => {
        player.updateSettings({streaming: {abr: {autoSwitchBitrate: {video: false}}}});
        player.setRepresentationForTypeByIndex('video', index, true);
      },
      choose_text: () => {
        player.enableText(true);
        player.setTextTrack(0);
      },
    };
  },

  async 'shaka'() {
    await load('shaka.js');
    shaka.polyfill.installAll();
    const player = new shaka.Player();
    const told = (error) => `${error.severity === 2 ? 'fatal ' : ''}shaka ${error.code} ` +
        JSON.stringify(error.data);
    player.addEventListener('error', ({detail}) => errors.push(told(detail)));
    await player.attach(video);
    if (plan.clear_keys) {
      const hex = (text) => Array.from(atob(text.replace(/-/g, '+').replace(/_/g, '/')))
          .map((byte) => byte.charCodeAt(0).toString(16).padStart(2, '0')).join('');
      const keys = Object.entries(plan.clear_keys).map(([id, key]) => [hex(id), hex(key)]);
      player.configure({drm: {clearKeys: Object.fromEntries(keys)}});
    }
    try {
      await player.load(plan.url);
    } catch (error) {
      throw new Error(error.code ? told(error) : error);
    }
    const sounds = () => player.getAudioTracks();
    const pictures = () => player.getVideoTracks();
    return {
      sounds: () => sounds().map((track) => track.language || track.label),
      choose_sound: (index) => player.selectAudioTrack(sounds()[index]),
      chosen_sound: () => sounds().findIndex((track) => track.active),
      pictures: () => pictures().map((track) => `${track.width}x${track.height}`),
      choose_picture: (index) => {
        player.configure({abr: {enabled: false}});
        player.selectVideoTrack(pictures()[index], true);
      },
      choose_text: () => player.selectTextTrack(player.getTextTracks()[0]),
    };
  },
};

const STEPS = {
  async play(_, {seconds}) {
    const from = video.currentTime;
    await video.play();
    await until(() => video.currentTime >= from + seconds, `playing ${seconds} s`, seconds + 15);
  },

  // Paused, so that the frame is that of the time, and stays. A frame that is composed while the
  // callback of the one before it is still to come is told to nobody: the same time is sought
  // again.
  async seek(_, {seconds}) {
    video.pause();
    // One of before the seek may be composed meanwhile.
    const is_near = () => shown !== null && Math.abs(shown - video.currentTime) < 1;
    const is_shown = () => !video.videoWidth || is_near();
    shown = null;
    for (const last of [false, false, true]) {
      const seeked = new Promise((resolve) => { video.onseeked = () => resolve(true); });
      video.currentTime = seconds;
      const late = wait(15000).then(() => false);
      if (!await Promise.race([seeked, late])) throw new Error(`seek to ${seconds}: not seeked`);
      const frame = until(is_shown, `seek to ${seconds}: a frame`, 5);
      if (await frame.then(() => true, (error) => { if (last) throw error; })) return;
    }
  },

  async sound(player, {index}) {
    player.choose_sound(index);
    await until(() => player.chosen_sound() === index, `sound ${index}`, 15);
  },

  async picture(player, {size}) {
    player.choose_picture(player.pictures().indexOf(size));
    await until(() => `${video.videoWidth}x${video.videoHeight}` === size, `picture ${size}`, 20);
  },

  async text(player) {
    player.choose_text();
    await until(() => cues.size > 0, 'a cue', 15);
  },

  async end() {
    const rest = Number.isFinite(video.duration) ? video.duration - video.currentTime : 60;
    await video.play();
    await until(has_ended, 'the end', rest + 15);
  },
};

function each_frame(_, frame) {
  shown = frame.mediaTime;
  video.requestVideoFrameCallback(each_frame);
}

async function run() {
  const report = {able: true, steps: [], sounds: [], pictures: []};
  video.onerror = () => errors.push(`fatal element ${video.error.code} ${video.error.message}`);
  video.requestVideoFrameCallback(each_frame);
  const sampling = setInterval(() => {
    const {wall_s, time_s, frames} = state();
    samples.push([wall_s, time_s, frames]);
    note_cues();
  }, 100);
  try {
    const player = await PLAYERS[plan.player]();
    if (!player) return {...report, able: false};
    const fatal = () => errors.find((error) => error.startsWith('fatal'));
    await until(() => fatal() || video.readyState >= 2, 'the first frame', 20);
    for (const step of fatal() ? [] : plan.steps) {
      const before = state();
      await STEPS[step.do](player, step);
      report.steps.push({before, after: state()});
    }
    if (player.sounds) report.sounds = player.sounds();
    if (player.pictures) report.pictures = player.pictures();
  } catch (error) {
    errors.push(`fatal ${error.message} ${JSON.stringify(state())}`);
  }
  clearInterval(sampling);
  return report;
}

run().then((report) => fetch('report', {
  method: 'POST',
  body: JSON.stringify({...report, errors, samples, cues: [...cues.values()]}),
}));
