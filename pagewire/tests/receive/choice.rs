// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--path auto` selects the receive path that the calibration of this machine ranks as cheapest.
//!
//! Does not assert which path that is.

use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::assert_file;
use crate::harness::clip::Clip;
use crate::harness::ports::free_port;
use crate::harness::recorder::{CACHE_HOME, Recorder, Sender, url};
use crate::harness::{PROGRAM, Place, watchdog};

fn program(place: &Place) -> Command {
    let mut command = Command::new(PROGRAM);
    command.env(CACHE_HOME, place.top());
    command
}

/// Records a clip with the calibration kept at the place, and returns the name of the selected
/// path.
fn path_chosen(place: &Place, options: &[&str]) -> String {
    let clip = Clip::of_seconds(3, 2).bytes();
    let (port, name) = (free_port(), format!("{}.ts", options.len()));
    let pattern = place.folder().join(&name);
    let options = [&["-o", pattern.to_str().expect("UTF-8")], options].concat();
    let recorder = Recorder::by(program(place), place, &[url(port)], &options);
    Sender::rtp(port, 7, 1).send_all(&clip);
    let recorded = recorder.stop().well();
    assert_file(&pattern, &clip);
    fs::remove_file(pattern).expect("it is there");
    recorded.summary["path"].as_str().expect("a name").to_owned()
}

#[test]
fn auto_takes_the_cheapest_way_that_was_measured() {
    let place = Place::new();
    let mut measure = program(&place);
    let outcome = watchdog::run(measure.args(["paths", "--receive", "--json"]), LIMIT);
    let outcome = outcome.expect("the program is built");
    if !outcome.status.success() {
        eprintln!("skip: auto_takes_the_cheapest_way_that_was_measured: {}", outcome.stderr);
        return;
    }
    let measured: Value = serde_json::from_slice(&outcome.stdout).expect("JSON");
    let ranks = measured["ranks"].as_array().expect("a list");
    for way in ["recvfrom", "recvmmsg", "recvmmsg_gro"] {
        let cpu_costs: Vec<_> = ranks.iter().filter(|rank| rank["member"] == way).collect();
        assert_eq!(cpu_costs.len(), 2, "{way}: {measured:#}");
        assert!(
            cpu_costs.iter().all(|rank| rank["cpu_s_per_gb"].as_f64() > Some(0.0)),
            "{measured:#}"
        );
    }
    let kept = place.top().join("pagewire/calibration");
    let kept = fs::read_dir(kept).expect("it is kept").next().expect("one").expect("an entry");
    let mut forged = measured.clone();
    let keep_as_cheapest = |forged: &mut Value, cheapest: &str| {
        for rank in forged["ranks"].as_array_mut().expect("a list") {
            let cpu_s_per_gb = if rank["member"] == cheapest { 0.5 } else { 1.0 };
            rank["cpu_s_per_gb"] = cpu_s_per_gb.into();
        }
        fs::write(kept.path(), forged.to_string()).expect("room");
    };
    for cheapest in ["recvfrom", "recvmmsg", "recvmmsg_gro"] {
        keep_as_cheapest(&mut forged, cheapest);
        assert_eq!(path_chosen(&place, &[]), cheapest);
    }
    // Paths that receive frames from the device are used only by name, whatever they cost.
    keep_as_cheapest(&mut forged, "xdp");
    let chosen = path_chosen(&place, &[]);
    assert!(!["xdp", "packet_ring"].contains(&&*chosen), "{chosen}");
    keep_as_cheapest(&mut forged, "recvfrom");
    assert_eq!(path_chosen(&place, &["--path", "recvmmsg"]), "recvmmsg");
}

/// Guards against hanging; a measurement takes some seconds.
const LIMIT: Duration = Duration::from_secs(120);
