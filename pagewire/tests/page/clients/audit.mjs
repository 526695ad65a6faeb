// SPDX-License-Identifier: MIT OR Apache-2.0
// audit: each view in light, dark, on a phone and in 320 pixels: axe, overflow, policy;
// screenshots.

import {
  SERVER,
  SIZES,
  audited,
  clipped,
  faults,
  finish,
  launch,
  open,
  overflow,
  screenshot,
  settled,
} from "./driver.mjs";

const LOOKS = [
  ["desktop", "light"],
  ["desktop", "dark"],
  ["phone", "light"],
  ["narrow", "dark"],
];
const VIEWS = [
  ["library", ""],
  ["folder", "Films/"],
  ["files", "Docs/"],
  ["search", "?q=mp4"],
  ["nothing", "?q=zzzz"],
  ["film", "Films/Big.Buck.Bunny.2008.1080p.mp4/player.html"],
  ["title", "Shorts/The%20Gate/player.html"],
  ["table", "?plain=1"],
];

const browser = await launch();
const report = { pages: [] };
for (const [size, scheme] of LOOKS) {
  const watched = await open(browser, { size, scheme });
  const { page } = watched;
  for (const [name, path] of VIEWS) {
    await page.goto(`${SERVER}/${path}`);
    if (path.endsWith("player.html")) {
      await page.waitForFunction(() => document.querySelector("video")?.readyState >= 2, {
        timeout: 20_000,
      });
    }
    await settled(page);
    await screenshot(page, `${name}-${size}-${scheme}`);
    if (name === "film") await screenshot(page, `${name}-${size}-${scheme}-full`);
    report.pages.push({
      name: `${name} ${size} ${scheme}`,
      serious: await audited(page),
      overflow: await overflow(page),
      clipped: await clipped(page),
      faults: await faults(watched),
      heading: await page.$eval("h1", (one) => one.textContent),
      width: SIZES[size][0],
    });
  }
}
await finish(browser, report);
