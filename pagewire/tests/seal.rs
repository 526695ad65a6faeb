// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire seal folder` as a program: killed at any moment, on a full disk, stopped; and its
//! files opened by `openssl enc`.
//!
//! The moments of the kills are random; the seed is printed. No test here asserts a speed.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime};

const PROGRAM: &str = env!("CARGO_BIN_EXE_pagewire");
const JOURNAL: &str = ".pagewire-seal";
const IV: &str = "303132333435363738396162636465ff";
const CBC: &str = "aes-256-cbc";
/// For each way to make a target.
const KILLS: usize = 10;
const WAIT: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A source to be sealed, and room beside it.
struct Place {
    folder: tempfile::TempDir,
    key: String,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let key: String = (0..32).map(|byte| format!("{:02x}", byte * 7)).collect();
        fs::write(folder.path().join("key"), &key).unwrap();
        fs::create_dir_all(folder.path().join("source/deep/er")).unwrap();
        Self { folder, key }
    }

    /// Creates small files and large ones, whose sealing lasts long enough to be killed.
    fn library() -> Self {
        let place = Self::new();
        for number in 0..100 {
            place.put(&format!("deep/small {number}"), number * 44);
        }
        for number in 0..12 {
            place.put(&format!("deep/er/large {number}"), 200_000 + number * 77_777);
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, name: &str, bytes: usize) {
        // Eight bytes at a time, as an unoptimized build needs.
        let words =
            (0..bytes.div_ceil(8)).flat_map(|at| (at * at / 3 + at / 5 + bytes).to_le_bytes());
        let mut noise: Vec<u8> = words.collect();
        noise.truncate(bytes);
        fs::write(self.path("source").join(name), noise).unwrap();
    }

    fn seal(&self, target: &str, options: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(["seal", "folder"]).arg(self.path("source")).arg(self.path(target));
        command.arg("--key-file").arg(self.path("key")).args(options);
        command.env("HOME", self.folder.path()).stdin(Stdio::null());
        command
    }

    /// Seals and asserts that all files are done.
    fn sealed(&self, target: &str, options: &[&str]) {
        let output = self.seal(target, options).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    }

    /// Asserts that no unfinished file is left, except the one named `except`.
    fn assert_clean(&self) {
        let left: Vec<_> = contents(self.folder.path())
            .into_keys()
            .filter(|name| name.contains("unfin"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Returns every file below a folder except its journal.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut contents = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.file_name().unwrap() != JOURNAL {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                contents.insert(name, fs::read(path).unwrap());
            }
        }
    }
    contents
}

/// Returns a file as `openssl enc -d` opens it; `None` where there is no openssl.
fn opened(cipher: &str, key: &str, iv: &str, sealed: &[u8]) -> Option<Vec<u8>> {
    use std::io::Write;
    let mut openssl = Command::new("openssl")
        .args(["enc", "-d", &format!("-{cipher}"), "-K", key, "-iv", iv])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut stdin = openssl.stdin.take().unwrap();
    let bytes = sealed.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&bytes));
    let output = openssl.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(output.status.success(), "openssl enc -d {cipher}");
    Some(output.stdout)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Random enough to choose moments.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        println!("seed {}", now.as_nanos() as u64);
        Self(now.as_nanos() as u64 | 1)
    }

    fn below(&mut self, bound: Duration) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        bound.mul_f64((self.0 >> 11) as f64 / (1_u64 << 53) as f64)
    }
}

#[test]
fn killed_at_any_moment_and_run_again_it_makes_the_bytes_of_an_undisturbed_run() {
    assert_kills_leave_no_trace(|_| ());
}

#[test]
fn killed_at_any_moment_in_a_folder_that_is_there_it_makes_the_same_bytes_too() {
    assert_kills_leave_no_trace(|target| fs::create_dir(target).unwrap());
}

