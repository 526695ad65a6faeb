// SPDX-License-Identifier: MIT OR Apache-2.0
// admin_live: an administrator of a real server logs in after a wrong password and after a user who
// is none, waits until a client is said to lose packets, and ends its session; with clicks alone.

import { SERVER, click, faults, finish, launch, open, screenshot, settled } from "./driver.mjs";

const browser = await launch();
const watched = await open(browser);
const { page } = watched;
const report = {};

const logIn = async (user, password) => {
  await page.waitForSelector(".login [name=user]");
  for (const [name, text] of Object.entries({ user, password })) {
    await click(page, `.login [name=${name}]`);
    await page.keyboard.down("Control");
    await page.keyboard.press("a");
    await page.keyboard.up("Control");
    await page.keyboard.type(text);
  }
  await click(page, ".login .button");
};
const refusal = async (before) => {
  await page.waitForFunction(
    (old) => ![old, ""].includes(document.querySelector(".login-error")?.textContent ?? ""),
    { timeout: 15_000 },
    before,
  );
  return page.$eval(".login-error", (one) => one.textContent);
};
const states = () =>
  page.$$eval("tbody tr[data-id]", (rows) =>
    rows.map((row) => {
      const state = row.querySelector(".state");
      const [cause, detail] = [state?.querySelector("b"), state?.querySelector("small")];
      return { id: row.dataset.id, cause: cause?.textContent, detail: detail?.textContent };
    }),
  );
const LOSS = "Network loses packets";

await page.goto(SERVER);
await logIn("ada", "wrong");
report.wrong = await refusal("");
await logIn("ben", "right");
report.viewer = await refusal(report.wrong);
await logIn("ada", "right");
await page.waitForFunction(
  (loss) => [...document.querySelectorAll(".state b")].some((one) => one.textContent === loss),
  { timeout: 90_000, polling: 200 },
  LOSS,
);
await settled(page);
await screenshot(page, "admin-live");
await screenshot(page, "admin-live-full");
const before = await states();
const lossy = before.find(({ cause }) => cause === LOSS);
Object.assign(report, { cause: lossy.cause, detail: lossy.detail });
report.other = before.find(({ id }) => id !== lossy.id)?.cause;
await click(page, `tr[data-id="${lossy.id}"] .danger`);
await click(page, "dialog[open] .danger");
await page.waitForFunction((id) => !document.querySelector(`tr[data-id="${id}"]`), {}, lossy.id);
// It does not come back with the next answer of the server.
await new Promise((done) => setTimeout(done, 5000));
report.rows = [before.length, (await states()).length];
report.faults = await faults(watched);
await finish(browser, report);
