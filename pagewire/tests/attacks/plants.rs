// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names that a hostile local user plants in the folders where `pagewire seal` and `unseal` write:
//! symlinks to another user's folder, pipes, devices, hard links, headers with absurd costs.
//!
//! Every run has a time limit. Files that must not change are compared byte for byte afterwards.
//! Tests that need another user's files run as root only and are skipped otherwise.
//!
//! Sources: symlink(7), fifo(7), link(2); SECURITY.md (local users).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use tempfile::TempDir;

use crate::harness::PROGRAM;
use crate::harness::watchdog::{self, Outcome};
use crate::random::Random;
use crate::tries;

/// A folder that a stranger can write to, with a victim's folder, a source and a key.
pub(crate) struct Share(TempDir);

impl Share {
    pub(crate) fn new() -> Self {
        let share = Self(TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder"));
        fs::create_dir_all(share.path("source/deep")).expect("a folder");
        fs::create_dir_all(share.path("victim/deep")).expect("a folder");
        fs::write(share.path("key"), "07".repeat(32)).expect("a file");
        for name in ["one", "deep/two", "deep/three"] {
            fs::write(share.path("source").join(name), name.repeat(999)).expect("a file");
        }
        for name in ["dear", "deep/er", "one", "deep/two"] {
            fs::write(share.path("victim").join(name), format!("dear {name}")).expect("a file");
        }
        share
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs pagewire here; a run that hangs fails the test.
    #[track_caller]
    pub(crate) fn run(&self, arguments: &[&str]) -> Outcome {
        let mut command = Command::new(PROGRAM);
        command.current_dir(self.0.path()).args(arguments);
        watchdog::run(&mut command, RUN_WAIT).expect("the program under test starts")
    }

    #[track_caller]
    fn seal(&self, target: &str) -> Outcome {
        self.run(&["seal", "folder", "source", target, "--key-file", "key"])
    }

    #[track_caller]
    fn unseal(&self, source: &str, target: &str) -> Outcome {
        self.run(&["unseal", "folder", source, target, "--key-file", "key"])
    }

    /// Asserts that the folder opens to the sealed files, and that no unfinished file is left in
    /// it.
    #[track_caller]
    fn assert_opens(&self, sealed: &str) {
        let run = self.run(&[
            "seal",
            "verify",
            "folder",
            sealed,
            "--source",
            "source",
            "--key-file",
            "key",
        ]);
        assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
        let names = contents(&self.path(sealed));
        assert!(names.keys().all(|name| !name.contains("unfinished")), "{:?}", names.keys());
    }

    fn victim(&self) -> BTreeMap<String, Vec<u8>> {
        contents(&self.path("victim"))
    }
}

/// Returns every name below a folder, with the bytes of files and the targets of links.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("a folder") {
            let path = entry.expect("an entry").path();
            let kind = fs::symlink_metadata(&path).expect("an entry").file_type();
            let name = path.strip_prefix(folder).expect("below").display().to_string();
            let bytes = match kind {
                _ if kind.is_dir() => {
                    folders.push(path);
                    continue;
                }
                _ if kind.is_symlink() => fs::read_link(&path).expect("a link").into_os_string(),
                _ if kind.is_file() => {
                    found.insert(name, fs::read(&path).expect("a file"));
                    continue;
                }
                _ if kind.is_fifo() => "a pipe".into(),
                _ => "a device".into(),
            };
            found.insert(name, bytes.into_encoded_bytes());
        }
    }
    found
}

/// Returns names of working folders for `out` that a stranger would guess: those of version 0.1,
/// and those of this version with some digits.
fn guessed(kind: &str) -> [String; 3] {
    [
        ".pagewire-unfinished-out".to_owned(),
        format!(".pagewire-unfinished-{kind}-out.0000000000000000"),
        format!(".pagewire-unfinished-{kind}-out.fedcba9876543210"),
    ]
}