/// Kills runs into targets that `prepare` makes; a next run completes them.
#[track_caller]
fn assert_kills_leave_no_trace(prepare: fn(&Path)) {
    let place = Place::library();
    let options = ["--form", CBC, "--iv", IV, "--sync", "none"];
    place.sealed("warm", &options);
    let began = Instant::now();
    place.sealed("undisturbed", &options);
    let whole = began.elapsed();
    let right = contents(&place.path("undisturbed"));
    let mut dice = Dice::new();
    for kill in 0..KILLS {
        let target = format!("target {kill}");
        prepare(&place.path(&target));
        // Sometimes kills more than once before it may end.
        for _ in 0..=kill % 3 {
            let moment = dice.below(whole);
            kill_after(&place, &target, &options, |_| std::thread::sleep(moment));
            assert_whole(&place.path(&target), &right);
        }
        place.sealed(&target, &options);
        assert!(contents(&place.path(&target)) == right, "kill {kill}");
        fs::remove_dir_all(place.path(&target)).unwrap();
    }
    kill_at_work(&place, "last", &options, prepare, right.len());
    assert_whole(&place.path("last"), &right);
    place.sealed("last", &options);
    assert!(contents(&place.path("last")) == right);
    place.assert_clean();
}

/// Starts a run and kills it after `wait` has returned.
fn kill_after(place: &Place, target: &str, options: &[&str], wait: impl FnOnce(&mut Child)) {
    let mut run = place.seal(target, options).stderr(Stdio::null()).spawn().unwrap();
    wait(&mut run);
    // It may have ended.
    let _ = run.kill();
    run.wait().unwrap();
}

