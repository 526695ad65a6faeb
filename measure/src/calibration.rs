// SPDX-License-Identifier: MIT OR Apache-2.0
//! CPU cost of paths on this machine, measured once and kept: send paths for `serve`, receive
//! paths for `receive`.
//!
//! The program starts itself again in a network namespace of its own and times them for at most two
//! seconds. The result is kept under a key of all that it depends on: the machine, its kernel, the
//! program, the rights of the user, and for sending the interface and its UDP segmentation. Where
//! no namespace can be made (an unprivileged container) nothing is kept; server and recorder use
//! their default order and log that.
//!
//! A kept file is used when it belongs to this user, no other user may write it, and its content is
//! plausible; any other file is ignored. A new file is written under a temporary name and renamed,
//! so a symbolic link at its place is replaced, never followed. Processes of a user that start
//! together measure one after the other, and those behind the first find its result.
//!
//! Sources: [`crate::calibrate()`], [`crate::calibrate_receiving()`]; machine-id(5); XDG Base
//! Directory Specification 0.8.
//! Does not notice that a machine got slower; the caller can request a new measurement.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use paths::segments_udp;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use crate::calibrate::{Rank, has_engine};
use crate::error::Error;
use crate::host::{COMMIT, HostFacts};
use crate::inside::inside;

/// Ranks of paths and the facts that they depend on.
#[derive(Serialize, Deserialize)]
pub struct Calibration {
    /// All facts that the ranks depend on, a line each.
    pub key: String,
    /// Cheapest first, refused ones last.
    pub ranks: Vec<Rank>,
    /// True when it was read from the file, false when it was measured now.
    #[serde(skip)]
    pub kept: bool,
}

/// Direction and device that a calibration is for.
pub enum Subject {
    /// Paths from file to socket.
    Sending {
        /// The interface that leads to the peers.
        interface: String,
        /// True when the interface cuts super-packets of UDP itself.
        segments: bool,
    },
    /// Paths from socket to memory.
    Receiving,
}

impl Subject {
    /// Returns the interface that leads to the peers of a server at `address`.
    pub fn of(address: IpAddr) -> Subject {
        let interface = interface_of(address).unwrap_or_else(|| "lo".to_owned());
        // An interface without this information counts as one that does not segment.
        let segments = segments_udp(&interface).unwrap_or(false);
        Subject::Sending { interface, segments }
    }

    /// Returns the subject of a named interface.
    ///
    /// # Errors
    /// [`Error::Caller`]: no such interface.
    pub fn named(interface: &str) -> Result<Subject, Error> {
        match segments_udp(interface) {
            Ok(segments) => Ok(Subject::Sending { interface: interface.to_owned(), segments }),
            Err(errno) => Err(Error::Caller {
                what: format!("interface {interface}"),
                found: format!("{errno}; write a name that `ip link` lists"),
            }),
        }
    }

    /// Returns a description for the user.
    pub fn title(&self) -> String {
        match self {
            Subject::Sending { interface, segments } => {
                let by = if *segments { "the device" } else { "the kernel" };
                format!("interface {interface}, UDP segmented by {by}")
            }
            Subject::Receiving => "receiving, both ends on one core".to_owned(),
        }
    }

    /// Returns the program's arguments for this measurement.
    fn arguments(&self) -> &'static [&'static str] {
        match self {
            Subject::Sending { segments: true, .. } => &["paths", "--segments", "yes"],
            Subject::Sending { segments: false, .. } => &["paths", "--segments", "no"],
            Subject::Receiving => &["paths", "--receive"],
        }
    }

    /// Starts the program again in a network namespace of its own, which times the paths.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where no network namespace can be made, [`Error::Host`] where the
    /// measurement fails.
    pub fn measure(&self) -> Result<Vec<Rank>, Error> {
        let text = inside(self.arguments())?;
        serde_json::from_str(&text).map_err(|error| Error::Host {
            what: "the calibration's answer".to_owned(),
            found: error.to_string(),
        })
    }

    fn key(&self) -> String {
        let host = HostFacts::here();
        let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let setting = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        // The user's rights decide which paths work.
        let limits = setting("/proc/self/limits");
        let locked = limits.lines().find(|line| line.starts_with("Max locked memory"));
        let status = setting("/proc/self/status");
        let user = status.lines().find(|line| line.starts_with("Uid:"));
        let rights = [
            user.unwrap_or("").split_whitespace().nth(1).unwrap_or("").to_owned(),
            locked.unwrap_or("").split_whitespace().nth(3).unwrap_or("").to_owned(),
            setting("/proc/sys/kernel/io_uring_disabled"),
            if has_engine() { "engine" } else { "" }.to_owned(),
        ];
        format!(
            "machine {}\nkernel {}\nprocessor {} ({} cores)\n{}\nprogram {} {}\nuser {}\n",
            machine.trim(),
            host.kernel,
            host.processor,
            host.cores,
            self.title(),
            env!("CARGO_PKG_VERSION"),
            COMMIT,
            rights.join(" ")
        )
    }
}