#[test]
fn a_link_under_a_working_folder_s_name_leaves_its_victim_as_it_is() {
    let share = Share::new();
    let victim = share.victim();
    for kind in ["seal", "unseal"] {
        for name in guessed(kind) {
            symlink("victim", share.path(&name)).expect("a link");
            let run = match kind {
                "seal" => share.seal("out"),
                _ => share.unseal("sealed", "out"),
            };
            assert!(share.victim() == victim, "{name}");
            assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
            let note = format!("note: {}: a symlink", share.path(&name).display());
            assert!(run.stderr.contains(&note), "{}", run.stderr);
            fs::remove_file(share.path(&name)).expect("it is still the link");
            match kind {
                "seal" => {
                    share.assert_opens("out");
                    // The source of the other half of the loop.
                    let _ = fs::remove_dir_all(share.path("sealed"));
                    fs::rename(share.path("out"), share.path("sealed")).expect("a name");
                }
                _ => {
                    let mut opened = contents(&share.path("out"));
                    opened.remove(JOURNAL);
                    assert!(opened == contents(&share.path("source")), "{name}");
                    fs::remove_dir_all(share.path("out")).expect("removed");
                }
            }
        }
    }
}

#[test]
fn a_folder_moved_or_given_to_a_working_folder_s_name_is_not_emptied() {
    let share = Share::new();
    let victim = share.victim();
    let [_, first, second] = guessed("seal");
    // A user who can write to the share can move its entries, including the victim's own folder.
    fs::rename(share.path("victim"), share.path(&first)).expect("moved");
    fs::create_dir(share.path(&second)).expect("a folder");
    fs::write(share.path(&second).join("bait"), "bait").expect("a file");
    fs::set_permissions(share.path(&second), PermissionsExt::from_mode(0o777)).expect("a mode");
    let run = share.seal("out");
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    assert!(run.stderr.contains("it is left as it is"), "{}", run.stderr);
    assert!(run.stderr.contains("others can write to it (mode 0777)"), "{}", run.stderr);
    assert!(contents(&share.path(&first)) == victim);
    assert!(share.path(&second).join("bait").exists());
    share.assert_opens("out");

    fs::remove_dir_all(share.path("out")).expect("removed");
    fs::set_permissions(share.path(&second), PermissionsExt::from_mode(0o700)).expect("a mode");
    if chown(share.path(&second), Some(STRANGER), None).is_err() {
        eprintln!("skip: only root can give a folder to another user");
        return;
    }
    let run = share.seal("out");
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    assert!(run.stderr.contains(&format!("belongs to user {STRANGER}")), "{}", run.stderr);
    assert_eq!(fs::metadata(share.path(&second)).expect("there").uid(), STRANGER);
    share.assert_opens("out");
}

#[test]
fn a_stranger_s_link_in_place_of_the_target_is_refused() {
    let share = Share::new();
    let victim = share.victim();
    symlink("victim", share.path("out")).expect("a link");
    if lchown(share.path("out"), Some(STRANGER), None).is_err() {
        eprintln!("skip: only root can give a link to another user");
        return;
    }
    assert_eq!(share.seal("sealed").status.code(), Some(0));
    for run in [share.seal("out"), share.unseal("sealed", "out")] {
        assert_eq!(run.status.code(), Some(1), "{}", run.stderr);
        assert!(run.stderr.contains(&format!("belongs to user {STRANGER}")), "{}", run.stderr);
        assert!(share.victim() == victim);
    }
}

