// SPDX-License-Identifier: MIT OR Apache-2.0
// admin: an administrator logs in, sees why clients are slow, ends a session, reads the plots, logs
// out; in light, dark and on a phone.

import { mock } from "./admin_mock.mjs";

const { state, server, address } = await mock();
process.argv[2] = address;
const { audited, click, faults, finish, launch, open, overflow, screenshot, settled } =
  await import("./driver.mjs");

const browser = await launch();
const report = { pages: [] };
const look = async (watched, name) => {
  const { page } = watched;
  await settled(page);
  await screenshot(page, name);
  await screenshot(page, `${name}-full`);
  report.pages.push({
    name,
    serious: await audited(page),
    overflow: await overflow(page),
    faults: await faults(watched),
  });
};
const logIn = async (page, password) => {
  await page.waitForSelector("[name=user]");
  await page.$$eval("input", (all) =>
    all.forEach((one) => {
      one.value = "";
    }),
  );
  await page.type("[name=user]", "admin");
  await page.type("[name=password]", password);
  await click(page, ".login .button");
};

for (const [size, scheme] of [
  ["desktop", "light"],
  ["desktop", "dark"],
  ["narrow", "dark"],
]) {
  const watched = await open(browser, { size, scheme });
  const { page } = watched;
  await page.goto(address);
  await page.waitForSelector(".login");
  await look(watched, `admin-login-${size}-${scheme}`);
  if (report.pages.length === 1) {
    await logIn(page, "wrong");
    await page.waitForFunction(() => document.querySelector(".login-error").textContent !== "");
    report.refused = await page.$eval(".login-error", (one) => one.textContent);
  }
  await logIn(page, "right");
  await page.waitForSelector("tbody tr", { timeout: 10_000 });
  await page.waitForSelector(".plot");
  await look(watched, `admin-${size}-${scheme}`);
  if (size !== "desktop" || scheme !== "light") {
    await click(page, ".logout");
    await page.waitForSelector(".login");
    continue;
  }
  report.causes = await page.$$eval(".state", (all) =>
    all.map((one) => [one.querySelector("b").textContent, one.querySelector("small").textContent]),
  );
  report.assets = await page.$$eval("td[data-name=Asset] span", (all) =>
    all.map((one) => one.textContent),
  );
  report.plots = await page.$$eval(".plot", (all) =>
    all.map((one) => one.getAttribute("aria-label")),
  );
  await page.$eval(".plot", (one) => one.focus());
  await page.keyboard.press("Home");
  report.read = await page.$eval(".reading", (one) => one.textContent);
  // The second asks first; a click on Cancel does nothing.
  await click(page, "tr[data-id='2'] .danger");
  await click(page, "dialog[open] .button:not(.danger)");
  report.cancelled = [...state.ended];
  await click(page, "tr[data-id='2'] .danger");
  await page.waitForSelector("dialog[open]");
  await screenshot(page, "admin-end");
  await click(page, "dialog[open] .danger");
  await page.waitForFunction(() => !document.querySelector("tr[data-id='2']"));
  report.ended = state.ended;
  await click(page, ".logout");
  await page.waitForSelector(".login");
}
report.headers = state.headers;
server.closeAllConnections();
server.close();
await finish(browser, report);
