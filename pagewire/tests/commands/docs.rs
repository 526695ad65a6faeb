// SPDX-License-Identifier: MIT OR Apache-2.0
//! README.md and the documents of docs/.

use crate::{Choice, run};

#[test]
fn commands_of_access_run_as_they_stand() {
    run("docs::commands_of_access_run_as_they_stand", Choice::Usual);
}

#[test]
fn commands_of_channels_run_as_they_stand() {
    run("docs::commands_of_channels_run_as_they_stand", Choice::Usual);
}

#[test]
fn commands_of_configuration_run_as_they_stand() {
    run("docs::commands_of_configuration_run_as_they_stand", Choice::Usual);
}

#[test]
fn commands_of_load_run_as_they_stand() {
    run("docs::commands_of_load_run_as_they_stand", Choice::Usual);
}

#[test]
fn commands_of_measurements_run_as_they_stand() {
    run("docs::commands_of_measurements_run_as_they_stand", Choice::Usual);
}

#[test]
fn commands_of_measuring_run_as_they_stand() {
    run("docs::commands_of_measuring_run_as_they_stand", Choice::Usual);
}

#[test]
fn commands_of_operating_run_as_they_stand() {
    run("docs::commands_of_operating_run_as_they_stand", Choice::Usual);
}

#[test]
fn commands_of_peers_run_as_they_stand() {
    run("docs::commands_of_peers_run_as_they_stand", Choice::Usual);
}

#[test]
fn commands_of_the_readme_run_as_they_stand() {
    run("docs::commands_of_the_readme_run_as_they_stand", Choice::Usual);
}

#[test]
fn commands_of_receiving_run_as_they_stand() {
    run("docs::commands_of_receiving_run_as_they_stand", Choice::Usual);
}

#[test]
fn commands_of_sealing_run_as_they_stand() {
    run("docs::commands_of_sealing_run_as_they_stand", Choice::Usual);
}

#[test]
fn commands_of_serving_run_as_they_stand() {
    run("docs::commands_of_serving_run_as_they_stand", Choice::Usual);
}

#[test]
fn commands_of_verifying_run_as_they_stand() {
    run("docs::commands_of_verifying_run_as_they_stand", Choice::Usual);
}
