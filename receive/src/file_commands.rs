// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a program with each complete file of a camera (`on_file`).
//!
//! No shell is involved: `{file}` and `{camera}` are filled in within an argument, and the program
//! finds both in its environment, as `PAGEWIRE_FILE` and `PAGEWIRE_CAMERA`. Its input is empty, and
//! its output goes to the standard error of the recorder. The passwords of cameras are taken from
//! its environment. The files of a camera are handed over one after the other, those of all cameras
//! to [`RUNNING_MAX`] programs at once. A program that runs for longer than [`TIME_MAX`] is killed
//! with its process group. A file waits for at most [`WAITING_MAX`] others of its camera; what is
//! beyond is skipped and counted, as are those left when the recorder ends. While a file waits or
//! is being handled, it is not deleted.
//!
//! Costs a process for each file.
//!
//! Sources: execve(2), setpgid(2), kill(2). Does not repeat a program that failed, nor end one that
//! still runs when the recorder is killed.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use recordings::CameraFiles;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::Error;

/// Programs of the cameras that have one.
pub(crate) struct FileCommands {
    /// A queue for each camera; `None` without a program.
    queues: Vec<Option<Sender<PathBuf>>>,
    busy: BusyFiles,
    /// Files of each camera whose program failed or was not run.
    failed: Vec<Arc<AtomicU64>>,
    thread: Option<CommandThread>,
}

/// Files that wait for a program, or are handled by one, and the indices of their cameras.
#[derive(Debug, Clone, Default)]
struct BusyFiles(Arc<Mutex<HashMap<PathBuf, usize>>>);

/// The program of a camera.
struct FileCommand {
    camera: String,
    /// The program and its arguments.
    words: Vec<String>,
    busy: BusyFiles,
    running: Arc<Semaphore>,
    failed: Arc<AtomicU64>,
}

impl FileCommands {
    /// Starts the thread that runs the programs, if a camera has one. Each camera comes with its
    /// count of files whose program failed or was not run.
    ///
    /// # Errors
    /// Host: the thread or its executor is refused.
    pub(crate) fn start<'a>(
        cameras: impl Iterator<Item = (&'a CameraFiles, Arc<AtomicU64>)>,
    ) -> Result<FileCommands, Error> {
        let (cameras, failed): (Vec<_>, Vec<_>) = cameras.unzip();
        let (busy, running) = (BusyFiles::default(), Arc::new(Semaphore::new(RUNNING_MAX)));
        let (mut queues, mut tasks) = (Vec::new(), Vec::new());
        for (camera, failed) in cameras.into_iter().zip(&failed) {
            if camera.on_file.is_empty() {
                queues.push(None);
                continue;
            }
            let (queue, files) = channel(WAITING_MAX);
            queues.push(Some(queue));
            let command = FileCommand {
                camera: camera.camera.clone(),
                words: camera.on_file.clone(),
                busy: busy.clone(),
                running: running.clone(),
                failed: failed.clone(),
            };
            tasks.push((command, files));
        }
        let thread = if tasks.is_empty() { None } else { Some(spawn(tasks)?) };
        Ok(FileCommands { queues, busy, failed, thread })
    }

    /// Hands a complete file to the program of its camera.
    pub(crate) fn add(&self, camera: usize, path: &Path) {
        let Some(queue) = &self.queues[camera] else { return };
        self.busy.lock().insert(path.to_owned(), camera);
        if queue.try_send(path.to_owned()).is_err() {
            self.busy.lock().remove(path);
            self.failed[camera].fetch_add(1, Ordering::Relaxed);
            let shown = path.display();
            tracing::error!(
                "{shown}: on_file is skipped: {WAITING_MAX} files wait for it; make it faster"
            );
        }
    }

    /// True while a file waits for its program or is handled by it.
    pub(crate) fn is_busy(&self, path: &Path) -> bool {
        self.busy.lock().contains_key(path)
    }

