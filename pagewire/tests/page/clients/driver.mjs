// SPDX-License-Identifier: MIT OR Apache-2.0
// driver: Chromium by puppeteer-core, with what every page is watched for: violations of its
// policy, errors of its scripts, dialogs, requests to other hosts.
//
// Run as `node SCRIPT.mjs SERVER TOOLS SCREENSHOTS`; a script prints its report as JSON.

import { mkdir, readFile } from "node:fs/promises";
import { pathToFileURL } from "node:url";

const [, , server, tools, shots] = process.argv;
export const SERVER = server;

const module = `${tools}/node_modules/puppeteer-core/lib/esm/puppeteer/puppeteer-core.js`;
const { default: puppeteer } = await import(pathToFileURL(module).href);
const axe = await readFile(`${tools}/node_modules/axe-core/axe.min.js`, "utf8");

export const SIZES = { desktop: [1280, 800], phone: [390, 844], narrow: [320, 640] };

export async function launch() {
  const args = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars"];
  return puppeteer.launch({ executablePath: "/usr/bin/chromium", headless: true, args });
}

// Opens a page; `report` gets what is wrong with it, whenever it happens.
export async function open(browser, { size = "desktop", scheme = "light" } = {}) {
  const context = await browser.createBrowserContext();
  const page = await context.newPage();
  const report = { violations: [], errors: [], dialogs: [], strangers: [] };
  const [width, height] = SIZES[size];
  const isPhone = size !== "desktop";
  await page.setViewport({ width, height, isMobile: isPhone, hasTouch: isPhone });
  await page.emulateMediaFeatures([
    { name: "prefers-color-scheme", value: scheme },
    // Screenshots show the end of what moves.
    { name: "prefers-reduced-motion", value: "reduce" },
  ]);
  await page.evaluateOnNewDocument(() => {
    globalThis.violations = [];
    document.addEventListener("securitypolicyviolation", (event) => {
      globalThis.violations.push(`${event.violatedDirective}: ${event.blockedURI}`);
    });
  });
  page.on("pageerror", (error) => report.errors.push(error.message));
  page.on("console", (message) => {
    if (/Content Security Policy/.test(message.text())) report.violations.push(message.text());
  });
  page.on("dialog", (dialog) => {
    report.dialogs.push(dialog.message());
    dialog.dismiss();
  });
  page.on("request", (request) => {
    const url = new URL(request.url());
    const isOwn =
      url.origin === new URL(SERVER).origin || ["data:", "blob:"].includes(url.protocol);
    if (!isOwn) report.strangers.push(request.url());
  });
  return { page, report };
}

// What is wrong with a page, of all that is watched.
export async function faults({ page, report }) {
  const seen = await page.evaluate(() => globalThis.violations);
  return [...report.violations, ...seen, ...report.errors, ...report.dialogs, ...report.strangers];
}

// Waits until nothing is loaded and nothing moves.
export async function settled(page) {
  await page.waitForFunction(() => !document.querySelector("[aria-busy=true], .skeleton"), {
    timeout: 20_000,
  });
  await page.waitForNetworkIdle({ idleTime: 300, timeout: 10_000 }).catch(() => {});
}

// What axe finds that is serious or critical. It is run beside the page's own scripts: its policy
// holds for those.
export async function audited(page) {
  const session = await page.createCDPSession();
  const found = async () => {
    const { violations } = await globalThis.axe.run(document, { resultTypes: ["violations"] });
    const serious = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
    const places = (nodes) =>
      nodes.slice(0, 3).map(({ target, failureSummary }) => `${target} ${failureSummary}`);
    return JSON.stringify(serious.map(({ id, nodes }) => `${id}: ${places(nodes).join(" | ")}`));
  };
  await session.send("Runtime.evaluate", { expression: axe });
  const { result, exceptionDetails } = await session.send("Runtime.evaluate", {
    expression: `(${found})()`,
    awaitPromise: true,
  });
  await session.detach();
  if (exceptionDetails)
    throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  return JSON.parse(result.value);
}

// Pixels by which a page is wider than its window.
export function overflow(page) {
  return page.evaluate(
    () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
  );
}

// Buttons that somebody should see and cannot: they lie outside of what holds them.
export function clipped(page) {
  return page.$$eval(".player .control", (all) => {
    const shown = all.filter((one) => one.checkVisibility());
    const box = document.querySelector(".player")?.getBoundingClientRect();
    const isOutside = (one) => {
      const { left, right, top, bottom } = one.getBoundingClientRect();
      return left < box.left || right > box.right || top < box.top || bottom > box.bottom;
    };
    return shown.filter(isOutside).map((one) => one.dataset.control);
  });
}

export async function screenshot(page, name) {
  if (!shots) return;
  await mkdir(shots, { recursive: true });
  await page.screenshot({ path: `${shots}/${name}.png`, fullPage: name.endsWith("-full") });
}

// Clicks in the middle of what a selector names, as a finger or mouse does.
export async function click(page, selector) {
  const element = await page.waitForSelector(selector, { visible: true, timeout: 15_000 });
  await element.click();
}

export async function finish(browser, report) {
  await browser.close();
  process.stdout.write(JSON.stringify(report));
}
