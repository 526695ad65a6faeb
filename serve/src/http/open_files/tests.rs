// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of open files: what is kept, that changes show at once, and that limits hold.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::thread;

use super::*;

/// A served folder, and the open files of one loop, which are followed.
struct Place {
    folder: tempfile::TempDir,
    served: Arc<Folder>,
    files: Arc<OpenFiles>,
}

impl Place {
    fn new(descriptors: u64) -> Place {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/b")).unwrap();
        let served = Arc::new(Folder::open(folder.path()).unwrap());
        let files = Arc::new(OpenFiles::new(1, descriptors));
        tokio::spawn(files.clone().watch());
        Place { folder, served, files }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn find(&self, name: &str) -> Result<Arc<OpenFile>, NotOpened> {
        self.files.find(name, self.files.tick(), &self.served, |_| false).await
    }

    /// Returns the content of a file as a request would get it.
    async fn content(&self, name: &str) -> Vec<u8> {
        let file = self.find(name).await.unwrap();
        match &file.content {
            FileContent::Held(body) => body.to_vec(),
            FileContent::Open(media) => {
                let mut bytes = vec![0; media.bytes() as usize];
                std::os::unix::fs::FileExt::read_exact_at(media.file(), &mut bytes, 0).unwrap();
                bytes
            }
        }
    }

    fn kept(&self) -> usize {
        self.files.table.lock().by_name.len()
    }

    /// Requests a file until it is kept.
    async fn keep(&self, name: &str) {
        let before = self.kept();
        for _ in 0..3 {
            self.find(name).await.unwrap();
        }
        assert_eq!(self.kept(), before + 1, "{name} is kept");
    }
}

const DESCRIPTORS: u64 = 1024;

type Change = Box<dyn Fn(&Place)>;

#[tokio::test]
async fn a_file_is_kept_from_its_second_request_on() {
    let place = Place::new(DESCRIPTORS);
    fs::write(place.path("small"), "small").unwrap();
    fs::write(place.path("large"), vec![7; HELD_BYTES_MAX as usize + 1]).unwrap();
    fs::write(place.path("empty"), "").unwrap();
    for name in ["small", "large", "empty"] {
        place.find(name).await.unwrap();
        assert_eq!(place.kept(), 0, "{name}");
    }
    for name in ["small", "large", "empty"] {
        place.find(name).await.unwrap();
    }
    let (small, again) = (place.find("small").await.unwrap(), place.find("small").await.unwrap());
    assert!(Arc::ptr_eq(&small, &again));
    let table = place.files.table.lock();
    assert_eq!((table.by_name.len(), table.descriptors, table.held_bytes), (3, 1, 5));
}

#[tokio::test]
async fn every_change_shows_in_the_next_request() {
    let place = Place::new(DESCRIPTORS);
    let name = "a/b/file";
    for bytes in [5, HELD_BYTES_MAX as usize + 5] {
        let filled = |byte: u8| vec![byte; bytes];
        fs::write(place.path(name), filled(0)).unwrap();
        let mut changes: Vec<(&str, Change)> = vec![
            (
                "rename",
                Box::new(move |place| {
                    fs::write(place.path("a/new"), vec![1; bytes]).unwrap();
                    fs::rename(place.path("a/new"), place.path(name)).unwrap();
                }),
            ),
            (
                "write in place",
                Box::new(move |place| {
                    let file = File::options().write(true).open(place.path(name)).unwrap();
                    std::os::unix::fs::FileExt::write_all_at(&file, &vec![2; bytes], 0).unwrap();
                }),
            ),
            (
                "truncation",
                Box::new(move |place| {
                    File::options().write(true).open(place.path(name)).unwrap().set_len(3).unwrap();
                }),
            ),
            (
                "growth",
                Box::new(move |place| {
                    fs::write(place.path(name), vec![4; bytes + 9]).unwrap();
                }),
            ),
            (
                "another hard link",
                Box::new(move |place| {
                    let _ = fs::remove_file(place.path("link"));
                    fs::hard_link(place.path(name), place.path("link")).unwrap();
                    fs::write(place.path("link"), vec![5; bytes]).unwrap();
                }),
            ),
            (
                "rename of its folder",
                Box::new(move |place| {
                    fs::rename(place.path("a"), place.path("old")).unwrap();
                    fs::create_dir_all(place.path("a/b")).unwrap();
                    fs::write(place.path(name), vec![6; bytes]).unwrap();
                    fs::remove_dir_all(place.path("old")).unwrap();
                }),
            ),
        ];
        for (change, apply) in changes.drain(..) {
            place.keep(name).await;
            apply(&place);
            let expected = fs::read(place.path(name)).unwrap();
            assert!(place.content(name).await == expected, "{change}, {bytes} bytes");
            place.files.table.lock().clear();
        }
        place.keep(name).await;
        fs::remove_file(place.path(name)).unwrap();
        let missing = place.find(name).await.err();
        assert!(matches!(missing, Some(NotOpened::Denied(Denied::Missing))), "{missing:?}");
        let _ = fs::remove_file(place.path("link"));
    }
}

/// A writer by mmap causes no event; the file's time shows the change.
#[tokio::test]
async fn a_change_without_an_event_shows_after_a_second() {
    let place = Place::new(DESCRIPTORS);
    fs::write(place.path("file"), "old").unwrap();
    place.keep("file").await;
    {
        let mut table = place.files.table.lock();
        table.watches.as_mut().unwrap().clear();
        let kept = table.by_name.get_mut("file").unwrap();
        kept.looked -= LOOK_EVERY;
    }
    assert_eq!(place.content("file").await, b"old");
    // The new content has another length: a time has the grain of a clock tick.
    fs::write(place.path("file"), "newer").unwrap();
    let looked_at = |looked: Instant| {
        place.files.table.lock().by_name.get_mut("file").unwrap().looked = looked;
    };
    // An hour ahead: the second does not pass before the request.
    looked_at(Instant::now() + Duration::from_secs(3600));
    assert_eq!(place.content("file").await, b"old", "within the second");
    looked_at(Instant::now().checked_sub(LOOK_EVERY).unwrap());
    assert_eq!(place.content("file").await, b"newer");
}

/// A failed look at the name in place does not keep an old file for ever.
#[tokio::test]
async fn a_name_that_leads_to_a_link_is_opened_anew() {
    let place = Place::new(DESCRIPTORS);
    fs::write(place.path("file"), "old").unwrap();
    fs::write(place.path("other"), "new").unwrap();
    place.keep("file").await;
    {
        // As where the kernel reports no change.
        let mut table = place.files.table.lock();
        table.watches.as_mut().unwrap().clear();
        table.by_name.get_mut("file").unwrap().looked -= LOOK_EVERY;
    }
    fs::remove_file(place.path("file")).unwrap();
    symlink("other", place.path("file")).unwrap();
    assert_eq!(place.content("file").await, b"new");
    assert_eq!(place.kept(), 0);
}

#[tokio::test]
async fn a_file_of_tmpfs_is_kept_too() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        return eprintln!("skip: this host has no /dev/shm");
    };
    fs::write(folder.path().join("file"), "text").unwrap();
    let served = Arc::new(Folder::open(folder.path()).unwrap());
    let files = OpenFiles::new(1, DESCRIPTORS);
    for _ in 0..2 {
        files.find("file", files.tick(), &served, |_| false).await.unwrap();
    }
    assert_eq!(files.table.lock().by_name.len(), 1);
}