/// Kills a run that has begun and is not done with so many files; where the run was quicker, starts
/// over.
#[track_caller]
fn kill_at_work(place: &Place, target: &str, options: &[&str], prepare: fn(&Path), files: usize) {
    let deadline = Instant::now() + WAIT;
    let folder = place.path(target);
    // The working folder of a target that does not exist yet.
    let hidden = format!(".pagewire-unfinished-seal-{target}.");
    let has_hidden = || {
        let mut names = fs::read_dir(place.folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.any(|name| name.starts_with(&hidden))
    };
    loop {
        prepare(&folder);
        kill_after(place, target, options, |run| {
            let has_begun = || has_hidden() || folder.join("deep").exists();
            while !has_begun() && run.try_wait().unwrap().is_none() {
                assert!(Instant::now() < deadline, "the run neither begins nor ends");
                std::thread::sleep(LOOK_EVERY);
            }
        });
        if has_hidden() || folder.exists() && contents(&folder).len() < files {
            return;
        }
        assert!(Instant::now() < deadline, "no kill came in time");
        fs::remove_dir_all(&folder).unwrap();
    }
}

/// Asserts that each file present under its name is complete.
#[track_caller]
fn assert_whole(target: &Path, right: &BTreeMap<String, Vec<u8>>) {
    if target.exists() {
        let seen = contents(target);
        for (name, bytes) in seen.iter().filter(|(name, _)| !name.contains("unfinished")) {
            assert!(right[name] == *bytes, "{name} is there and not whole");
        }
    }
}

#[test]
fn killed_with_random_ivs_every_file_opens_all_the_same() {
    let place = Place::library();
    let options = ["--form", CBC, "--sync", "none"];
    let began = Instant::now();
    place.sealed("undisturbed", &options);
    let whole = began.elapsed();
    let mut dice = Dice::new();
    let moment = dice.below(whole);
    kill_after(&place, "target", &options, |_| std::thread::sleep(moment));
    place.sealed("target", &options);
    let sealed = contents(&place.path("target"));
    let source = contents(&place.path("source"));
    assert!(sealed.keys().eq(source.keys()));
    for (name, bytes) in source.iter().step_by(9) {
        let (iv, ciphertext) = sealed[name].split_at(16);
        let Some(plain) = opened("aes-256-cbc", &place.key, &hex(iv), ciphertext) else {
            eprintln!("skip: openssl enc -d: no openssl program here");
            return;
        };
        assert!(plain == *bytes, "{name}");
    }
}

#[test]
fn openssl_opens_what_was_sealed_with_every_key_length() {
    let place = Place::new();
    for bytes in [0, 1, 15, 16, 65_535, 65_536, 65_537, 300_000] {
        place.put(&format!("{bytes}"), bytes);
    }
    for (cipher, digits) in [("aes-128-cbc", 32), ("aes-192-cbc", 48), ("aes-256-cbc", 64)] {
        let key = &place.key[..digits];
        fs::write(place.path("key"), key).unwrap();
        place.sealed(&format!("{cipher} given"), &["--form", cipher, "--iv", IV]);
        place.sealed(&format!("{cipher} random"), &["--form", cipher]);
        let given = contents(&place.path(&format!("{cipher} given")));
        let random = contents(&place.path(&format!("{cipher} random")));
        for (name, bytes) in contents(&place.path("source")) {
            let Some(plain) = opened(cipher, key, IV, &given[&name]) else {
                eprintln!("skip: openssl enc -d: no openssl program here");
                return;
            };
            assert!(plain == bytes, "{cipher} {name}");
            let (iv, ciphertext) = random[&name].split_at(16);
            assert!(opened(cipher, key, &hex(iv), ciphertext).unwrap() == bytes);
        }
    }
}

#[test]
fn a_full_disk_fails_the_files_that_do_not_fit_and_a_rerun_does_them() {
    let place = Place::new();
    for number in 0..40 {
        place.put(&format!("{number}"), 200_000);
    }
    let disk = place.path("disk");
    fs::create_dir(&disk).unwrap();
    let seal = |options: &str| {
        let at = |name: &str| place.path(name).display().to_string();
        let (source, key) = (at("source"), at("key"));
        format!("{PROGRAM} seal folder {source} {}/target --key-file {key} {options}", at("disk"))
    };
    let script = format!(
        "mount -t tmpfs -o size=4m none {disk} || {{ echo no mount; exit 9; }}\n\
         {first} 2>{errors}; echo first $?\n\
         find {disk} -name '.pagewire-unfinished*' | wc -l\n\
         find {disk}/target -type f ! -name '.*' -size 200016c | wc -l\n\
         find {disk}/target -type f ! -name '.*' | wc -l\n\
         mount -o remount,size=64m {disk}\n\
         {again}; echo again $?\n\
         cp -r {disk}/target {copy}\n",
        disk = disk.display(),
        errors = place.path("errors").display(),
        copy = place.path("copy").display(),
        first = seal(&format!("--form {CBC} --iv {IV}")),
        again = seal(&format!("--form {CBC} --iv {IV}")),
    );
    let output = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", &script])
        .env("HOME", place.folder.path())
        .output();
    let output = match output {
        Ok(output) if output.status.success() => output,
        Ok(output) => {
            eprintln!("skip: a full disk: no file system of its own here: {}", stderr(&output));
            return;
        }
        Err(error) => {
            eprintln!("skip: a full disk: unshare: {error}");
            return;
        }
    };
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = lines
        .lines()
        .filter(|line| line.trim().parse::<u32>().is_ok() || line.contains(' '))
        .collect();
    let number = |line: &str| line.trim().parse::<usize>().ok();
    let numbers: Vec<_> = lines.iter().filter_map(|line| number(line)).collect();
    assert!(lines.contains(&"first 1") && lines.contains(&"again 0"), "{lines:?}");
    let [unfinished, whole, all] = numbers[..] else { panic!("{lines:?}") };
    assert_eq!((unfinished, whole), (0, all), "what is there is whole");
    assert!((1..40).contains(&whole), "some fit: {whole}");
    let errors = fs::read_to_string(place.path("errors")).unwrap();
    let refused = errors.lines().filter(|line| line.contains("No space left on device")).count();
    assert_eq!(refused, 40 - whole, "{errors}");
    place.sealed("elsewhere", &["--form", CBC, "--iv", IV]);
    assert!(contents(&place.path("copy")) == contents(&place.path("elsewhere")));
}

#[test]
fn stopped_by_ctrl_c_it_leaves_nothing_half_and_goes_on_when_run_again() {
    let place = Place::library();
    let options = ["--form", CBC, "--iv", IV, "--sync", "none"];
    let began = Instant::now();
    place.sealed("undisturbed", &options);
    let whole = began.elapsed();
    fs::create_dir(place.path("target")).unwrap();
    let run = place.seal("target", &options).stderr(Stdio::piped()).spawn().unwrap();
    // A moment at which most runs are at work.
    std::thread::sleep(whole / 3);
    let pid = rustix::process::Pid::from_child(&run);
    // It may have ended already; then there is nothing to stop.
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
    let output = run.wait_with_output().unwrap();
    let right = contents(&place.path("undisturbed"));
    assert_whole(&place.path("target"), &right);
    let left = contents(&place.path("target")).keys().any(|name| name.contains("unfinished"));
    assert!(output.status.code().is_none() || !left, "it was asked to stop, not killed");
    // Done before the signal, stopped, or killed by it before the handler was installed.
    assert!(matches!(output.status.code(), Some(0 | 1) | None), "{}", stderr(&output));
    place.sealed("target", &options);
    assert!(contents(&place.path("target")) == right);
    place.assert_clean();
}

#[test]
fn the_exit_status_says_whose_fault_it_is_and_the_others_are_done() {
    let place = Place::new();
    place.put("book", 1000);
    std::os::unix::fs::symlink("book", place.path("source/link")).unwrap();
    let output = place.seal("target", &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let passed = "source/link: passed over: a symlink, which is not followed";
    assert!(stderr(&output).contains(passed), "{}", stderr(&output));
    let summary = String::from_utf8_lossy(&output.stdout);
    assert!(summary.starts_with("done: 1 file, 1.00 kB in "), "{summary}");
    assert!(summary.ends_with("; 1 file passed over\n"), "{summary}");
    assert!(place.path("target/book").exists());

    // An existing file that differs from the one to be written fails.
    fs::write(place.path("target/new"), "mine").unwrap();
    fs::write(place.path("target/newer"), "mine").unwrap();
    for name in ["new", "newer", "newest"] {
        place.put(name, 100);
    }
    let output = place.seal("target", &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).ends_with("2 failures; 1 file done, 1 before\n"),
        "{}",
        stderr(&output)
    );
    let output = place.seal("target", &[]).output().unwrap();
    let nothing = "2 failures; nothing new was done, 2 files before\n";
    assert!(stderr(&output).ends_with(nothing), "{}", stderr(&output));
    for name in ["source/new", "source/newer", "target/new", "target/newer"] {
        fs::remove_file(place.path(name)).unwrap();
    }

    fs::remove_file(place.path("source/link")).unwrap();
    for (options, says) in [
        (&["--form", "rot13"][..], "write one of gcm, aes-256-cbc"),
        (&["--form", "aes-128-cbc"], "was sealed as gcm; take the form gcm, or another folder"),
        (&["--iv", "12"], "--iv"),
        (&["--iv", IV], "leave it out"),
        (&["--memory", "4096"], "--memory"),
    ] {
        let output = place.seal("target", options).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(says), "{options:?}: {}", stderr(&output));
    }
    place.put("new", 5);
    fs::write(place.path("target/new"), b"somebody else's").unwrap();
    let output = place.seal("target", &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("replace it by force (--force)"), "{}", stderr(&output));
    assert_eq!(fs::read(place.path("target/new")).unwrap(), b"somebody else's");
    place.sealed("target", &["--force"]);
}

