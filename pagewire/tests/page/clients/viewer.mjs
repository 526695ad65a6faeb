// SPDX-License-Identifier: MIT OR Apache-2.0
// viewer: a new user finds a film by search, plays it, seeks, changes subtitles and sound, looks
// for its address, and goes back; with clicks and keys alone.

import { SERVER, click, faults, finish, launch, open, settled } from "./driver.mjs";

const browser = await launch();
const viewer = await open(browser);
const { page } = viewer;
const report = { steps: [] };
const video = (read) => page.$eval("video", read);
const until = (test, what) =>
  page.waitForFunction(test, { timeout: 20_000, polling: 100 }).catch(() => {
    throw new Error(`${what}: not so within 20 s`);
  });
const note = (name, value) => report.steps.push([name, value]);

await page.goto(SERVER);
await settled(page);
note("title", await page.title());
note("headings", await page.$$eval("h2", (all) => all.map((one) => one.textContent)));

await click(page, "input[type=search]");
await page.keyboard.type("bunny", { delay: 20 });
await until(
  () =>
    document.querySelector("h1")?.textContent.includes("bunny") && document.querySelector("a.card"),
  "results",
);
note("found", await page.$$eval(".card-title", (all) => all.map((one) => one.textContent)));
note("search", new URL(page.url()).search);

await click(page, "a.card");
await until(() => document.querySelector("video")?.currentTime > 1, "play");
note("path", new URL(page.url()).pathname);
note("icon", await page.$eval("link[rel=icon]", (one) => new URL(one.href).pathname));
note("heading", await page.$eval("h1", (one) => one.textContent));
note("duration", await video((one) => one.duration));
note("player", await video((one) => one.src.startsWith("blob:")));
note("picture", await video((one) => [one.videoWidth, one.videoHeight]));

// In the middle of the slider is the middle of the film.
const seek = await page.$("[data-control=seek]");
const box = await seek.boundingBox();
await page.mouse.click(box.x + box.width / 2, box.y + box.height / 2);
await until(
  () =>
    !document.querySelector("video").seeking && document.querySelector("video").currentTime > 20,
  "seek",
);
note("sought", await video((one) => one.currentTime));
await page.keyboard.press("ArrowRight");
await until(() => !document.querySelector("video").seeking, "step");

await click(page, "[data-control=subtitles]");
note(
  "subtitles",
  await page.$$eval(".menu:not([hidden]) [role=menuitemradio]", (all) =>
    all.map((one) => one.textContent),
  ),
);
const choose = async (text) => {
  const rows = await page.$$(".menu:not([hidden]) [role=menuitemradio]");
  for (const row of rows) {
    if ((await row.evaluate((one) => one.textContent)).includes(text)) return row.click();
  }
  throw new Error(`no choice of ${text}`);
};
await choose("German");
const showing = () =>
  [...document.querySelector("video").textTracks].find(({ mode }) => mode === "showing");
await page.evaluate(`globalThis.showing = ${showing}`);
await until(() => globalThis.showing()?.activeCues?.length > 0, "a cue");
note("cue", await page.evaluate(() => globalThis.showing().activeCues[0].text));
await page.keyboard.press("c");
note("cue off", await page.evaluate(() => globalThis.showing() === undefined));
await page.keyboard.press("c");
note("cue on", await page.evaluate(() => globalThis.showing()?.language));

await click(page, "[data-control=audio]");
note(
  "sounds",
  await page.$$eval(".menu:not([hidden]) [role=menuitemradio]", (all) =>
    all.map((one) => one.textContent),
  ),
);
await choose("German");

await click(page, "[data-control=speed]");
await choose("1.5");
note("speed", await video((one) => one.playbackRate));

await page.keyboard.press("m");
note("muted", await video((one) => one.muted));
await page.keyboard.press("k");
note("paused", await video((one) => one.paused));
await page.keyboard.type("?");
note("keys", await page.$$eval("dialog[open] kbd", (all) => all.length));
await page.keyboard.press("Escape");

await click(page, "[aria-label='QR code of the HLS address']");
await page.waitForSelector("dialog[open] .qr path");
note("code", await page.$eval("dialog[open] code", (one) => one.textContent));
await page.keyboard.press("Escape");
await click(page, "[aria-label='Copy the RTSP address']");
await page.waitForSelector(".toast");
note("toast", await page.$eval(".toast", (one) => one.textContent));
note("addresses", await page.$$eval(".addresses code", (all) => all.map((one) => one.textContent)));

await page.goBack();
await until(() => document.querySelector("h1")?.textContent.includes("bunny"), "back");
note("field", await page.$eval("input[type=search]", (one) => one.value));
note("seen", await page.$$eval(".seen", (all) => all.length));

// The place is kept, and a link leads there.
await click(page, "a.card");
await until(() => document.querySelector("video")?.currentTime > 20, "the place where it was left");
report.faults = await faults(viewer);
await finish(browser, report);
