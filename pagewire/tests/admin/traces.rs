// SPDX-License-Identifier: MIT OR Apache-2.0
//! Traces of a session: each sent packet has its due time and its sent time.

use std::process::Command;

use serde_json::Value;

use crate::harness::PROGRAM;
use crate::harness::clip::Clip;
use crate::harness::rtsp::Player;
use crate::{ask, await_session, serve};

#[test]
fn trace_has_every_packet_that_was_sent_with_its_times() {
    let server = serve(Clip::of_seconds(21, 30), &["--burst", "20"]);
    let mut player = Player::set_up(server.rtsp, "film.ts");
    player.play();
    let row = await_session(&server, "it plays", |row| row["packets"].as_u64() > Some(0));
    let id = row["id"].as_str().expect("text");
    let target = format!("/v1/sessions/{id}/trace?seconds=5&format=csv");
    let before = player.heard().packets.len();
    let answer = ask(&server, "GET", &target, &[]);
    assert_eq!(answer.status, 200, "{answer:?}");
    let text = answer.text();
    let mut rows = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = rows.next().expect("a head");
    assert_eq!(names[..4], ["track", "sequence", "due_us", "sent_us"]);
    let rows: Vec<_> = rows.collect();
    assert!(rows.len() > 50, "{text}");
    let number = |row: &[&str], column: usize| row[column].parse::<f64>().expect("a number");
    let mut sent_before = f64::MIN;
    for row in &rows {
        let (due, sent) = (number(row, 2), number(row, 3));
        // A packet is sent at most one burst before its time, and the timer wheel has a resolution
        // of one tick.
        assert!(sent >= due - 22_000.0, "{row:?}");
        assert!(sent >= sent_before, "sends are in order: {row:?}");
        sent_before = sent;
    }
    let sequences: Vec<u16> = rows.iter().map(|row| number(row, 1) as u16).collect();
    assert!(
        sequences.windows(2).all(|two| two[1] == two[0].wrapping_add(1)),
        "no packet is left out: {sequences:?}"
    );
    // The player has received all of them, and no other packet between two of them.
    let last = *sequences.last().expect("rows");
    let sequence = |packet: &Vec<u8>| u16::from_be_bytes([packet[2], packet[3]]);
    player.hear("the last packet of the trace", |heard| {
        heard.packets.iter().any(|packet| sequence(packet) == last)
    });
    let heard = player.heard();
    let received: Vec<u16> =
        heard.packets[before.saturating_sub(1)..].iter().map(sequence).collect();
    let from = received.iter().position(|found| *found == sequences[0]).expect("the first");
    assert_eq!(received[from..from + sequences.len()], sequences);
    drop(heard);
    server.stop();
}

#[test]
fn program_writes_a_file_that_perfetto_opens_and_lists_sessions() {
    let server = serve(Clip::of_seconds(22, 30), &[]);
    let mut player = Player::set_up(server.rtsp, "film.ts");
    player.play();
    let row = await_session(&server, "it plays", |row| row["packets"].as_u64() > Some(0));
    let id = row["id"].as_str().expect("text").to_owned();
    let admin = format!("http://{}", server.admin.expect("it listens"));
    let run = |arguments: &[&str]| {
        let output = Command::new(PROGRAM).arg("trace").args(arguments).output();
        output.expect("the program runs")
    };
    let list = run(&["--admin", &admin]);
    let text = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(list.status.success() && text.starts_with(&id) && text.contains("film.ts"), "{list:?}");
    let file = server.place.top().join("trace.json");
    let path = file.to_str().expect("UTF-8");
    let made = run(&[&id, "--admin", &admin, "--seconds", "3", "--output", path]);
    assert!(made.status.success(), "{made:?}");
    let trace: Value =
        serde_json::from_slice(&std::fs::read(&file).expect("a file")).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let count = |name: &str| events.iter().filter(|event| event["name"] == name).count();
    assert!(count("due") > 20 && count("due") == count("sent"), "{} events", events.len());
    for (arguments, words) in [
        (&["rtsp-999", "--admin", &admin][..], "404 no such session"),
        (&["rtsp-1", "--admin", "http://127.0.0.1:1"], "is it running with --admin?"),
        (&["../x", "--admin", &admin], "no identifier"),
    ] {
        let refused = run(arguments);
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && text.contains(words), "{arguments:?}: {text}");
    }
    server.stop();
}

#[test]
fn trace_of_a_session_that_ends_has_what_was_sent() {
    let server = serve(Clip::of_seconds(23, 30), &[]);
    // The client cannot see when a trace begins: on a busy machine the session may have ended
    // before. Then the next session plays twice as many packets.
    let traced = [40, 80, 160, 320].into_iter().find_map(|packets| {
        let mut player = Player::set_up(server.rtsp, "film.ts");
        player.play();
        let row = await_session(&server, "it plays", |row| row["packets"].as_u64() > Some(0));
        let id = row["id"].as_str().expect("text").to_owned();
        let target = format!("/v1/sessions/{id}/trace?seconds=60&format=csv");
        let answer = std::thread::scope(|scope| {
            let asked = scope.spawn(|| ask(&server, "GET", &target, &[]));
            let before = player.heard().packets.len();
            player.hear("it plays on", |heard| heard.packets.len() >= before + packets);
            assert_eq!(player.command("TEARDOWN", &[]).status, 200);
            asked.join().expect("an answer long before the minute is over")
        });
        assert!([200, 404].contains(&answer.status), "{answer:?}");
        Some(answer.text()).filter(|text| text.lines().count() > 10)
    });
    assert!(traced.is_some(), "no trace has ten packets");
    server.stop();
}
