// SPDX-License-Identifier: MIT OR Apache-2.0
// Plays a recording in progress by hls.js for some seconds from its live edge on, and reports ten
// times a second where it is: the plan is JSON in the fragment of the page's address, the report
// JSON that is posted to `report`.
//
// Sources: the API document of hls.js; HTML standard §4.8.11 (media elements).
// Does not judge: the test does.
'use strict';

const plan = JSON.parse(decodeURIComponent(location.hash.slice(1)));
const video = document.getElementById('video');
const report = {samples: [], errors: [], parts: 0, segments: 0, width: 0};

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function until(holds, seconds) {
  const deadline = performance.now() + seconds * 1000;
  while (!holds() && performance.now() < deadline) await wait(20);
  return holds();
}

async function run() {
  const config = {lowLatencyMode: plan.low_latency};
  if (plan.low_latency) {
    // Playing faster makes good what a slow start took; half a second more than the playlist's
    // distance is for machines that do much else.
    Object.assign(config, {maxLiveSyncPlaybackRate: 1.5, liveSyncDuration: 2});
  }
  const hls = new Hls(config);
  hls.on(Hls.Events.ERROR, (_, data) => {
    const {details, fatal, error} = data;
    const at = `at ${video.currentTime}, buffered ${end()}`;
    report.errors.push(`${fatal ? 'fatal ' : ''}${details} ${error?.message} ${at}`);
  });
  hls.on(Hls.Events.FRAG_BUFFERED, (_, data) => {
    if (data.part) report.parts += 1;
    else report.segments += 1;
  });
  const end = () => video.buffered.length ? video.buffered.end(video.buffered.length - 1) : null;
  hls.loadSource(plan.url);
  hls.attachMedia(video);
  const is_fatal = () => report.errors.some((error) => error.startsWith('fatal'));
  if (!await until(() => is_fatal() || video.readyState >= 3, 30)) return;
  await video.play();
  await wait(5000);
  const began = performance.now();
  while (performance.now() - began < plan.seconds * 1000 && !is_fatal()) {
    report.samples.push({
      wall_s: Date.now() / 1000,
      time_s: video.currentTime,
      date_s: hls.playingDate ? hls.playingDate.getTime() / 1000 : null,
      ahead_s: end() - video.currentTime,
      frames: video.getVideoPlaybackQuality().totalVideoFrames,
    });
    await wait(100);
  }
  report.width = video.videoWidth;
  hls.destroy();
}

run().catch((error) => report.errors.push(`fatal ${error.message}`)).then(() => fetch('report', {
  method: 'POST',
  body: JSON.stringify(report),
}));