/// Plants under `name` each kind of file that is not a journal of this user, and calls `check` with
/// the expected words of the message.
fn each_plant(share: &Share, name: &Path, check: impl Fn(&str)) {
    let precious = share.path("precious");
    let rw = Mode::RUSR | Mode::WUSR;
    let plants: [(&str, &dyn Fn() -> bool, &str); 8] = [
        ("link", &|| symlink(&precious, name).is_ok(), "a symlink"),
        ("dangling link", &|| symlink(share.path("nothing"), name).is_ok(), "a symlink"),
        ("link to /dev/zero", &|| symlink("/dev/zero", name).is_ok(), "a symlink"),
        ("pipe", &|| mknodat(CWD, name, FileType::Fifo, rw, 0).is_ok(), "no regular file"),
        ("folder", &|| fs::create_dir(name).is_ok(), "no regular file"),
        (
            "/dev/zero",
            &|| mknodat(CWD, name, FileType::CharacterDevice, rw, makedev(1, 5)).is_ok(),
            "no regular file",
        ),
        (
            "8 GiB of nothing",
            &|| fs::File::create(name).and_then(|file| file.set_len(8 << 30)).is_ok(),
            "bytes; this program reads",
        ),
        ("hard link", &|| fs::hard_link(&precious, name).is_ok(), "2 names"),
    ];
    for (what, plant, found) in plants {
        fs::write(&precious, "precious, and no line feed").expect("a file");
        if !plant() {
            eprintln!("skip: {what}: only root can make it");
            continue;
        }
        check(found);
        assert_eq!(fs::read(&precious).expect("there"), b"precious, and no line feed", "{what}");
        assert!(!share.path("nothing").exists(), "{what}");
        match fs::symlink_metadata(name).expect("it is still there").is_dir() {
            true => fs::remove_dir(name).expect("removed"),
            false => fs::remove_file(name).expect("removed"),
        }
    }
}

#[test]
fn what_is_planted_as_the_journal_is_refused_in_time_and_not_written_to() {
    let share = Share::new();
    fs::create_dir(share.path("out")).expect("a folder");
    each_plant(&share, &share.path("out").join(JOURNAL), |found| {
        let run = share.seal("out");
        assert_eq!(run.status.code(), Some(1), "{}", run.stderr);
        assert!(run.stderr.contains(JOURNAL) && run.stderr.contains(found), "{}", run.stderr);
    });
    let stranger = share.path("out").join(JOURNAL);
    fs::write(&stranger, "").expect("a file");
    if chown(&stranger, Some(STRANGER), None).is_err() {
        eprintln!("skip: only root can give a file to another user");
    } else {
        let run = share.seal("out");
        assert_eq!(run.status.code(), Some(1), "{}", run.stderr);
        assert!(run.stderr.contains(&format!("belongs to user {STRANGER}")), "{}", run.stderr);
    }
    fs::remove_file(&stranger).expect("removed");
    assert_eq!(share.seal("out").status.code(), Some(0));
    share.assert_opens("out");
}

#[test]
fn what_is_planted_as_a_journal_in_a_source_does_not_hang_its_reader() {
    let share = Share::new();
    assert_eq!(share.seal("sealed").status.code(), Some(0));
    let journal = share.path("sealed").join(JOURNAL);
    fs::rename(&journal, share.path("kept")).expect("a name");
    each_plant(&share, &journal, |found| {
        // A reader accepts a journal with several hard links: a key authenticates its content.
        let found = if found == "2 names" { "no header of a sealed folder" } else { found };
        let verify = ["seal", "verify", "folder", "sealed", "--key-file", "key"];
        for run in [share.unseal("sealed", "opened"), share.run(&verify)] {
            assert_eq!(run.status.code(), Some(1), "{}", run.stderr);
            assert!(run.stderr.contains(JOURNAL) && run.stderr.contains(found), "{}", run.stderr);
        }
        assert!(!share.path("opened").exists());
    });
}

#[test]
fn a_header_that_asks_for_terabytes_costs_nothing() {
    refuse_absurd_costs();
}

/// Asserts that headers are refused whose cost would use minutes or all memory; returns the longest
/// time of a refusal.
#[track_caller]
fn refuse_absurd_costs() -> Duration {
    let share = Share::new();
    let mut took_max = Duration::ZERO;
    let zeros = "00".repeat(16);
    fs::create_dir(share.path("sealed")).expect("a folder");
    for (memory_kib, passes, lanes) in [
        (u32::MAX, 1, 1),
        (u32::MAX, u32::MAX, u32::MAX),
        (1 << 20, 64, 1),
        (64, u32::MAX, 1),
        (1 << 20, 2, 16_777_215),
    ] {
        let header = format!(
            "0123456789abcdef {{\"header\":{{\"pagewire_seal\":1,\"form\":\"gcm\",\"iv\":null,\
             \"argon2id\":{{\"memory_kib\":{memory_kib},\"passes\":{passes},\"lanes\":{lanes},\
             \"salt\":\"{zeros}\"}},\"salt\":\"{zeros}\",\"key_check\":\"{zeros}{zeros}\"}}}}\n"
        );
        fs::write(share.path("sealed").join(JOURNAL), header).expect("a file");
        let passphrase = ["--passphrase-file", "key"];
        for command in [
            &["unseal", "folder", "sealed", "opened"][..],
            &["seal", "verify", "folder", "sealed"],
            &["seal", "folder", "source", "sealed", "--form", "gcm"],
        ] {
            let all = [command, &passphrase].concat();
            let run = share.run(&all);
            assert_eq!(run.status.code(), Some(2), "{}", run.stderr);
            assert!(run.stderr.contains("more than this program pays"), "{}", run.stderr);
            took_max = took_max.max(run.took);
        }
    }
    took_max
}

