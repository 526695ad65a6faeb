// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sections of README.md.

use crate::{Choice, run};

#[test]
fn commands_of_install_and_serve_run_as_they_stand() {
    run("readme::commands_of_install_and_serve_run_as_they_stand", Choice::Usual);
}

#[test]
fn commands_of_serving_run_as_they_stand() {
    run("readme::commands_of_serving_run_as_they_stand", Choice::Usual);
}

#[test]
fn commands_of_receiving_run_as_they_stand() {
    run("readme::commands_of_receiving_run_as_they_stand", Choice::Usual);
}

#[test]
fn commands_of_sealing_run_as_they_stand() {
    run("readme::commands_of_sealing_run_as_they_stand", Choice::Usual);
}

#[test]
fn commands_of_verifying_run_as_they_stand() {
    run("readme::commands_of_verifying_run_as_they_stand", Choice::Usual);
}
