#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Bundles what the page uses of npm (hls.js, QR codes) into web/dist, from which the build of the
# server takes it. Run by `make web`.
#
# Versions are those of web/package-lock.json, checked by their hashes; no script of a package is
# run. Where npm is missing or the packages cannot be fetched, this says so and exits with 0: the
# server is built without them, and the page leaves HLS to the browser.
set -euo pipefail
cd "$(dirname "$0")/../web"

NPM_SECONDS_MAX=300
WITHOUT="the page leaves HLS to the browser and shows no QR codes"

if ! command -v npm >/dev/null; then
    echo "web: npm: not installed; building without hls.js: $WITHOUT"
    exit 0
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! timeout "$NPM_SECONDS_MAX" npm ci --ignore-scripts --no-audit --no-fund >"$log" 2>&1; then
    echo "web: npm ci: $(tail -n 1 "$log"); building without a new hls.js: $WITHOUT"
    exit 0
fi
node bundle.js
echo "web: $(cat dist/*.js | gzip -9 | wc -c) bytes of hls.js and uqr, compressed, in web/dist"
