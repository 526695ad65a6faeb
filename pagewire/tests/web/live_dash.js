// SPDX-License-Identifier: MIT OR Apache-2.0
// Plays a recording in progress by dash.js for some seconds from its live edge on, reports where it
// was ten times a second, then plays on to the end and reports that: the plan is JSON in the
// fragment of the page's address, a report JSON that is posted to `report`.
//
// Sources: the API document of dash.js; HTML standard §4.8.11 (media elements).
// Does not judge: the test does.
'use strict';

const plan = JSON.parse(decodeURIComponent(location.hash.slice(1)));
const video = document.getElementById('video');
const report = {samples: [], errors: [], width: 0, ended: false, time_s: 0, duration_s: 0};

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function until(holds, seconds) {
  const deadline = performance.now() + seconds * 1000;
  while (!holds() && performance.now() < deadline) await wait(20);
  return holds();
}

const post = () => fetch('report', {method: 'POST', body: JSON.stringify(report)});
const is_fatal = () => report.errors.length > 0;
const end = () => video.buffered.length ? video.buffered.end(video.buffered.length - 1) : 0;

async function run() {
  const player = dashjs.MediaPlayer().create();
  player.on('error', ({error}) => report.errors.push(`${error.code} ${error.message}`));
  video.onerror = () => report.errors.push(`element ${video.error.code} ${video.error.message}`);
  player.initialize(video, plan.url, true);
  if (!await until(() => is_fatal() || video.readyState >= 3 && !video.paused, 30)) {
    report.errors.push(`nothing to play: ${video.readyState} ${video.currentTime} ${end()}`);
    return post();
  }
  await wait(5000);
  const began = performance.now();
  while (performance.now() - began < plan.seconds * 1000 && !is_fatal()) {
    report.samples.push({
      wall_s: Date.now() / 1000,
      time_s: video.currentTime,
      latency_s: player.getCurrentLiveLatency(),
      ahead_s: end() - video.currentTime,
      frames: video.getVideoPlaybackQuality().totalVideoFrames,
    });
    await wait(100);
  }
  report.width = video.videoWidth;
  await post();
  // The source ends now; so does the recording, later.
  const is_at_end = () => video.ended ||
      !player.isDynamic() && video.currentTime >= video.duration - 0.001;
  report.ended = await until(() => is_fatal() || is_at_end(), plan.end_s) && is_at_end();
  Object.assign(report, {
    samples: [],
    time_s: video.currentTime,
    duration_s: Number.isFinite(video.duration) ? video.duration : 0,
    ahead_s: end() - video.currentTime,
  });
  return post();
}

run().catch((error) => {
  report.errors.push(error.message);
  return post();
});