#[test]
fn folders_swapped_for_links_during_a_run_lead_nowhere() {
    let share = Share::new();
    for number in 0..400 {
        fs::write(share.path(&format!("source/deep/{number}")), [7; 99]).expect("a file");
    }
    let victim = share.victim();
    let ended = AtomicBool::new(false);
    fs::create_dir_all(share.path("out/deep")).expect("a folder");
    symlink(share.path("victim/deep"), share.path("trap")).expect("a link");
    thread::scope(|scope| {
        scope.spawn(|| {
            // The exchange is atomic, so the name always refers to one of the two.
            let (deep, trap) = (share.path("out/deep"), share.path("trap"));
            while !ended.load(Ordering::Relaxed) {
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(CWD, &deep, CWD, &trap, exchange).expect("exchanged");
                thread::sleep(Duration::from_micros(300));
            }
        });
        for _ in 0..tries(8) {
            let force = ["--key-file", "key", "--force", "--sync", "none"];
            let run = share.run(&[&["seal", "folder", "source", "out"][..], &force].concat());
            // Files of the swapped folder may fail; none of the victim's is touched.
            assert!(matches!(run.status.code(), Some(0 | 1)), "{}: {}", run.status, run.stderr);
        }
        ended.store(true, Ordering::Relaxed);
    });
    assert!(share.victim() == victim);
}

#[test]
fn killed_again_and_again_beside_planted_names_it_ends_whole() {
    let share = Share::new();
    for number in 0..300 {
        let bytes = vec![number as u8; number * 499];
        fs::write(share.path(&format!("source/deep/{number}")), bytes).expect("a file");
    }
    let (victim, mut random) = (share.victim(), Random::seeded(19));
    let mut command = Command::new(PROGRAM);
    command.current_dir(share.0.path()).args(["seal", "folder", "source", "out"]);
    command.args(["--key-file", "key", "--threads", "1", "--sync", "none"]).stderr(Stdio::null());
    command.stdout(Stdio::null());
    let working = |share: &Share| -> Vec<String> {
        fs::read_dir(share.0.path())
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
            .filter(|name| name.starts_with(".pagewire-unfinished-seal-out."))
            .filter(|name| !share.path(name).is_symlink())
            .collect()
    };
    let (mut resumed, deadline) = (0, Instant::now() + LONG);
    while resumed < KILLS {
        let mut run = command.spawn().expect("the program under test starts");
        while working(&share).is_empty() && run.try_wait().expect("it is our child").is_none() {
            thread::sleep(LOOK_EVERY);
        }
        // Each kill is a little later than the one before.
        thread::sleep(Duration::from_millis(resumed * KILL_LATER_MS));
        // It may have ended.
        let _ = run.kill();
        run.wait().expect("it is our child");
        let left = working(&share);
        assert!(left.len() <= 1, "each run goes on in the one before: {left:?}");
        resumed += left.len() as u64;
        if left.is_empty() {
            assert!(Instant::now() < deadline, "{resumed} kills came in time, not {KILLS}");
            // The run ended before it was observed: repeat from the beginning.
            let _ = fs::remove_dir_all(share.path("out"));
        }
        let digits = format!("{:016x}", random.next());
        let planted = share.path(&format!(".pagewire-unfinished-seal-out.{digits}"));
        symlink("victim", planted).expect("a link");
    }
    let run = share.seal("out");
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    share.assert_opens("out");
    assert!(share.victim() == victim);
}

