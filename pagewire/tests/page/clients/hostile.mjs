// SPDX-License-Identifier: MIT OR Apache-2.0
// hostile: names of files that would be markup, script, addresses or endless lines.

import { SERVER, click, faults, finish, launch, open, overflow, settled } from "./driver.mjs";

const browser = await launch();
const watched = await open(browser, { size: "narrow" });
const { page } = watched;
const report = { pages: [] };
const look = async (name) => {
  await settled(page);
  report.pages.push({
    name,
    // What names would bring in.
    planted: await page.$$eval(
      "main b, main i, main script, main iframe, main [onerror], main img[src='x']",
      (all) => all.map((one) => one.outerHTML),
    ),
    overflow: await overflow(page),
    texts: await page.$$eval(".card-title, .file-name, h1, .crumbs, dd, code", (all) =>
      all.map((one) => one.textContent),
    ),
    faults: await faults(watched),
  });
};

await page.goto(SERVER);
await look("library");
for (const folder of await page.$$eval("a.card.folder", (all) => all.map((one) => one.href))) {
  await page.goto(folder);
  await look(`folder ${folder}`);
}
await page.goto(SERVER);
await settled(page);
const films = await page.$$eval("a.card:not(.folder)", (all) => all.map((one) => one.href));
for (const film of films) {
  await page.goto(film);
  await page.waitForSelector(".film h1");
  await click(page, "summary");
  await look(`film ${film}`);
}
for (const words of [
  "<img src=x onerror=alert(1)>",
  "\"'><script>alert(1)</script>",
  "%00%ff",
  "\u202egnp.exe",
]) {
  await page.goto(`${SERVER}/?q=${encodeURIComponent(words)}`);
  await look(`search ${words}`);
}
report.films = films.length;
await finish(browser, report);
