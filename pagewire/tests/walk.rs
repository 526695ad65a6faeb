// SPDX-License-Identifier: MIT OR Apache-2.0
//! The call chain from RTSP's PLAY to the socket: ARCHITECTURE.md lists it, and the list is short
//! and names functions that exist.
//!
//! Does not follow the calls: a hop missing from the list is found only by its readers.

#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

/// A file and the function in it.
type Hop = (String, String);

/// Returns the hops of a document's section, in order.
fn hops(document: &str) -> Vec<Hop> {
    let section = document.split("\n## ").find(|section| section.starts_with(TITLE));
    let section = section.expect("ARCHITECTURE.md has the section");
    let numbered = section.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    let hop = |(index, line): (usize, &str)| {
        assert!(line.starts_with(&format!("{}. ", index + 1)), "out of order: {line}");
        let mut quoted = line.split('`').skip(1).step_by(2).map(str::to_owned);
        let (file, function) = (quoted.next(), quoted.next());
        let does = line.split_once("`: ").map_or("", |(_, does)| does);
        assert!(!does.is_empty(), "no word on what it does: {line}");
        file.zip(function).unwrap_or_else(|| panic!("neither file nor function: {line}"))
    };
    numbered.enumerate().map(hop).collect()
}

/// True when a file's text, up to its tests, defines a function of this name.
fn defines(text: &str, function: &str) -> bool {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    code.lines().any(|line| {
        let after = line.trim_start().split_once("fn ").map_or("", |(_, after)| after);
        let rest = after.strip_prefix(function);
        !line.trim_start().starts_with("//")
            && rest.is_some_and(|rest| rest.starts_with(['(', '<']))
    })
}

#[test]
fn the_walk_from_play_to_the_socket_has_twelve_hops_at_most() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository");
    let hops = hops(&fs::read_to_string(root.join("ARCHITECTURE.md")).expect("the document"));
    assert!((2..=HOPS_MAX).contains(&hops.len()), "{} hops: {hops:#?}", hops.len());
    assert!(hops[0].0.starts_with("serve/") && hops[hops.len() - 1].0.starts_with("paths/src/sys"));
    for (file, function) in &hops {
        let text = fs::read_to_string(root.join(file));
        let text = text.unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(defines(&text, function), "{file} has no function {function}");
    }
}

#[test]
fn a_function_is_found_by_its_whole_name_outside_of_tests() {
    let text = "pub(crate) fn send(\n    fn sender<T>() {}\n// fn gone()\n\
                #[cfg(test)]\nmod tests {\n    fn check() {}\n";
    assert!(defines(text, "send") && defines(text, "sender"));
    assert!(["sen", "gone", "check"].iter().all(|function| !defines(text, function)));
}

const TITLE: &str = "From PLAY to the socket";
const HOPS_MAX: usize = 12;
