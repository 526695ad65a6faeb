// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that are missing, broken or changed under a channel: the filler plays, the log has the
//! reason, the stream has no seam, and descriptors do not leak.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::net::SocketAddr;

use crate::capture::{Capture, Datagram, stream};
use crate::clips::{Streams, clip};
use crate::harness::ports::free_port;
use crate::harness::{Place, Server, await_true};
use crate::{await_state, has_left_out, serve, state};

/// Order of the channels in the configuration.
const BROKEN: usize = 0;
const CHANGING: usize = 1;
const EMPTY: usize = 2;
const OVERFULL: usize = 3;

#[test]
fn a_channel_goes_on_whatever_its_files_do() {
    let Some(recorded) = play("a_channel_goes_on_whatever_its_files_do", 13) else { return };
    for (name, datagrams) in recorded {
        let walk = stream(&datagrams, 0).walk();
        walk.assert_goes_on(name);
        // Noise from a file must not be found in the stream, except as bytes of a PES packet.
        assert!(walk.tables.get(&0) > Some(&20), "{name}: its tables go on: {:?}", walk.tables);
    }
}

/// Plays files of so many frames while they are missing, broken or changed; returns the names of
/// channels and their recordings. Returns `None`, with the reason printed, where there are no files
/// or the machine was too busy.
pub(crate) fn play(test: &str, frames: u32) -> Option<Vec<(&'static str, Vec<Datagram>)>> {
    let clips = [20, 21, 22, 23].map(|number| clip(test, number, frames, Streams::Both));
    let [filler, first, second, third] = clips;
    let (filler, first, second, third) = (filler?, first?, second?, third?);
    let sound = clip(test, 24, frames, Streams::Sound)?;
    let place = Place::new();
    let changing = [("x0.ts", &first), ("x1.ts", &second), ("x2.ts", &third)];
    place.put("filler.ts", &filler);
    place.put("good.ts", &first);
    place.put("sound.ts", &sound);
    place.put("cut.ts", &second[..second.len() / 2 / 188 * 188 + 57]);
    place.put("random.ts", &noise());
    place.put("empty.ts", &[]);
    changing.iter().for_each(|(name, bytes)| drop(place.put(name, bytes)));

    let receivers = [(); 3].map(|()| Capture::unicast());
    let [a, b, c] = receivers.each_ref().map(|receiver| receiver.local);
    // No process listens there yet.
    let absent = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let narrow = Capture::unicast();
    let server = serve(&place, &config([a, b, c], absent, narrow.local));
    let broken: BTreeSet<String> =
        ["missing.ts", "random.ts", "empty.ts"].map(str::to_owned).into_iter().collect();
    let all_named = |state: &serde_json::Value| {
        let faults = state["faults"].to_string();
        broken.iter().all(|name| faults.contains(name.as_str()))
    };
    await_state(&server, BROKEN, "broken entries are named", all_named);
    for name in &broken {
        server.await_log(&format!("channel.broken: {name}: "));
    }
    await_state(&server, CHANGING, "a file plays", |state| state["on_air"].is_string());
    assert_overfull(&server);
    let descriptors = descriptors(&server);
    let begun = programmes(&server);

    change_files(&server, &place, &changing, &receivers[CHANGING]);
    // The file as an operator's editor leaves it in the middle of a change.
    fs::write(place.top().join("channels.toml"), "[channel.").expect("it is ours");
    let late = Capture::at(absent);
    late.await_any("a receiver that comes late", |_| true);
    place.put("missing.ts", &third);
    server.await_log("channel.broken: no longer: missing.ts");
    await_state(&server, EMPTY, "its file came", |state| state["on_air"] == "missing.ts");
    let seen = on_air(&server, BROKEN, &["filler.ts", "good.ts", "sound.ts", "cut.ts"]);
    assert!(seen.is_disjoint(&["random.ts", "empty.ts"].map(str::to_owned).into()), "{seen:?}");
    assert!(programmes(&server) >= begun + 10, "ten changes of file at least");
    // Each of two channels has one more file open than before.
    await_descriptors(&server, descriptors + 2);
    let log = server.stop();
    late.stop();
    narrow.stop();
    if has_left_out(test, &log) {
        return None;
    }
    let names = ["broken", "changing", "empty"].into_iter();
    names.zip(receivers).map(|(name, of)| Some((name, of.stop_whole(test)?))).collect()
}