#[tokio::test]
async fn links_are_followed_and_not_kept() {
    let place = Place::new(DESCRIPTORS);
    fs::write(place.path("a/1"), "one").unwrap();
    fs::write(place.path("a/2"), "two").unwrap();
    symlink("a/1", place.path("link")).unwrap();
    symlink("a", place.path("way")).unwrap();
    for _ in 0..3 {
        assert_eq!(place.content("link").await, b"one");
        assert_eq!(place.content("way/1").await, b"one");
    }
    assert_eq!(place.kept(), 0);
    fs::remove_file(place.path("link")).unwrap();
    symlink("a/2", place.path("link")).unwrap();
    assert_eq!(place.content("link").await, b"two");
}

#[tokio::test]
async fn limits_hold_and_the_used_stay() {
    let place = Place::new(5 * DESCRIPTORS_PART);
    let large = vec![1; HELD_BYTES_MAX as usize + 1];
    for number in 0..9 {
        fs::write(place.path(&number.to_string()), &large).unwrap();
    }
    place.keep("0").await;
    for number in 1..9 {
        let name = number.to_string();
        for _ in 0..2 {
            place.find(&name).await.unwrap();
            place.find("0").await.unwrap();
        }
    }
    let table = place.files.table.lock();
    assert_eq!((table.by_name.len(), table.descriptors), (5, 5));
    assert!(table.by_name.contains_key("0"), "asked for all the time");
    assert_eq!(table.watches.as_ref().unwrap().count(), (5, 1));
}