impl Calibration {
    /// Returns the kept calibration, or measures one now and keeps it; always measures if `again`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where no network namespace can be made, [`Error::Host`] where the
    /// measurement fails.
    pub fn of(subject: &Subject, again: bool) -> Result<Calibration, Error> {
        let key = subject.key();
        let file = file(&key);
        let kept = || file.as_ref().filter(|_| !again).and_then(|file| read(file, &key));
        if let Some(kept) = kept() {
            return Ok(kept);
        }
        let _turn = file.as_ref().and_then(|file| turn(file, TURN_WAIT));
        // The process before this one may have measured the same.
        if let Some(kept) = kept() {
            return Ok(kept);
        }
        let ranks = subject.measure()?;
        let measured = Calibration { key, ranks, kept: false };
        if let Some(file) = file
            && let Err(error) = write(&file, &measured)
        {
            let file = file.display();
            tracing::warn!("calibration {file}: {error}; it is measured again at the next start");
        }
        Ok(measured)
    }

    fn is_plausible(&self) -> bool {
        self.ranks.iter().all(Rank::is_plausible)
            && self.ranks.iter().any(|rank| rank.cpu_s_per_gb.is_some())
    }
}

/// Reads the calibration kept under this key; ignores a damaged file and one of another user.
fn read(file: &Path, key: &str) -> Option<Calibration> {
    // O_NONBLOCK: opening a FIFO must not block.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(file).ok()?;
    let found = opened.metadata().ok()?;
    let is_own = found.uid() == rustix::process::geteuid().as_raw();
    if !found.is_file() || !is_own || found.mode() & OTHERS_WRITE != 0 {
        return None;
    }
    let mut text = String::new();
    opened.take(KEPT_BYTES_MAX).read_to_string(&mut text).ok()?;
    let kept: Calibration = serde_json::from_str(&text).ok()?;
    (kept.key == key && kept.is_plausible()).then_some(Calibration { kept: true, ..kept })
}

fn write(file: &Path, measured: &Calibration) -> io::Result<()> {
    let folder = file.parent().expect("it has a folder");
    fs::create_dir_all(folder)?;
    let mut beside = tempfile::NamedTempFile::new_in(folder)?;
    let text = serde_json::to_string_pretty(measured).expect("plain data");
    beside.write_all(text.as_bytes())?;
    beside.as_file().sync_all()?;
    beside.persist(file).map(drop).map_err(|error| error.error)
}

/// Waits until no other process of this user measures: two at a time would disturb each other. The
/// turn, a lock of the folder, ends with its file; `None` where there is no folder, or another
/// process holds it far too long.
fn turn(file: &Path, wait: Duration) -> Option<File> {
    let folder = file.parent().expect("it has a folder");
    fs::create_dir_all(folder).ok()?;
    let turn = File::open(folder).ok()?;
    let deadline = Instant::now() + wait;
    while turn.try_lock().is_err() {
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(LOOK_EVERY);
    }
    Some(turn)
}

/// Returns the folder of kept calibrations in the user's cache folder, independent of the server's
/// `--cache`; `None` for a user without a home.
pub fn calibration_folder() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(cache.join("pagewire").join("calibration"))
}

/// Returns the file for `key`.
fn file(key: &str) -> Option<PathBuf> {
    // FNV-1a gives the same number in every build; the file holds the full key.
    let number = key.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    Some(calibration_folder()?.join(format!("{number:016x}.json")))
}

/// Returns the device with that address; for the unspecified address, that of the default route.
fn interface_of(address: IpAddr) -> Option<String> {
    let asked: &[&str] = match address.is_unspecified() {
        true => &["-json", "route", "show", "default"],
        false => &["-json", "address", "show", "to", &address.to_string()],
    };
    let output = Command::new("ip").args(asked).output().ok()?;
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    // `address show to` lists other devices as empty objects.
    let devices = found
        .as_array()?
        .iter()
        .filter_map(|entry| (entry["dev"].as_str()).or_else(|| entry["ifname"].as_str()));
    devices.map(str::to_owned).next()
}

