// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page in Chromium, with real clicks: a new user's way from search to play ([`viewers`]),
//! every view in light, dark and on a phone checked by axe, and hostile names ([`looks`]), and the
//! administrators' page ([`admin`]).
//!
//! Scripts beside this file drive Chromium by puppeteer-core; scripts/setup.sh installs it with axe
//! in out/test-tools. Where a program is missing, its tests print `skip: TEST: REASON` and pass.
//! Screenshots go to out/screenshots.
//!
//! Does not judge the appearance: people inspect the screenshots.

mod admin;
mod clips;
mod looks;
mod scripts;
mod viewers;
