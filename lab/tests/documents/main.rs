// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that the documents' tables of warnings and measurements match the code and the committed
//! measurement files.
//!
//! Between markers, docs/measuring.md has the warnings; docs/measurements.md has tables of
//! docs/measurements/*.json, docs/kernel.md those of kernel.json, docs/peers.md those of
//! peers.json, http.json and hls.json, and README.md the picture of paths.json and the headline of
//! peers.json. `UPDATE=1 cargo test -p lab --test documents` rewrites them. A missing
//! measurement file has no table, and the test prints that. No test measures: a figure changes
//! when a new file is committed.
#![forbid(unsafe_code)]

mod claims;
mod document;
mod grid;
mod hls;
mod http;
mod kernel;
mod marks;
mod measurements;
mod peers;
mod picture;
mod published;

use std::fmt::Write;

use measure::Warning;

#[test]
fn the_list_of_warnings_is_current() {
    let mut list = String::new();
    for warning in Warning::examples() {
        let _ = writeln!(list, "\n    {warning}\n\nCure: {}.", warning.cure());
    }
    list.push('\n');
    document::check("docs/measuring.md", "warnings", &list);
}

#[test]
fn the_tables_of_measurements_are_current() {
    document::check("docs/measurements.md", "measurements", &measurements::all());
}

#[test]
fn the_tables_of_the_kernel_are_current() {
    let tables = document::measured("kernel").map(|results| kernel::tables(&results));
    document::check("docs/kernel.md", "kernel", &tables.unwrap_or_default());
}

#[test]
fn the_picture_of_the_cost_is_current() {
    let picture = document::measured("paths").map(|results| picture::of(&results));
    document::check("README.md", "cost", &picture.unwrap_or_default());
}

#[test]
fn the_tables_of_peers_are_current() {
    let tables = document::measured("peers").map(|results| peers::tables(&results));
    document::check("docs/peers.md", "peers", &tables.unwrap_or_default());
}

#[test]
fn the_tables_of_http_are_current() {
    let tables = document::measured("http").map(|results| http::tables(&results));
    document::check("docs/peers.md", "http", &tables.unwrap_or_default());
}

#[test]
fn the_tables_of_hls_are_current() {
    let tables = document::measured("hls").map(|results| hls::tables(&results));
    document::check("docs/peers.md", "hls", &tables.unwrap_or_default());
}

#[test]
fn the_headline_is_current() {
    let headline = document::measured("peers").map(|results| peers::headline(&results));
    document::check("README.md", "headline", &headline.unwrap_or_default());
}