/// Ten times the duration of a measurement.
const TURN_WAIT: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Some dozens of ranks occupy a few kilobytes.
const KEPT_BYTES_MAX: u64 = 1 << 20;
/// chmod(2): group or others may write.
const OTHERS_WRITE: u32 = 0o022;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn made() -> Calibration {
        let rank = Rank {
            transport: "rtp".to_owned(),
            member: "mmap_gso".to_owned(),
            burst_packets: 10,
            cpu_s_per_gb: Some(0.4),
            refused: None,
        };
        Calibration { key: "here".to_owned(), ranks: vec![rank], kept: false }
    }

    #[test]
    fn a_calibration_of_somebody_else_is_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        write(&at("own"), &made()).unwrap();
        assert!(read(&at("own"), "here").is_some());
        symlink(at("own"), at("link")).unwrap();
        assert!(read(&at("link"), "here").is_none(), "a link is not followed");
        let (pipe, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), pipe, mode, 0).unwrap();
        assert!(read(&at("pipe"), "here").is_none(), "and a pipe not waited for");
        write(&at("shared"), &made()).unwrap();
        fs::set_permissions(at("shared"), fs::Permissions::from_mode(0o666)).unwrap();
        assert!(read(&at("shared"), "here").is_none(), "others may have written it");
        // A link at the name is replaced, and its target stays unchanged.
        fs::write(at("other"), "another's").unwrap();
        symlink(at("other"), at("planted")).unwrap();
        write(&at("planted"), &made()).unwrap();
        assert!(read(&at("planted"), "here").is_some());
        assert_eq!(fs::read_to_string(at("other")).unwrap(), "another's");
    }

    #[test]
    fn a_calibration_that_was_not_measured_is_as_none() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kept.json");
        let is_read = |forge: fn(&mut Calibration)| {
            let mut forged = made();
            forge(&mut forged);
            write(&file, &forged).unwrap();
            read(&file, "here").is_some()
        };
        assert!(is_read(|_| {}));
        assert!(!is_read(|made| made.ranks.clear()));
        assert!(!is_read(|made| made.ranks[0].cpu_s_per_gb = None), "nothing was measured");
        assert!(!is_read(|made| made.ranks[0].cpu_s_per_gb = Some(-1.0)));
        assert!(!is_read(|made| made.ranks[0].member = "no such path".to_owned()));
        assert!(!is_read(|made| made.ranks[0].transport = "tcp".to_owned()));
        assert!(!is_read(|made| made.ranks[0].refused = Some("\u{1b}[2J".to_owned())));
        let mut text = serde_json::to_string(&made()).unwrap();
        text += &" ".repeat(KEPT_BYTES_MAX as usize);
        fs::write(&file, &text).unwrap();
        let kept = read(&file, "here");
        assert!(kept.is_some(), "what follows is not read");
        fs::write(&file, format!("{}{text}", &text[text.len() - (1 << 20)..])).unwrap();
        assert!(read(&file, "here").is_none(), "a mebibyte is read at most");
    }

    #[test]
    fn a_kept_calibration_is_for_its_key_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kept.json");
        let made = made();
        fs::write(&file, serde_json::to_string(&made).unwrap()).unwrap();
        let found = read(&file, "here").unwrap();
        assert!(found.kept && found.ranks == made.ranks);
        assert!(read(&file, "elsewhere").is_none());
        fs::write(&file, "{ half a fi").unwrap();
        assert!(read(&file, "here").is_none());
    }

    #[test]
    fn one_measures_at_a_time_and_nobody_waits_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("new").join("kept.json");
        let first = turn(&file, Duration::ZERO).expect("nobody measures");
        assert!(turn(&file, Duration::ZERO).is_none(), "the first measures");
        drop(first);
        assert!(turn(&file, Duration::ZERO).is_some());
    }

    #[test]
    fn loopback_is_found_by_its_address() {
        match interface_of(IpAddr::from([127, 0, 0, 1])) {
            Some(name) => assert_eq!(name, "lo"),
            None => eprintln!("skip: ip: not installed; apt install iproute2"),
        }
        let subject = Subject::of(IpAddr::from([127, 0, 0, 1]));
        assert!(subject.key().contains("interface lo, "), "{}", subject.key());
    }

    #[test]
    fn an_unknown_interface_is_refused_with_what_to_write() {
        let refusal = Subject::named("no-such-device").err().unwrap().to_string();
        assert_eq!(refusal, "interface no-such-device: ENODEV; write a name that `ip link` lists");
    }
}