    /// Waits until all files are handled, for `wait` at most; then kills the programs, and counts
    /// the files that are left.
    pub(crate) fn end(&mut self, wait: Duration) {
        self.queues.iter_mut().for_each(|queue| *queue = None);
        if let Some((thread, end)) = self.thread.take() {
            let _ = end.send(Instant::now() + wait);
            let _ = thread.join();
        }
        for (path, camera) in self.busy.lock().drain() {
            self.failed[camera].fetch_add(1, Ordering::Relaxed);
            tracing::error!("{}: on_file was not run, or was ended", path.display());
        }
    }
}

impl BusyFiles {
    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

type CommandThread = (JoinHandle<()>, tokio::sync::oneshot::Sender<Instant>);

/// Runs the programs on a thread of their own.
fn spawn(tasks: Vec<(FileCommand, Receiver<PathBuf>)>) -> Result<CommandThread, Error> {
    let refused = |source| Error::Host { call: "clone", object: "thread on_file".into(), source };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(refused)?;
    let (end, ended) = tokio::sync::oneshot::channel();
    let work = move || {
        runtime.block_on(async {
            let mut running = tokio::task::JoinSet::new();
            for (command, files) in tasks {
                running.spawn(command.run(files));
            }
            let all = async { while running.join_next().await.is_some() {} };
            tokio::pin!(all);
            let until = tokio::select! {
                () = &mut all => return,
                until = ended => until.unwrap_or_else(|_| Instant::now()),
            };
            if timeout_at(until, all).await.is_err() {
                tracing::error!("on_file: programs that still run are killed: the recorder ends");
            }
        });
    };
    let thread = std::thread::Builder::new().name("on_file".to_owned()).spawn(work);
    Ok((thread.map_err(refused)?, end))
}

impl FileCommand {
    async fn run(self, mut files: Receiver<PathBuf>) {
        while let Some(path) = files.recv().await {
            // The semaphore is never closed.
            let _running = self.running.acquire().await;
            if let Err(found) = self.run_one(&path).await {
                self.failed.fetch_add(1, Ordering::Relaxed);
                let (camera, shown) = (&self.camera, path.display());
                tracing::error!("camera {camera}: on_file {} of {shown}: {found}", self.words[0]);
            }
            self.busy.lock().remove(&path);
        }
    }

    async fn run_one(&self, path: &Path) -> Result<(), String> {
        // A path need not be UTF-8.
        let fill = |word: &String| {
            let word = word.replace("{camera}", &self.camera);
            let mut parts = word.split("{file}");
            let mut filled = OsString::from(parts.next().unwrap_or_default());
            for part in parts {
                filled.push(path);
                filled.push(part);
            }
            filled
        };
        let output = || std::io::stderr().as_fd().try_clone_to_owned().map(Stdio::from);
        let stdio = || output().unwrap_or_else(|_| Stdio::null());
        let mut command = Command::new(&self.words[0]);
        command
            .args(self.words[1..].iter().map(fill))
            .env("PAGEWIRE_FILE", path)
            .env("PAGEWIRE_CAMERA", &self.camera)
            .env_remove("PAGEWIRE_RTSP_USER")
            .env_remove("PAGEWIRE_RTSP_PASSWORD")
            .stdin(Stdio::null())
            .stdout(stdio())
            .stderr(stdio())
            .process_group(0);
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let killer = ProcessGroup(group);
        match timeout(TIME_MAX, child.wait()).await {
            Ok(ended) => {
                killer.keep();
                judge(ended.map_err(|error| error.to_string())?)
            }
            Err(_) => Err(format!("it ran for {} s and was killed", TIME_MAX.as_secs())),
        }
    }
}

fn judge(status: ExitStatus) -> Result<(), String> {
    if status.success() { Ok(()) } else { Err(status.to_string()) }
}

/// Kills a process group when dropped.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It may have ended meanwhile.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Programs that run at once.
const RUNNING_MAX: usize = 4;
/// Files of a camera that wait: two days of files of an hour.
const WAITING_MAX: usize = 48;
/// Longest run of a program.
const TIME_MAX: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Starts the programs of cameras; returns their counts, too.
    fn start(cameras: &[CameraFiles]) -> (FileCommands, Vec<Arc<AtomicU64>>) {
        let failed: Vec<Arc<AtomicU64>> = cameras.iter().map(|_| Arc::default()).collect();
        let commands = FileCommands::start(cameras.iter().zip(failed.iter().cloned())).unwrap();
        (commands, failed)
    }

