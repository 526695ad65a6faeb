// SPDX-License-Identifier: MIT OR Apache-2.0
//! Chromium without a window, with a profile of its own, which opens one page.
//!
//! Pages report to a port of the test, on loopback, which browsers allow to every page. Video plays
//! without a click.
//!
//! Sources: peter.sh/experiments/chromium-command-line-switches (switches). Does not use the
//! DevTools protocol: pages perform the steps themselves.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use tempfile::TempDir;

/// A running browser. Dropped, it is killed.
pub(crate) struct Browser {
    child: Child,
    /// Folder of all its files.
    folder: PathBuf,
}

impl Browser {
    /// Opens a page, with further switches; returns `None`, with the reason printed, where there is
    /// no Chromium.
    pub(crate) fn open(test: &str, url: &str, switches: &[&str]) -> Option<Browser> {
        let folder = private_folder();
        let mut command = Command::new("chromium");
        // It leaves folders there when it is killed.
        command.env("TMPDIR", folder.path());
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]);
        command.arg("--autoplay-policy=no-user-gesture-required").args(switches);
        command.arg(format!("--user-data-dir={}", folder.path().display())).arg(url);
        match command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
            Ok(child) => Some(Browser { child, folder: folder.keep() }),
            Err(error) => {
                eprintln!("skip: {test}: chromium: not installed: {error}");
                None
            }
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Its other processes end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // They may write for a moment longer.
        let deadline = Instant::now() + REMOVAL_LIMIT;
        while fs::remove_dir_all(&self.folder).is_err() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Returns a folder with a short path: Chromium has a socket in there, and aborts where its path
/// does not fit into a socket's address.
fn private_folder() -> TempDir {
    let below = env!("CARGO_TARGET_TMPDIR");
    let is_short = below.len() < FOLDER_BYTES_MAX;
    let folder = if is_short { TempDir::new_in(below) } else { TempDir::new() };
    folder.expect("a folder")
}

const REMOVAL_LIMIT: Duration = Duration::from_secs(60);
/// 108 bytes of an address, less `/.tmpXXXXXX/org.chromium.Chromium.XXXXXX/SingletonSocket`.
const FOLDER_BYTES_MAX: usize = 108 - 56;
