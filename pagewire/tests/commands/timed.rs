// SPDX-License-Identifier: MIT OR Apache-2.0
//! Documents with commands of `pagewire load`, which last as long as they measure.

use crate::{Choice, run};

#[test]
fn commands_of_verifying_run_as_they_stand() {
    run("docs::commands_of_verifying_run_as_they_stand", Choice::Measuring);
}

#[test]
fn commands_of_load_run_as_they_stand() {
    run("docs::commands_of_load_run_as_they_stand", Choice::Measuring);
}