/// Returns a share whose source is a film, and `hls` with its options.
fn films() -> (Share, [&'static str; 6]) {
    let share = Share::new();
    fs::create_dir(share.path("films")).expect("a folder");
    fs::write(share.path("films/film.ts"), CLIP).expect("a film");
    (share, ["seal", "hls", "films", "out", "--key-file", "key"])
}

#[test]
fn what_is_planted_for_a_film_is_neither_followed_nor_waited_for() {
    let (share, seal) = films();
    let victim = share.victim();
    // Working folders of a film, in this version and in 0.1.
    fs::create_dir(share.path("out")).expect("a folder");
    let digits = "0".repeat(16);
    let planted = [
        ".pagewire-unfinished-film-film".to_owned(),
        format!(".pagewire-unfinished-film-film.{digits}"),
    ];
    for name in &planted {
        symlink("../victim", share.path("out").join(name)).expect("a link");
    }
    let run = share.run(&seal);
    assert_eq!(run.status.code(), Some(0), "{}", run.stderr);
    assert!(share.victim() == victim);
    for name in &planted {
        assert!(run.stderr.contains(&format!("{name}: a symlink")), "{}", run.stderr);
        fs::remove_file(share.path("out").join(name)).expect("it is still the link");
    }
    let opened = share.run(&["unseal", "hls", "out/film", "opened.ts", "--key-file", "key"]);
    assert_eq!(opened.status.code(), Some(0), "{}", opened.stderr);
    assert!(fs::read(share.path("opened.ts")).expect("a film") == CLIP);

    // Its journal, and a segment that a reader opens.
    for (name, command) in [
        ("out/film/.pagewire-film", &seal[..]),
        ("out/film/00001.ts", &["unseal", "hls", "out/film", "second.ts", "--key-file", "key"]),
    ] {
        let (path, aside) = (share.path(name), share.path("aside"));
        fs::rename(&path, &aside).expect("a name");
        for plant in ["pipe", "link"] {
            match plant {
                "pipe" => mknodat(CWD, &path, FileType::Fifo, Mode::RUSR, 0).expect("a pipe"),
                _ => symlink("/dev/zero", &path).expect("a link"),
            }
            let run = share.run(command);
            assert_eq!(run.status.code(), Some(1), "{}", run.stderr);
            assert!(run.stderr.contains(name), "{plant}: {}", run.stderr);
            fs::remove_file(&path).expect("removed");
        }
        fs::rename(&aside, &path).expect("a name");
    }
}

#[test]
fn films_are_sealed_into_a_target_by_one_run_at_a_time() {
    let (share, seal) = films();
    fs::create_dir(share.path("out")).expect("a folder");
    let other = fs::File::open(share.path("out")).expect("a folder");
    let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    rustix::fs::flock(&other, lock).expect("nobody else has it");
    let run = share.run(&seal);
    assert_eq!(run.status.code(), Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("another run is at work"), "{}", run.stderr);
    assert_eq!(fs::read_dir(share.path("out")).expect("a folder").count(), 0);
    drop(other);
    assert_eq!(share.run(&seal).status.code(), Some(0));
}

pub(crate) const JOURNAL: &str = ".pagewire-seal";
/// A film that is embedded in the program.
static CLIP: &[u8] = include_bytes!("../../assets/clip.ts");
const KILLS: u64 = 6;
const LOOK_EVERY: Duration = Duration::from_millis(1);
const KILL_LATER_MS: u64 = 4;
/// User ID of `nobody`.
const STRANGER: u32 = 65_534;
/// Guards against runs that hang.
pub(crate) const RUN_WAIT: Duration = Duration::from_secs(60);
const LONG: Duration = Duration::from_secs(120);

mod timed {
    use super::*;

    /// Paying the cost by mistake takes longer.
    const COST_WAIT: Duration = Duration::from_secs(10);

    #[test]
    fn a_header_that_asks_for_terabytes_is_refused_at_once() {
        let took_max = refuse_absurd_costs();
        assert!(took_max < COST_WAIT, "{took_max:?}");
    }
}
