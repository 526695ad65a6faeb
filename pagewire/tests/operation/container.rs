// SPDX-License-Identifier: MIT OR Apache-2.0
//! The folder that becomes the container's image, entered as a container does: another root, a user
//! without privileges, no files of the host. Most machines that run tests have no podman, so the
//! image itself is not built here.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::process::Started;
use crate::harness::answer::http;
use crate::harness::clip::Clip;
use crate::harness::rtsp::Player;
use crate::harness::{PROGRAM, watchdog};

#[test]
fn files_of_the_image_are_enough_to_serve() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skip: container: needs root to enter another root folder");
        return;
    }
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a temporary folder");
    let root = folder.path().join("root");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/container/rootfs.sh");
    let mut command = Command::new(script);
    let made = watchdog::run(command.arg(PROGRAM).arg(&root), LIMIT);
    made.expect("bash is there").succeeded();
    let names = |path: PathBuf| {
        let found = fs::read_dir(path).expect("it is made").filter_map(Result::ok);
        found.map(|entry| entry.file_name()).collect::<Vec<_>>()
    };
    assert_eq!(names(root.join("usr/bin")), ["pagewire"], "no shell, no other program");
    fs::write(root.join("media/film.ts"), Clip::of_seconds(31, 2).bytes()).expect("room for it");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("it is ours");

    // A container has these two from the host; here they are in a mount namespace that ends with
    // it.
    let script = "mount -t proc proc \"$0/proc\" && mount --rbind /dev \"$0/dev\" && \
        exec chroot --userspec=65532:65532 \"$0\" /usr/bin/pagewire \"$@\"";
    let unshare = ["--mount", "--propagation", "private"];
    let can = watchdog::run(Command::new("unshare").args(unshare).arg("true"), LIMIT);
    if !can.as_ref().is_ok_and(|outcome| outcome.status.success()) {
        eprintln!("skip: container: no mount namespace: {can:?}");
        return;
    }
    let mut command = Command::new("unshare");
    command.args(unshare).args(["sh", "-c", script]).arg(&root).args(["serve", "/media"]);
    command.args(["--rtsp", "127.0.0.1:0", "--http", "127.0.0.1:0", "--cache", "/cache"]);
    command.args(["--path", "mmap_gso"]);
    let server = Started::by(command.stderr(Stdio::null()));
    let mut player = Player::set_up(server.rtsp, "film.ts");
    player.play();
    player.hear("it plays", |heard| heard.packets.len() > 10);
    assert_eq!(http(server.http, "GET", "/film.ts/master.m3u8").status, 200);
    assert!(!names(root.join("cache")).is_empty(), "plans are kept");
}

const LIMIT: Duration = Duration::from_secs(60);
