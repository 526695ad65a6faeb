// SPDX-License-Identifier: MIT OR Apache-2.0
//! `steps` on processors other than x86-64: not available.

use super::Tracer;
use measure::Error;

pub(crate) static TRACER: Tracer = Tracer {
    name: "steps",
    summary: "single steps through a function by ptrace; x86-64 only",
    sources: &["ptrace(2)"],
    probe: |_| Err("this processor is no x86-64".to_owned()),
    run: |_| Err(Error::Unavailable { need: "an x86-64 processor", found: "another".to_owned() }),
};
