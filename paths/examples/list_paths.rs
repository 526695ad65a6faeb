// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists the paths of this host with their claims, and the reason for each one that is missing.
//!
//! `cargo run --example list_paths`

use paths::{Host, PATHS, RECEIVE_PATHS, Unavailable};

fn main() {
    let host = Host::here();
    println!("kernel {}\n", host.kernel_release);
    println!("from file to socket:");
    for spec in PATHS {
        let claims = format!("{} copies, {}", spec.copies_per_byte, spec.system_calls);
        line(&spec.to_string(), &claims, (spec.probe)(&host));
    }
    println!("\nfrom socket to memory:");
    for spec in RECEIVE_PATHS {
        let claims = format!("{} copies, {}", spec.copies_per_byte, spec.system_calls);
        line(&spec.to_string(), &claims, (spec.probe)(&host));
    }
}

fn line(name: &str, claims: &str, probed: Result<(), Unavailable>) {
    match probed {
        Ok(()) => println!("  {name:24} {claims}"),
        Err(reason) => println!("  {name:24} not here: {reason}"),
    }
}