#[test]
fn gcm_is_taken_unless_another_form_is_named_and_a_folder_keeps_its_own() {
    let place = Place::new();
    place.put("book", 100_000);
    place.sealed("new", &[]);
    let header = fs::read_to_string(place.path("new").join(JOURNAL)).unwrap();
    assert!(header.contains("\"form\":\"gcm\""), "{header}");
    place.sealed("begun", &["--form", CBC]);
    let before = contents(&place.path("begun"));
    place.put("another", 5000);
    let output = place.seal("begun", &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let cure = "was sealed as aes-256-cbc; take the form aes-256-cbc, or another folder";
    assert!(stderr(&output).contains(cure), "{}", stderr(&output));
    assert!(contents(&place.path("begun")) == before, "nothing is touched");
    place.sealed("begun", &["--form", CBC]);
    // Both are opened and verified by the metadata in their folders.
    for target in ["new", "begun"] {
        for verb in [&["unseal", "folder"][..], &["seal", "verify", "folder"]] {
            let mut command = Command::new(PROGRAM);
            command.args(verb).arg(place.path(target)).arg("--key-file").arg(place.path("key"));
            if verb.len() == 2 {
                command.arg(place.path(&format!("{target} again")));
            }
            let output = command.stdin(Stdio::null()).output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{verb:?}: {}", stderr(&output));
        }
    }
    let again = contents(&place.path("begun again"));
    assert!(again == contents(&place.path("source")), "unsealed is the source");
}

#[test]
fn a_folder_of_another_form_is_named_before_the_length_of_the_key() {
    let place = Place::new();
    place.put("book", 1000);
    fs::write(place.path("key"), &place.key[..32]).unwrap();
    place.sealed("short", &["--form", "aes-128-cbc"]);
    let output = place.seal("short", &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(stderr(&output).contains("take the form aes-128-cbc"), "{}", stderr(&output));
}

#[test]
fn what_is_missing_is_named_with_what_to_do() {
    let place = Place::new();
    place.put("book", 1000);
    fs::create_dir(place.path("films")).unwrap();
    fs::write(place.path("films/film.ts"), include_bytes!("../assets/clip.ts")).unwrap();
    let run = |line: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(line.split(' ')).current_dir(place.folder.path()).stdin(Stdio::null());
        command.output().unwrap()
    };
    for line in [
        "seal hls films site --key-file key --keys keys",
        "seal folder source sealed --key-file key",
    ] {
        assert_eq!(run(line).status.code(), Some(0), "{line}");
    }
    fs::remove_dir_all(place.path("keys")).unwrap();
    let (there, key) = ("; name one that is there", "; a new key is made by: openssl rand -hex 32");
    for (line, code, what, cure) in [
        ("seal folder none t --key-file key", 1, "none: No such file", there),
        ("seal folder source/book t --key-file key", 1, "Not a directory", "; name a folder"),
        ("seal folder source t --key-file none", 2, "--key-file: none: No such file", key),
        ("seal folder source t --key-env NO_SUCH", 2, "NO_SUCH: no such env", "; set it, or name"),
        (
            "seal folder source t --passphrase-file none",
            2,
            "--passphrase-file: none: No such file",
            "or write the passphrase into it",
        ),
        ("seal folder source t", 2, "no terminal to ask for it", "; write --key-file"),
        ("seal hls none t --key-file key", 1, "none: No such file", there),
        ("seal hls films t --key-file none", 2, "--key-file: none: No such file", key),
        ("seal hls films t", 2, "--key-file: not given", "openssl rand -hex 32 > FILE"),
        ("seal hls source t --key-file key", 1, "no transport stream", "not called a transport"),
        ("unseal folder none t --key-file key", 1, "none: No such file", there),
        ("unseal hls none t --key-file key", 1, "none: No such file", there),
        ("unseal hls films t --key-file key", 1, "no media.m3u8", "; name a film's folder or"),
        (
            "unseal hls site t --keys keys",
            1,
            "film/0.key: no such key",
            "; name the folder into which",
        ),
        ("unseal hls site t", 2, "not given, and site is encrypted", "; give the key"),
        ("unseal epub none t --passphrase-file key", 1, "none: No such file", there),
        ("seal verify folder none --key-file key", 1, "none: No such file", there),
        ("seal verify hls site --source none --key-file key", 1, "none/film.ts: No such", there),
        ("seal verify epub none --passphrase-file key", 1, "none: No such file", there),
    ] {
        let output = run(line);
        let stderr = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{line}: {stderr}");
        assert!(stderr.contains(what) && stderr.contains(cure), "{line}: {stderr}");
    }
    let licence = "seal epub source t --passphrase-file key --certificate none --signing-key none \
                   --provider https://e.org --hint x --hint-url https://e.org \
                   --publication-url https://e.org/{name}";
    let stderr = stderr(&run(licence));
    let certificate = "--certificate: none: No such file or directory (os error 2); name one that \
                       is there; pagewire lcp keygen makes one";
    assert!(stderr.contains(certificate), "{stderr}");
}

#[test]
fn the_way_to_play_is_said_after_success_alone() {
    let place = Place::new();
    let clip = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/clip.ts");
    fs::write(place.path("other"), "a5".repeat(32)).unwrap();
    let run = |key: &str| {
        let mut command = Command::new(PROGRAM);
        command.args(["seal", "hls"]).arg(&clip).arg(place.path("films"));
        command.arg("--key-file").arg(place.path(key)).output().unwrap()
    };
    let names_command =
        |output: &Output| String::from_utf8_lossy(&output.stdout).contains("to play it: ");
    let output = run("key");
    assert!(output.status.success() && names_command(&output), "{}", stderr(&output));
    let output = run("other");
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        !names_command(&output) && stderr(&output).contains("is there already"),
        "{}",
        stderr(&output)
    );
}
