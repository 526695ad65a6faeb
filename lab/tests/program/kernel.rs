// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs `lab kernel` through the real program, with a checkout whose kernels are shell scripts:
//! parts found and missing, a guest that dies, one that hangs until Ctrl-C, and nothing left
//! behind.
//!
//! Real kernels take minutes to build; `make test-kernel` boots those.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use crate::{PROGRAM, folder, lab, read, stderr};

/// Makes a checkout whose User Mode Linux is this script; `$1` is the kernel's whole command line.
fn checkout(root: &Path, boot: &str) {
    let boot = format!(
        "kernel=\n\
         while [ \"$1\" != -- ]; do [ \"$1\" != --kernel-args ] || kernel=$2; shift; done\n\
         set -- \"$kernel\"\n{boot}"
    );
    for (name, text) in [
        ("kernel/uml/boot.sh", boot.as_str()),
        ("kernel/uml/build.sh", "echo linux=/bin/sh"),
        ("guest/build.sh", "echo guest=/bin/sh"),
        ("guest/root.sh", "mkdir \"$1\"; echo root=$1"),
    ] {
        script(&root.join(name), text);
    }
}

/// Writes a script in a process of its own. A process that another test starts meanwhile could
/// inherit a file that is being written here, which then cannot be executed (ETXTBSY).
fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut writer = Command::new("/bin/sh")
        .args(["-c", "cat > \"$1\" && chmod 755 \"$1\"", "sh"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    writer.stdin.take().unwrap().write_all(format!("#!/bin/sh\n{text}\n").as_bytes()).unwrap();
    assert!(writer.wait().unwrap().success(), "{}", path.display());
}

/// Reports two tested variants at boot, then runs one workload, a loop of fixed length.
const GUEST: &str = "case $1 in *test*)\n\
    echo '[ 0.1] pagewire_memcpy: stock cases=100 bad=0'\n\
    echo '[ 0.1] pagewire_memcpy: avx2 cases=100 bad=0';; esac\n\
    echo 'guest: begin tmpfs_read_256k'; sleep 0.02\n\
    i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done\n\
    echo 'guest: end-of tmpfs_read_256k bytes=1000000 calls=4'; sleep 0.02\n\
    echo 'guest: memcpy-sizes copy_chunk+0x2a/0x40 4096 7'\n\
    echo 'guest: end'";

#[test]
fn variants_of_a_kernel_have_their_costs_and_ratios() {
    let folder = folder();
    checkout(folder.path(), GUEST);
    let json = folder.path().join("kernel.json");
    let words = ["kernel", "--part", "memcpy", "--rounds", "2", "--tree"];
    let output = Command::new(PROGRAM)
        .args(words)
        .arg(folder.path())
        .args(["--variant", "avx2", "--json"])
        .arg(&json)
        .output()
        .expect("the program runs");
    assert!(output.status.success(), "{}", stderr(&output));
    let results = read(&json);
    let rows = results["rows"].as_array().unwrap();
    let samples = |member: &str, metric: &str| {
        let is = |row: &&Value| {
            row["member"] == member && row["metric"] == metric && row["published"].is_null()
        };
        let row = rows.iter().find(is).unwrap_or_else(|| panic!("no {metric} of {member}"));
        row["samples"].as_array().unwrap().len()
    };
    for member in ["stock", "avx2"] {
        assert_eq!(samples(member, "CPU cost"), 2);
        assert_eq!(samples(member, "relative to stock"), 2);
        assert_eq!(samples(member, "self-test, wrong"), 1);
    }
    assert_eq!(samples("copy_chunk+0x2a", "copies by caller"), 1);
    assert!(rows.iter().all(|row| row["member"] != "movsb"), "it was not asked for");
    let published = rows.iter().filter(|row| row["published"].is_string());
    assert!(published.count() >= 17, "tables 2 to 4 of the study");
}

#[test]
fn a_guest_that_dies_is_named_with_its_last_words() {
    let folder = folder();
    checkout(folder.path(), "echo 'Kernel panic - not syncing: no init'; exit 134");
    let tree = folder.path().to_str().unwrap();
    let output = lab(&["kernel", "--part", "memcpy", "--tree", tree]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = stderr(&output);
    let wanted = "self-test of memcpy in User Mode Linux: exit status: 134; Kernel panic - not";
    assert!(stderr.contains(wanted), "{stderr}");
}

#[test]
fn what_is_missing_is_what_the_script_says() {
    let folder = folder();
    checkout(folder.path(), "exit 1");
    let build = folder.path().join("kernel/uml/build.sh");
    fs::write(&build, "#!/bin/sh\necho 'uml: no flex; apt-get install flex' >&2; exit 1\n")
        .unwrap();
    let tree = folder.path().to_str().unwrap();
    let output = lab(&["kernel", "--part", "memcpy", "--tree", tree]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    let wanted = "uml/build.sh: exit status: 1; uml: no flex; apt-get install flex";
    assert!(text.contains(wanted), "{text}");
    // The scripts of this part are not in this checkout.
    let output = lab(&["kernel", "--part", "vectorise", "--tree", tree]);
    let text = stderr(&output);
    assert!(text.contains("kernel/vectorise/result.md: not in this checkout"), "{text}");
}

#[test]
fn ctrl_c_ends_a_guest_that_hangs() {
    let folder = folder();
    let pids = folder.path().join("pids");
    let boot = format!("sleep 600 & echo $! $$ > {}; sleep 600", pids.display());
    checkout(folder.path(), &boot);
    let mut child = Command::new(PROGRAM)
        .args(["kernel", "--part", "memcpy", "--tree"])
        .arg(folder.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let waited = Instant::now();
    let guests = loop {
        let text = fs::read_to_string(&pids).unwrap_or_default();
        if text.ends_with('\n') {
            break text;
        }
        assert!(waited.elapsed() < Duration::from_secs(60), "no guest was booted");
        std::thread::sleep(Duration::from_millis(20));
    };
    kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    for pid in guests.split_whitespace() {
        let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
        let gone = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(20));
            // A process that no parent has waited for may still exist as a zombie.
            let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
            test_kill_process(pid).is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))
        });
        assert!(gone, "{pid:?} is left");
    }
}

#[test]
fn what_is_asked_wrongly_is_told_what_to_write() {
    let empty = folder();
    let tree = empty.path().to_str().unwrap();
    for (arguments, code, wanted) in [
        (&["--variant", "mmx"][..], 2, "--variant mmx: no such memcpy; write one of stock, movsb"),
        (&["--part", "gpu"][..], 2, "--part gpu: no such part; write one of memcpy, vectorise"),
        (&["--tree", tree][..], 2, "no kernel/uml/boot.sh in it; name a checkout of pagewire"),
    ] {
        let output = lab(&[&["kernel"], arguments].concat());
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(wanted), "{arguments:?}: {}", stderr(&output));
    }
    let output = Command::new(PROGRAM).args(["kernel"]).current_dir("/").output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains("a checkout of pagewire, whose kernel/ it builds and boots"), "{text}");
    assert!(text.contains("name one by --tree"), "{text}");
    let help = lab(&["kernel", "--help"]);
    let shown = String::from_utf8_lossy(&help.stdout).into_owned();
    for option in ["--part", "--tree", "--variant", "--quick", "--rounds"] {
        assert!(shown.contains(option), "{shown}");
    }
}
