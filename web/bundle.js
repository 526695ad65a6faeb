// SPDX-License-Identifier: MIT OR Apache-2.0
// bundle: what the page uses of npm, as modules in dist/, with the licences of all of it.
//
// Run by `make web`. The build of the server takes dist/ if it is there (serve/build.rs).

import { build } from "esbuild";
import { mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";

// Module in dist/, package, and what the page imports of it.
const MODULES = [
  ["hls.js", "hls.js", 'export { default } from "hls.js";'],
  ["qr.js", "uqr", 'export { encode } from "uqr";'],
];
const [made, target] = ["dist.new", "dist"];

await rm(made, { recursive: true, force: true });
await mkdir(made);
const licences = [];
for (const [module, name, contents] of MODULES) {
  const packageFile = JSON.parse(await readFile(`node_modules/${name}/package.json`, "utf8"));
  const { version, license, homepage } = packageFile;
  await build({
    stdin: { contents, resolveDir: "." },
    outfile: `${made}/${module}`,
    bundle: true,
    minify: true,
    format: "esm",
    target: "es2020",
    legalComments: "none",
    banner: { js: `/* ${name} ${version}, ${license}; LICENSES.txt */` },
    logLevel: "warning",
  });
  const text = await readFile(`node_modules/${name}/LICENSE`, "utf8");
  licences.push(`${name} ${version} (${license}) ${homepage ?? ""}\n\n${text.trim()}\n`);
}
await writeFile(`${made}/LICENSES.txt`, licences.join(`\n${"-".repeat(72)}\n\n`));
// All of it or nothing.
await rm(target, { recursive: true, force: true });
await rename(made, target);