    fn counts(failed: &[Arc<AtomicU64>]) -> Vec<u64> {
        failed.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    fn camera(folder: &Path, on_file: &[&str]) -> CameraFiles {
        let mut camera = CameraFiles::new("front door".to_owned(), folder.to_owned());
        camera.on_file = on_file.iter().map(|word| (*word).to_owned()).collect();
        camera
    }

    #[test]
    fn files_are_handed_over_in_order_with_their_camera_and_without_passwords() {
        let folder = tempfile::tempdir().unwrap();
        let list = folder.path().join("list");
        let script = format!(
            "echo \"$1|$2|$PAGEWIRE_FILE|$PAGEWIRE_CAMERA|$PAGEWIRE_RTSP_PASSWORD|$(cat)\" >> {}",
            list.display()
        );
        let words = ["sh", "-c", &script, "sh", "of {camera}", "{file}"];
        let cameras = [camera(folder.path(), &words), camera(folder.path(), &[])];
        let (mut commands, failed) = start(&cameras);
        for name in ["a; rm -rf $HOME {camera}.mp4", "b.mp4", "c.mp4"] {
            commands.add(0, Path::new(name));
            commands.add(1, Path::new(name));
        }
        commands.end(Duration::from_secs(60));
        let line = |name: &str| format!("of front door|{name}|{name}|front door||\n");
        let lines = ["a; rm -rf $HOME {camera}.mp4", "b.mp4", "c.mp4"].map(line).concat();
        assert_eq!(fs::read_to_string(list).unwrap(), lines);
        assert_eq!(counts(&failed), [0, 0]);
    }

    #[test]
    fn programs_that_fail_are_counted_and_files_that_wait_are_busy() {
        let folder = tempfile::tempdir().unwrap();
        let gate = folder.path().join("gate");
        rustix::fs::mkfifoat(rustix::fs::CWD, &gate, rustix::fs::Mode::RWXU).unwrap();
        let script = format!("read line < {}; exit 3", gate.display());
        let mut missing = camera(folder.path(), &["/nowhere/upload", "{file}"]);
        missing.camera = "yard".to_owned();
        let cameras = [camera(folder.path(), &["sh", "-c", &script]), missing];
        let (mut commands, failed) = start(&cameras);
        let path = Path::new("a.mp4");
        commands.add(0, path);
        commands.add(1, Path::new("b.mp4"));
        assert!(commands.is_busy(path) && !commands.is_busy(Path::new("c.mp4")));
        fs::write(&gate, "go\n").unwrap();
        commands.end(Duration::from_secs(60));
        assert!(!commands.is_busy(path));
        assert_eq!(counts(&failed), [1, 1]);
    }

    #[test]
    fn more_files_than_may_wait_are_skipped_and_programs_end_with_the_recorder() {
        let folder = tempfile::tempdir().unwrap();
        let started = folder.path().join("started");
        // Its child must end, too.
        let script =
            format!("sleep 1000 & echo $! > {}.new; mv {0}.new {0}; wait", started.display());
        let cameras = [camera(folder.path(), &["sh", "-c", &script])];
        let (mut commands, failed) = start(&cameras);
        commands.add(0, Path::new("first.mp4"));
        while !started.exists() {
            std::thread::yield_now();
        }
        for number in 0..WAITING_MAX + 3 {
            commands.add(0, Path::new(&format!("{number}.mp4")));
        }
        assert_eq!(counts(&failed), [3]);
        commands.end(Duration::ZERO);
        assert_eq!(counts(&failed), [3 + 1 + WAITING_MAX as u64]);
        let child = fs::read_to_string(started).unwrap();
        let gone = || {
            let state = fs::read_to_string(format!("/proc/{}/stat", child.trim()));
            // A zombie that nobody has waited for yet.
            state.map_or(true, |state| state.contains(") Z "))
        };
        while !gone() {
            std::thread::yield_now();
        }
    }
}
