// SPDX-License-Identifier: MIT OR Apache-2.0
// alone: films of which a browser plays the sound alone, and what the page says of them.

import { SERVER, faults, finish, launch, open } from "./driver.mjs";

const browser = await launch();
const watched = await open(browser);
const { page } = watched;
const report = { said: {} };
for (const name of ["parts.mp4", "whole.mp4"]) {
  await page.goto(`${SERVER}/${name}/player.html`);
  await page.waitForFunction(() => document.querySelector("video")?.readyState >= 2, {
    timeout: 20_000,
  });
  report.said[name] = await page.$eval(".said", (one) => one.textContent);
}
report.faults = await faults(watched);
await finish(browser, report);