#[tokio::test]
async fn held_bodies_are_bounded_and_the_unused_are_dropped() {
    let place = Place::new(DESCRIPTORS);
    let body = vec![1; HELD_BYTES_MAX as usize];
    let fitting = HELD_BYTES_MAX_TOTAL / body.len();
    for number in 0..fitting + 9 {
        let name = format!("a/{number}");
        fs::write(place.path(&name), &body).unwrap();
        place.find(&name).await.unwrap();
        place.find(&name).await.unwrap();
    }
    assert_eq!(place.kept(), fitting);
    place.find(&format!("a/{}", fitting + 8)).await.unwrap();
    place.files.table.lock().drop_unused();
    assert_eq!(place.kept(), 1);
    place.files.table.lock().drop_unused();
    let table = place.files.table.lock();
    assert_eq!((table.by_name.len(), table.held_bytes, table.by_age.len()), (0, 0, 0));
    assert_eq!(table.watches.as_ref().unwrap().count(), (0, 0), "no watch is left behind");
}

#[tokio::test]
async fn kept_files_give_way_when_descriptors_run_out() {
    let place = Place::new(DESCRIPTORS);
    fs::write(place.path("kept"), vec![1; HELD_BYTES_MAX as usize + 1]).unwrap();
    fs::write(place.path("other"), "other").unwrap();
    place.keep("kept").await;
    let is_reserved = |_: &File| place.kept() > 0;
    let found = place.files.find("other", 1, &place.served, is_reserved).await;
    assert!(found.is_ok() && place.kept() == 0);
    let refused = place.files.find("other", 1, &place.served, |_| true).await.err();
    assert!(matches!(refused, Some(NotOpened::Reserved)), "{refused:?}");
}

/// Another thread renames files over a kept one and then requests it over a socket of the loop: no
/// answer is older than its request.
#[tokio::test]
async fn a_request_behind_a_rename_gets_the_new_file() {
    const ROUNDS: u32 = 2000;
    let place = Place::new(DESCRIPTORS);
    let (asking, mut asked) = tokio::net::UnixStream::pair().unwrap();
    let asking = asking.into_std().unwrap();
    asking.set_nonblocking(false).unwrap();
    fs::write(place.path("file"), 0_u32.to_ne_bytes()).unwrap();
    place.keep("file").await;
    let (target, new) = (place.path("file"), place.path("new"));
    let client = thread::spawn(move || {
        let (mut asking, mut stale) = (asking, 0);
        for round in 1..=ROUNDS {
            fs::write(&new, round.to_ne_bytes()).unwrap();
            fs::rename(&new, &target).unwrap();
            // A second and third question let the file be kept again.
            for _ in 0..3 {
                std::io::Write::write_all(&mut asking, b"?").unwrap();
                let mut answer = [0; 4];
                std::io::Read::read_exact(&mut asking, &mut answer).unwrap();
                stale += u32::from(answer != round.to_ne_bytes());
            }
        }
        stale
    });
    // Served as connections are: by a task, which reads less than its buffer holds.
    let served = tokio::spawn(async move {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut kept = 0;
        while asked.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {
            let answer = place.content("file").await;
            kept += u32::from(place.kept() == 1);
            asked.write_all(&answer).await.unwrap();
        }
        kept
    });
    let kept = served.await.unwrap();
    assert_eq!(client.join().unwrap(), 0, "stale answers");
    assert!(kept >= ROUNDS, "it is kept between the renames: {kept}");
}
