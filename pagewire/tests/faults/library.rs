// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that are added, changed and removed while the server runs: the index follows within a few
//! seconds, a replaced file plays with its new content, and a session of the old file gets it to
//! its end.
//!
//! Sources: inotify(7).

use std::fs::{self, File};

use serde_json::Value;

use crate::harness::Server;
use crate::harness::answer::http;
use crate::harness::clip::Clip;
use crate::harness::rtsp::{Control, Player};
use crate::resource_snapshot::ResourceSnapshot;
use crate::{await_read, serve};

fn names(index: &Value) -> Vec<String> {
    let rows = index["files"].as_array().expect("a list of files").iter();
    rows.map(|row| row["name"].as_str().expect("a name").to_owned()).collect()
}

/// Plays it from beginning to end and asserts that it is `bytes`.
#[track_caller]
fn assert_plays(server: &Server, name: &str, bytes: &[u8]) {
    let mut player = Player::set_up(server.rtsp, name);
    let first = player.play();
    player.hear("the end", |heard| !heard.byes.is_empty());
    assert_eq!(player.heard().assert_gapless(bytes, first).len(), bytes.len());
    assert_eq!(player.command("TEARDOWN", &[]).status, 200);
}

#[test]
fn new_changed_renamed_and_deleted_files_are_noticed() {
    let [old, new] = [11, 12].map(|seed| {
        Clip { seed, milliseconds: 300, bits_per_second: 500_000, with_clock: true }.bytes()
    });
    let server = serve(&[("a.ts", &old)], &[]);
    let folder = server.folder();
    let snapshot = ResourceSnapshot::of(&server);

    // New files: by rename, in a new folder, written in pieces, of a kind that is not streamed.
    server.place.put("b.ts", &new);
    server.place.put("deep/er/c.ts", &old);
    fs::write(folder.join("notes.txt"), "a note").expect("a file that is no stream");
    let writing = folder.join("d.ts");
    for end in [0, new.len() / 3, new.len()] {
        fs::write(&writing, &new[..end]).expect("a file that grows");
        server.await_index("its length is noticed", |index| {
            let rows = index["files"].as_array().expect("a list of files");
            rows.iter().any(|row| row["name"] == "d.ts" && row["bytes"] == end)
        });
    }
    await_read(&server, 5);
    for (name, bytes) in [("b.ts", &new), ("deep/er/c.ts", &old), ("d.ts", &new)] {
        assert_plays(&server, name, bytes);
    }

    // Changed files: replaced, and overwritten in place.
    server.place.put("a.ts", &new);
    assert_plays(&server, "a.ts", &new);
    fs::write(folder.join("b.ts"), &old).expect("it may be written");
    server.await_index("both are read again", |index| {
        let rows = index["files"].as_array().expect("a list of files");
        let read = |name: &str| rows.iter().any(|r| r["name"] == name && r["stream"].is_object());
        read("a.ts") && read("b.ts")
    });
    assert_plays(&server, "b.ts", &old);
    assert_eq!(http(server.http, "GET", "/b.ts").body, old);

    // Renamed and deleted: a file and a folder of files.
    fs::rename(folder.join("d.ts"), folder.join("e.ts")).expect("it is there");
    fs::remove_file(folder.join("b.ts")).expect("it is there");
    fs::remove_dir_all(folder.join("deep")).expect("it is there");
    let left = ["a.ts", "e.ts", "notes.txt"];
    server.await_index("three are left", |index| names(index) == left);
    assert_plays(&server, "e.ts", &new);
    for name in ["b.ts", "d.ts", "deep/er/c.ts"] {
        assert_eq!(http(server.http, "GET", &format!("/{name}")).status, 404, "{name}");
        assert_eq!(Control::to(server.rtsp).ask("DESCRIBE", name, &[]).status, 404, "{name}");
    }
    snapshot.assert_restored(&server);
}

/// A session plays the file that it was set up with, even after its name refers to another.
#[test]
fn a_file_replaced_between_setup_and_play_is_the_old_one_for_its_session() {
    let [old, new] = [13, 14].map(|seed| Clip::of_seconds(seed, 1).bytes());
    assert_eq!(old.len(), new.len());
    let server = serve(&[("a.ts", &old)], &[]);
    let snapshot = ResourceSnapshot::of(&server);
    let mut player = Player::set_up(server.rtsp, "a.ts");
    // Of the same size and time, as an archive unpacked twice gives it: only the inode differs.
    let path = server.folder().join("a.ts");
    let modified = fs::metadata(&path).and_then(|m| m.modified()).expect("it is there");
    let newer = server.place.top().join("newer.ts");
    fs::write(&newer, &new).expect("a file");
    File::options()
        .write(true)
        .open(&newer)
        .and_then(|file| file.set_modified(modified))
        .and_then(|()| fs::rename(&newer, &path))
        .expect("the new one takes the old one's place");

    let first = player.play();
    let mut late = Player::set_up(server.rtsp, "a.ts");
    let late_first = late.play();
    for (player, first, bytes) in [(&mut player, first, &old), (&mut late, late_first, &new)] {
        player.hear("the end", |heard| !heard.byes.is_empty());
        assert_eq!(player.heard().assert_gapless(bytes, first).len(), bytes.len());
        assert_eq!(player.command("TEARDOWN", &[]).status, 200);
    }
    // The wire image made meanwhile does not mix the two files either.
    assert_plays(&server, "a.ts", &new);
    drop((player, late));
    snapshot.assert_restored(&server);
}