fn config(receivers: [SocketAddr; 3], absent: SocketAddr, narrow: SocketAddr) -> String {
    let [a, b, c] = receivers;
    format!(
        "[channel.broken]\nrtsp = false\nfiller = \"filler.ts\"\n\
         send = [\"udp://{a}\", \"udp://{absent}\"]\n\
         playlist = [\"good.ts\", \"missing.ts\", \"random.ts\", \"empty.ts\", \"cut.ts\", \
         \"sound.ts\"]\n\
         [channel.changing]\nrtsp = false\nfiller = \"filler.ts\"\nsend = [\"udp://{b}\"]\n\
         playlist = [\"x0.ts\", \"x1.ts\", \"x2.ts\"]\nconstant_rate_kbps = 2000\n\
         [channel.empty]\nrtsp = false\nsend = [\"udp://{c}\"]\nplaylist = [\"missing.ts\"]\n\
         [channel.overfull]\nrtsp = false\nsend = [\"udp://{narrow}\"]\n\
         playlist = [\"good.ts\"]\nconstant_rate_kbps = 300\n"
    )
}

/// Its constant rate has no room for its file: the log and the index name the file and the rate.
fn assert_overfull(server: &Server) {
    await_state(server, OVERFULL, "what is left out is counted", |state| {
        let is_reported = |fault: &serde_json::Value| {
            let fault = fault.as_str().expect("words");
            fault.starts_with("good.ts: ") && fault.contains("constant_rate_kbps = 300")
        };
        let faults = state["faults"].as_array().expect("a list");
        state["overfull_units"].as_u64() > Some(0) && faults.iter().any(is_reported)
    });
    server.await_log("channel.overfull: good.ts: pictures or sounds are left out");
}

/// Deletes a file, overwrites one and appends to one, each while it is on the air, then restores
/// them.
fn change_files(server: &Server, place: &Place, files: &[(&str, &Vec<u8>); 3], receiver: &Capture) {
    let on_air = |name: &str| {
        await_state(server, CHANGING, name, |state| state["on_air"] == name);
        // Packets are made ahead of time; now some are sent.
        receiver.await_more(name, 70);
        place.folder().join(name)
    };
    let [(deleted, _), (over, _), (grown, _)] = *files;
    fs::remove_file(on_air(deleted)).expect("it is there");
    server.await_log(&format!("channel.changing: {deleted}: no such file"));

    // In place: the server's open descriptor sees the change.
    fs::write(on_air(over), noise()).expect("it is ours");
    server.await_log(&format!("channel.changing: {over}: "));
    await_state(server, CHANGING, "the filler plays in its place", |state| {
        state["on_air"] == "filler.ts"
    });

    let mut file = File::options().append(true).open(on_air(grown)).expect("it is ours");
    file.write_all(&noise()[..50_000]).expect("room for more");
    drop(file);
    receiver.await_more("the channel goes on", 300);
    for (name, bytes) in files {
        place.put(name, bytes);
    }
    await_state(server, CHANGING, "nothing is wrong any more", |state| {
        state["faults"].as_array().is_some_and(Vec::is_empty)
    });
    for (name, _) in files {
        on_air(name);
    }
}

/// Collects the names on the air until all of these were seen; returns the other names.
fn on_air(server: &Server, channel: usize, names: &[&str]) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    await_true(&format!("{names:?} on the air"), || {
        if let Some(name) = state(server, channel)["on_air"].as_str() {
            seen.insert(name.to_owned());
        }
        names.iter().all(|name| seen.contains(*name))
    });
    seen
}

fn programmes(server: &Server) -> u64 {
    [BROKEN, CHANGING]
        .iter()
        .map(|channel| state(server, *channel)["programmes"].as_u64().expect("a count"))
        .sum()
}

fn descriptors(server: &Server) -> usize {
    let folder = fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("it runs");
    folder.count()
}

#[track_caller]
fn await_descriptors(server: &Server, at_most: usize) {
    await_true(&format!("{at_most} descriptors"), || descriptors(server) <= at_most);
}

/// Returns bytes of no format.
fn noise() -> Vec<u8> {
    (0..120_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 23) as u8).collect()
}
