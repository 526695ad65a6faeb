// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cameras of a configuration file: each has a folder of its own, in which files follow each other
//! without a lost picture; the rules delete the oldest and nothing else; complete files are handed
//! to a program; the fault of a camera or of the disk ends no other camera.
//!
//! The cameras are those of [`fragments`](crate::fragments).
//!
//! Does not judge at what time of the clock files begin: the trials of `receive` do.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::fake::{Fake, Script};
use crate::fragments::{Camera, PICTURES, pictures};
use crate::harness::recorder::{Recorded, Recorder};
use crate::harness::{PROGRAM, Place, await_true};

/// Writes a configuration, and starts the recorder with it.
fn start(place: &Place, command: Command, text: &str) -> Recorder {
    let path = place.top().join("cameras.toml");
    fs::write(&path, text).expect("room for a file");
    Recorder::by(command, place, &[], &["--config", path.to_str().expect("UTF-8")])
}

/// The files of a camera, in order.
fn files(place: &Place, camera: &str) -> Vec<PathBuf> {
    let listed = fs::read_dir(place.folder().join(camera)).into_iter().flatten();
    let paths = listed.map(|entry| entry.expect("an entry").path());
    // The index of the recordings is no file of the camera.
    let mut files: Vec<_> =
        paths.filter(|path| path.extension().is_none_or(|end| end != "sqlite3")).collect();
    // Files of one second: `…Z.mp4` is in front of `…Z-2.mp4`.
    files.sort_by_key(|path| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let (start, copy) = name.split_once("Z-").unwrap_or((name.trim_end_matches('Z'), "1"));
        (start.to_owned(), copy.parse::<u32>().unwrap_or(0))
    });
    files
}

/// The numbers of the pictures in each of these files.
fn numbers(files: &[PathBuf]) -> Vec<Vec<u32>> {
    files.iter().map(|path| pictures(&fs::read(path).expect("it is there"))).collect()
}

/// The figures of a camera.
fn figures<'r>(recorded: &'r Recorded, camera: &str) -> &'r serde_json::Value {
    let streams = recorded.summary["streams"].as_array().expect("streams");
    let found = streams.iter().find(|stream| stream["camera"] == camera);
    found.unwrap_or_else(|| panic!("no {camera} in {:#}", recorded.summary))
}

