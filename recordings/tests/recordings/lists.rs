// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists: lengths, gaps, and an index that is never more than a memory.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::time::SystemTime;

use media::mux::WriterKind;
use recordings::{CameraFile, file_completed, gaps, list};
use rusqlite::Connection;

use crate::made::{Camera, SET, at, range};

fn spans(recordings: &[CameraFile]) -> Vec<(String, u64)> {
    let span = |one: &CameraFile| (one.from().to_string(), one.length.as_secs());
    recordings.iter().map(span).collect()
}

/// Names and lengths in the index.
fn rows(camera: &Camera) -> Vec<(String, i64)> {
    let index = Connection::open(camera.index()).unwrap();
    let mut rows = index.prepare("SELECT name, length_ns FROM files ORDER BY name").unwrap();
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.collect::<rusqlite::Result<_>>().unwrap()
}

/// A day with two files, and one after a pause.
fn camera() -> Camera {
    let camera = Camera::new();
    camera.record(at("14:00:00"), 0, 40, 20);
    camera.record(at("14:01:00"), 1000, 10, 20);
    camera
}

const FOUND: [(&str, u64); 3] =
    [("2026-11-30T14:00:00Z", 20), ("2026-11-30T14:00:20Z", 20), ("2026-11-30T14:01:00Z", 10)];

fn expected() -> Vec<(String, u64)> {
    FOUND.map(|(from, seconds)| (from.to_owned(), seconds)).to_vec()
}

#[test]
fn files_are_listed_with_their_lengths_and_the_times_between_them() {
    let camera = camera();
    fs::write(camera.folder.path().join("door-20261130T140000Z.mp4.part"), "no").unwrap();
    symlink(camera.path(at("14:00:00"), "mp4"), camera.path(at("15:00:00"), "mp4")).unwrap();
    let found = camera.list();
    assert_eq!(spans(&found), expected());
    assert_eq!(gaps(&found), [range("14:00:40", "14:01:00")]);
    assert!(found.iter().all(|one| !one.is_growing));
    assert_eq!(found[0].bytes, found[0].path.metadata().unwrap().len());
    let mut none = Camera::new().files;
    none.folder = none.folder.join("none");
    assert_eq!(list(&none, &mut |_, _| {}).unwrap().files, []);
}

#[test]
fn only_files_that_changed_are_read_again() {
    let camera = camera();
    let mut calls = Vec::new();
    list(&camera.files, &mut |read, of| calls.push((read, of))).unwrap();
    assert_eq!(calls, [(0, 3), (1, 3), (2, 3)]);
    assert_eq!(rows(&camera).len(), 3);
    // Content that would be found, were it read.
    let path = camera.path(at("14:00:00"), "mp4");
    let about = path.metadata().unwrap();
    fs::write(&path, vec![0; about.len() as usize]).unwrap();
    let file = File::options().append(true).open(&path).unwrap();
    file.set_modified(about.modified().unwrap()).unwrap();
    assert_eq!(spans(&camera.list()), expected());
    list(&camera.files, &mut |_, _| panic!("nothing has changed")).unwrap();
    file.set_modified(SystemTime::now()).unwrap();
    let found = list(&camera.files, &mut |_, _| {}).unwrap();
    assert_eq!(spans(&found.files), expected()[1..]);
    assert_eq!(found.unreadable, [at("14:00:00")]);
    let lacks = |from, to| found.lacks_part_of(range(from, to));
    assert!(lacks("13:00:00", "14:00:01") && lacks("14:00:19", "15:00:00"));
    assert!(!lacks("13:00:00", "14:00:00") && !lacks("14:00:20", "15:00:00"));
    fs::remove_file(camera.path(at("14:01:00"), "mp4")).unwrap();
    assert_eq!(spans(&camera.list()), expected()[1..2]);
    assert_eq!(rows(&camera), [("door-20261130T140020Z.mp4".to_owned(), 20_000_000_000)]);
}

#[test]
fn the_index_follows_the_recorder() {
    let camera = camera();
    let path = camera.path(at("14:00:20"), "mp4");
    file_completed(&camera.files, &path);
    assert_eq!(rows(&camera), [("door-20261130T140020Z.mp4".to_owned(), 20_000_000_000)]);
    file_completed(&camera.files, &camera.folder.path().join("other.mp4"));
    assert_eq!(rows(&camera).len(), 1);
    // A program that has it locked is not waited for.
    let other = Connection::open(camera.index()).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    file_completed(&camera.files, &camera.path(at("14:00:00"), "mp4"));
    assert_eq!(rows(&camera).len(), 2);
    drop(other);
    assert_eq!(spans(&camera.list()), expected());
}

