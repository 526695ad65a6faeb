// SPDX-License-Identifier: MIT OR Apache-2.0
//! build script of the server: puts the files of the page into the program.
//!
//! The page's own files lie in `web/`. What `make web` bundles of packages of npm lies in
//! `web/dist/`, which is not in the repository: where it is missing, the page leaves HLS to the
//! browser, and makes no QR codes. Each file is compressed here, once, as far as gzip can.
//!
//! Writes `page_files.rs`, which `serve/src/http/page` includes. All files have one version, a hash
//! of their bytes: they name each other by relative addresses, and caches keep them for ever.
//!
//! Does not bundle or minify.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use flate2::Compression;
use flate2::write::GzEncoder;

/// The page's own files.
const OWN: &[&str] = &[
    "addresses.js",
    "admin.css",
    "admin.js",
    "admin_api.js",
    "api.js",
    "app.js",
    "base.css",
    "cards.js",
    "controls.js",
    "dom.js",
    "film.css",
    "film.js",
    "format.js",
    "hls_source.js",
    "icons.js",
    "library.css",
    "library.js",
    "menu.js",
    "mpd_source.js",
    "native_source.js",
    "player.css",
    "player.js",
    "plots.js",
    "progress.js",
    "seek_bar.js",
    "share.js",
    "table.css",
    "theme.js",
    "theme_switch.js",
    "thumbnails.js",
];
/// Files that `make web` bundles.
const BUNDLED: &[&str] = &["hls.js", "qr.js", "LICENSES.txt"];

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let target = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let web = root.parent().expect("crates lie in the workspace").join("web");
    let dist = web.join("dist");
    let mut files: Vec<PathBuf> = OWN.iter().map(|name| web.join(name)).collect();
    let bundled = BUNDLED.iter().map(|name| dist.join(name)).filter(|path| path.exists());
    files.extend(bundled);
    // A folder that is not there yet makes cargo run this each time; its parent tells of it.
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", if dist.exists() { &dist } else { &web }.display());
    let mut rows = String::new();
    let mut hash = DefaultHasher::new();
    for path in &files {
        println!("cargo::rerun-if-changed={}", path.display());
        let name = path.file_name().and_then(|name| name.to_str()).expect("names are ours");
        let bytes = fs::read(path)
            .map_err(|error| io::Error::other(format!("reading {}: {error}", path.display())))?;
        (name, &bytes).hash(&mut hash);
        let packed = target.join(format!("{name}.gz"));
        fs::write(&packed, gzip(&bytes)?)?;
        let (plain, packed) = (literal(path), literal(&packed));
        let row = format!(
            "    StaticFile {{ name: {name:?}, plain: include_bytes!({plain}), gzip: \
             include_bytes!({packed}) }},\n"
        );
        rows.push_str(&row);
    }
    let mut text = format!("static FILES: &[StaticFile] = &[\n{rows}];\n");
    writeln!(text, "static VERSION: &str = \"{:016x}\";", hash.finish()).expect("a String");
    fs::write(target.join("page_files.rs"), text)
}

fn gzip(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}

fn literal(path: &Path) -> String {
    format!("{:?}", path.to_str().expect("paths of a build are UTF-8"))
}