#[test]
fn each_camera_has_a_folder_and_old_files_are_deleted_after_their_program() {
    let place = Place::new();
    let cameras = ["door", "yard"].map(|name| Camera::named(&place, name));
    let list = place.top().join("list");
    let program = place.top().join("note.sh");
    let script = format!(
        "#!/bin/sh\ntest -s \"$1\" && echo \"$PAGEWIRE_CAMERA $1\" >> {}\n",
        list.display()
    );
    fs::write(&program, script).expect("room for a program");
    let text = format!(
        "folder = \"media\"\nrotate_seconds = 5\n\
         [camera.door]\nsdp = \"door.sdp\"\nkeep_gb = 0.00003\n\
         on_file = [\"sh\", \"{}\", \"{{file}}\"]\n\
         [camera.yard]\nsdp = \"yard.sdp\"\nfolder = \"media/back yard\"\n",
        program.display()
    );
    fs::create_dir(place.folder().join("door")).expect("room for a folder");
    let others = ["door-20200101T000000Z.mkv", "door-2-20200101T000000Z.mp4", "notes.txt"];
    let others = others.map(|name| place.folder().join("door").join(name));
    let old = place.folder().join("door/door-20200101T000000Z.ts");
    others.iter().chain([&old]).for_each(|path| fs::write(path, [7; 99]).expect("room"));
    let recorder = start(&place, Command::new(PROGRAM), &text);
    let all = 20 * PICTURES;
    for camera in &cameras {
        camera.send(0..all, 500);
        camera.await_read();
    }
    let handed_over = || {
        let text = fs::read_to_string(&list).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    // The fourth file grows until the end.
    await_true("three files are handed over", || handed_over().len() == 3);
    await_true("complete files are deleted", || files(&place, "door").len() == others.len() + 1);
    let recorded = recorder.stop().well();
    assert!(others.iter().all(|path| path.exists()) && !old.exists());
    let door: Vec<_> =
        files(&place, "door").into_iter().filter(|path| !others.contains(path)).collect();
    assert_eq!(numbers(&door), [(15 * PICTURES..all).collect::<Vec<_>>()]);
    let lines = handed_over();
    assert_eq!(lines.len(), 4, "{lines:?}");
    assert_eq!(lines[3], format!("door {}", door[0].display()));
    let counts = figures(&recorded, "door");
    let count = |name: &str| counts[name].as_u64().expect("a count");
    assert_eq!((count("files"), count("files_deleted"), count("on_file_failed")), (4, 4, 0));

    let yard = files(&place, "back yard");
    let numbers = numbers(&yard);
    assert_eq!(numbers.iter().map(Vec::len).collect::<Vec<_>>(), [125; 4]);
    assert_eq!(numbers.concat(), (0..all).collect::<Vec<_>>());
    let name = yard[0].file_name().expect("a name").to_string_lossy().into_owned();
    assert!(name.starts_with("yard-2") && name.ends_with("Z.mp4"), "{name}");
    assert_eq!(figures(&recorded, "yard")["files_deleted"], 0);
}

#[test]
fn a_camera_that_cannot_be_recorded_ends_no_other() {
    let place = Place::new();
    let script = Script::title(Vec::new(), std::time::Duration::ZERO);
    let media = "m=video 0 RTP/AVP 26\r\n";
    let odd = Fake::start(Script { media, ..script });
    let yard = Camera::named(&place, "yard");
    let in_use = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let used_address = in_use.local_addr().expect("it is bound");
    let text = format!(
        "folder = \"media\"\n[camera.door]\nurl = \"{}\"\n[camera.yard]\nsdp = \"yard.sdp\"\n\
         [camera.hall]\nurl = \"udp://{used_address}\"\n[camera.attic]\nsdp = \"none.sdp\"\n",
        odd.url
    );
    // It becomes unusable after it was checked.
    fs::write(place.top().join("none.sdp"), "v=0\r\n").expect("room for a file");
    let mut recorder = start(&place, Command::new(PROGRAM), &text);
    recorder.await_log("Motion JPEG");
    recorder.await_log(&format!("camera hall: udp://{used_address}: "));
    recorder.await_log("none.sdp; ");
    let all = 4 * PICTURES;
    yard.send(0..all, 500);
    yard.await_read();
    let recorded = recorder.stop();
    assert_eq!(recorded.status.code(), Some(1), "{:#}", recorded.summary);
    // It is asked again later.
    assert_eq!(figures(&recorded, "door")["has_failed"], false);
    let trouble = figures(&recorded, "door")["trouble"].as_str().unwrap_or_default();
    assert!(trouble.contains("Motion JPEG"), "{trouble}");
    assert_eq!(figures(&recorded, "yard")["has_failed"], false);
    assert_eq!(numbers(&files(&place, "yard")), [(0..all).collect::<Vec<_>>()]);
}

#[test]
fn a_camera_whose_file_could_not_be_written_is_recorded_on_in_the_next() {
    let place = Place::new();
    let door = Camera::named(&place, "door");
    let mut limited = Command::new("sh");
    // `ulimit -f` counts blocks of 512 bytes.
    limited.args(["-c", "ulimit -f 600 && exec \"$0\" \"$@\"", PROGRAM]);
    let text = "folder = \"media\"\nrotate_seconds = 10\n[camera.door]\nsdp = \"door.sdp\"\n";
    let mut recorder = start(&place, limited, text);
    door.send(0..20 * PICTURES, 1000);
    recorder.await_log("and another file is tried soon");
    // Files that are small enough.
    let all = 60 * PICTURES;
    door.send(20 * PICTURES..all, 100);
    door.await_read();
    let recorded = recorder.stop();
    assert_eq!(recorded.status.code(), Some(1), "{:#}", recorded.summary);
    let counts = figures(&recorded, "door");
    assert!(counts["bytes_dropped_by_disk"].as_u64() > Some(0), "{counts:#}");
    assert_eq!(counts["has_failed"], false, "{counts:#}");
    let numbers = numbers(&files(&place, "door"));
    let [first, rest @ ..] = &numbers[..] else { panic!("{counts:#}") };
    assert_eq!(*first, (0..first.len() as u32).collect::<Vec<_>>());
    // Names tell the arrival, and these pictures arrive faster than they are shown.
    let mut rest = rest.to_vec();
    rest.sort();
    let rest = rest.concat();
    // Each of the large files was begun, and cut where it could not be written.
    let began = 20 * PICTURES;
    let behind: Vec<_> = rest.into_iter().filter(|number| *number >= began).collect();
    assert!(behind == (began..all).collect::<Vec<_>>(), "{} pictures", behind.len());
}

#[test]
fn a_file_with_faults_is_refused_with_their_lines() {
    let place = Place::new();
    let path = place.top().join("cameras.toml");
    let receive = |options: &[&str]| {
        let output = Command::new(PROGRAM)
            .args(["receive", "--config", path.to_str().expect("UTF-8")])
            .args(options)
            .output()
            .expect("the program was built");
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = "keep_day = 3\n[camera.door]\nurl = \"rtsp://anna:s3cr3t@camera/1\"\n\
                rotate_at_minutes = 7\n[camera.yard]\n";
    fs::write(&path, text).expect("room for a file");
    let faults = receive(&[]);
    for words in [
        ":1: keep_day: no such setting; write keep_days\n",
        ":3: camera.door: url: a password, and others can read this file (mode 0",
        ":4: camera.door: rotate_at_minutes: 7: no divisor of the 1440 minutes of a day; write 1",
        ":5: camera.yard: url: missing; write url = \"rtsp://HOST/PATH\", or sdp = \"FILE\"\n",
    ] {
        assert!(faults.contains(words), "{words}: {faults}");
    }
    assert!(!faults.contains("s3cr3t"), "{faults}");
    assert_eq!(receive(&["--check"]), faults);
    fs::write(&path, "[camera.\"front door\"]\nurl = \"rtsp://camera/1\"\n").expect("room");
    let checked = Command::new(PROGRAM)
        .args(["receive", "--check", "--config", path.to_str().expect("UTF-8")])
        .output()
        .expect("the program was built");
    let expected = format!(
        "front door: rtsp://camera/1, mp4 in {}\n1 camera, nothing is wrong\n",
        place.top().join("front door").display()
    );
    assert_eq!(String::from_utf8_lossy(&checked.stdout), expected);
    assert!(checked.status.success() && !place.top().join("front door").exists());
    let both = receive(&["--output", "a.ts"]);
    assert!(both.contains("'--config <FILE>' cannot be used with '--output"), "{both}");
    assert!(!Path::new(&place.folder().join("door")).exists());
}