#[test]
fn a_missing_or_damaged_index_is_made_again() {
    let camera = camera();
    let index = camera.index();
    let elsewhere = camera.folder.path().join("elsewhere");
    let trigger = "CREATE TRIGGER t AFTER DELETE ON files BEGIN SELECT 1; END";
    let damages: [(&str, &dyn Fn()); 11] = [
        ("missing", &|| {}),
        ("text", &|| fs::write(&index, "not a database at all").unwrap()),
        ("cut off", &|| {
            list(&camera.files, &mut |_, _| {}).unwrap();
            File::options().append(true).open(&index).unwrap().set_len(4500).unwrap();
        }),
        ("another schema", &|| {
            let other = Connection::open(&index).unwrap();
            other.execute_batch("CREATE TABLE files (name TEXT)").unwrap();
        }),
        ("with a trigger", &|| {
            list(&camera.files, &mut |_, _| {}).unwrap();
            Connection::open(&index).unwrap().execute_batch(trigger).unwrap();
        }),
        ("a link", &|| {
            fs::write(&elsewhere, "of somebody").unwrap();
            symlink(&elsewhere, &index).unwrap();
        }),
        ("a pipe in place of its journal", &|| {
            list(&camera.files, &mut |_, _| {}).unwrap();
            let journal = index.with_extension("sqlite3-journal");
            rustix::fs::mkfifoat(rustix::fs::CWD, journal, rustix::fs::Mode::RUSR).unwrap();
        }),
        ("empty", &|| fs::write(&index, "").unwrap()),
        ("too large", &|| {
            fs::write(&index, "SQLite format 3").unwrap();
            File::options().append(true).open(&index).unwrap().set_len(1 << 40).unwrap();
        }),
        ("in WAL mode", &|| {
            list(&camera.files, &mut |_, _| {}).unwrap();
            let mode = "PRAGMA journal_mode = WAL";
            Connection::open(&index).unwrap().query_row(mode, [], |_| Ok(())).unwrap();
        }),
        ("a folder", &|| fs::create_dir(&index).unwrap()),
    ];
    for (damage, make) in damages {
        make();
        assert_eq!(spans(&camera.list()), expected(), "{damage}");
        for end in ["sqlite3-journal", "sqlite3-wal", "sqlite3-shm"] {
            let _ = fs::remove_file(index.with_extension(end));
        }
        if index.is_dir() {
            fs::remove_dir(&index).unwrap();
        } else {
            assert_eq!(rows(&camera).len(), 3, "{damage}");
            fs::remove_file(&index).unwrap();
        }
    }
    assert_eq!(fs::read_to_string(elsewhere).unwrap(), "of somebody");
}

#[test]
fn rows_of_an_index_cannot_make_files_or_times_that_are_none() {
    let camera = camera();
    camera.list();
    let index = Connection::open(camera.index()).unwrap();
    index.execute_batch("UPDATE files SET length_ns = -1 WHERE name LIKE '%00Z%'").unwrap();
    index.execute_batch("UPDATE files SET length_ns = 0 WHERE name LIKE '%20Z%'").unwrap();
    let more =
        "INSERT INTO files VALUES ('../secret', 1, 1, 1), ('door-20261130T150000Z.mp4', 1, 1, 1)";
    index.execute_batch(more).unwrap();
    drop(index);
    assert_eq!(spans(&camera.list()), expected());
    assert_eq!(rows(&camera).len(), 3);
}

#[test]
fn lists_at_once_are_the_same() {
    let camera = camera();
    std::thread::scope(|scope| {
        let lists: Vec<_> = (0..8).map(|_| scope.spawn(|| spans(&camera.list()))).collect();
        for list in lists {
            assert_eq!(list.join().unwrap(), expected());
        }
    });
    assert_eq!(rows(&camera).len(), 3);
}

#[test]
fn a_file_that_is_written_is_listed_up_to_its_last_fragment_and_not_in_the_index() {
    let camera = camera();
    let path = camera.path(at("14:01:00"), "mp4");
    let file = File::options().read(true).append(true).open(&path).unwrap();
    file.set_len(path.metadata().unwrap().len() - 1).unwrap();
    paths::lock_to_write(&file).unwrap();
    let found = camera.list();
    let last = found.last().unwrap();
    assert!(last.is_growing && (7..10).contains(&last.length.as_secs()), "{last:?}");
    assert_eq!(rows(&camera).len(), 2);
    // Only its beginning is there.
    file.set_len(700).unwrap();
    assert_eq!(camera.list().len(), 2);
}

#[test]
fn lengths_of_transport_streams_are_those_of_their_clocks_or_of_the_last_write() {
    let camera = Camera::new();
    camera.record_as(WriterKind::TransportStream, &SET, at("14:00:00"), 0, 60, 20);
    let check = |expected: [u64; 3]| {
        let found = camera.list();
        assert_eq!(found.len(), expected.len());
        for (one, seconds) in found.iter().zip(expected) {
            assert!(one.length.as_secs().abs_diff(seconds) <= 1, "{one:?}: {seconds}");
        }
    };
    check([20, 20, 20]);
    // Copied: the last write tells nothing, the clock has no break.
    let copied = File::options().append(true).open(camera.path(at("14:00:20"), "ts")).unwrap();
    copied.set_modified(SystemTime::now()).unwrap();
    // Absent for half an hour: the clock of the second half begins at zero again.
    let last = camera.path(at("14:00:40"), "ts");
    let all = [fs::read(&last).unwrap(), fs::read(&last).unwrap()].concat();
    fs::write(&last, all).unwrap();
    let absent = File::options().append(true).open(&last).unwrap();
    absent.set_modified(at("14:31:20").into()).unwrap();
    fs::remove_file(camera.index()).unwrap();
    file_completed(&camera.files, &last);
    assert!(!camera.index().exists(), "it takes a pass");
    check([20, 20, 1840]);
    // It was copied: another file had begun by then.
    camera.record_as(WriterKind::TransportStream, &SET, at("14:02:00"), 0, 20, 20);
    assert_eq!(camera.list()[2].to(), at("14:02:00"));
}
