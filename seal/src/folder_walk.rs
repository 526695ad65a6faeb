// SPDX-License-Identifier: MIT OR Apache-2.0
//! Lists all below a folder once: files with sizes and times, folders, and the rest.
//!
//! Symlinks and special files are reported and never followed. All paths are relative to the
//! [`DirHandle`], a descriptor that is held open, so they are short and stay valid when the folder
//! is moved. A path that turned into a symlink is refused.
//!
//! Costs one `statx` a file, on all threads, and about 100 bytes of memory; one open and two or
//! more `getdents64` a folder.
//!
//! Sources: getdents64(2), stat(2). Does not read files and follows no symlink; reports folders
//! that it cannot list.

use std::ffi::{CStr, CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, Condvar, Mutex};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat, statat};
use rustix::io::Errno;

pub use crate::dir_handle::DirHandle;
use crate::error::{Error, FileFault};
use crate::manifest::Time;

/// A regular file in its state during the walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Path relative to the root.
    pub path: CString,
    /// Size of the file.
    pub bytes: u64,
    /// Modification time (mtime).
    pub modified: Time,
    /// Time of the last change of content or metadata (ctime); no program can set it back.
    pub changed: Time,
    /// Permission bits.
    pub mode: u32,
    /// Inode number, which distinguishes a file from a later one of the same name.
    pub inode: u64,
}

impl File {
    /// Returns the path in the standard library's type.
    pub fn name(&self) -> &OsStr {
        OsStr::from_bytes(self.path.to_bytes())
    }
}

/// A folder in its state during the walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Folder {
    /// Path relative to the root; the root itself is `.`.
    pub path: CString,
    /// Modification time (mtime).
    pub modified: Time,
    /// Permission bits.
    pub mode: u32,
}

/// Files and folders below a root.
#[derive(Debug, Default)]
pub struct Tree {
    /// Regular files by inode number: on most disks the order of their data.
    pub files: Vec<File>,
    /// Folders, parents first; the root is the first.
    pub folders: Vec<Folder>,
    /// Errors, sorted by path: symlinks, special files, and entries that the walk could not read.
    pub refused: Vec<Error>,
}

/// Returns the modification time (mtime).
#[expect(clippy::useless_conversion, reason = "the fields' types differ by architecture")]
pub(crate) fn modified(stat: &Stat) -> Time {
    Time { s: stat.st_mtime.into(), ns: u32::try_from(stat.st_mtime_nsec).unwrap_or_default() }
}

/// Returns the time of the last change of content or metadata (ctime).
#[expect(clippy::useless_conversion, reason = "the fields' types differ by architecture")]
pub(crate) fn changed(stat: &Stat) -> Time {
    Time { s: stat.st_ctime.into(), ns: u32::try_from(stat.st_ctime_nsec).unwrap_or_default() }
}

/// Returns the permission bits of a file or a folder.
pub(crate) fn permissions(stat: &Stat) -> u32 {
    stat.st_mode & 0o7777
}

/// Lists all below `root`, with `threads` threads when there is more than one task.
pub fn walk(root: &DirHandle, threads: usize) -> Tree {
    let queue = TaskQueue::default();
    queue.push(Task::List(c".".to_owned()));
    let mut tree = Tree::default();
    // A flat folder of a few hundred files is one task, which takes less time than starting
    // threads.
    while queue.waiting() == 1 {
        work(root, &queue, &mut tree, 1);
    }
    if queue.waiting() > 1 {
        walk_together(root, threads, &queue, &mut tree);
    }
    tree.files.sort_unstable_by_key(|file| file.inode);
    let is_below = |folder: &Folder| folder.path.as_c_str() != c".";
    tree.folders.sort_unstable_by(|one, other| {
        (is_below(one), &one.path).cmp(&(is_below(other), &other.path))
    });
    tree.refused.sort_by_cached_key(ToString::to_string);
    tree
}

/// Runs the waiting tasks, and the tasks they add, on `threads` threads.
fn walk_together(root: &DirHandle, threads: usize, queue: &TaskQueue, tree: &mut Tree) {
    std::thread::scope(|scope| {
        let walk = || {
            let mut found = Tree::default();
            work(root, queue, &mut found, usize::MAX);
            found
        };
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(walk)).collect();
        work(root, queue, tree, usize::MAX);
        for other in others {
            let found = match other.join() {
                Ok(found) => found,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            tree.files.extend(found.files);
            tree.folders.extend(found.folders);
            tree.refused.extend(found.refused);
        }
    });
}

/// Runs tasks until none is left, at most `tasks_max`.
fn work(root: &DirHandle, queue: &TaskQueue, found: &mut Tree, tasks_max: usize) {
    for _ in 0..tasks_max {
        let Some(task) = queue.take() else { return };
        task.run(root, queue, found);
        queue.done();
    }
}

/// Most names in one task.
const NAMES_MAX: usize = 512;

/// A task of the walk.
enum Task {
    /// List this folder.
    List(CString),
    /// Stat these entries of a folder: regular files, or of unknown type.
    Look { folder: Arc<OwnedFd>, paths: Vec<CString>, prefix_bytes: usize },
}

/// Tasks that no thread has claimed, and the number of running tasks, which may add more.
#[derive(Default)]
struct TaskQueue {
    state: Mutex<(Vec<Task>, usize)>,
    changed: Condvar,
}

impl TaskQueue {
    fn push(&self, task: Task) {
        self.state.lock().expect("no walker panicked").0.push(task);
        self.changed.notify_one();
    }

    /// Returns the number of tasks that no thread has claimed.
    fn waiting(&self) -> usize {
        self.state.lock().expect("no walker panicked").0.len()
    }

    /// Returns the next task; `None` when there is none and no running task can add one.
    fn take(&self) -> Option<Task> {
        let mut state = self.state.lock().expect("no walker panicked");
        loop {
            if let Some(task) = state.0.pop() {
                state.1 += 1;
                return Some(task);
            }
            if state.1 == 0 {
                return None;
            }
            state = self.changed.wait(state).expect("no walker panicked");
        }
    }

    fn done(&self) {
        let mut state = self.state.lock().expect("no walker panicked");
        state.1 -= 1;
        if state.1 == 0 && state.0.is_empty() {
            self.changed.notify_all();
        }
    }
}

impl Task {
    fn run(self, root: &DirHandle, queue: &TaskQueue, found: &mut Tree) {
        match self {
            Task::List(path) => {
                if let Err(errno) = list(root, &path, queue, found) {
                    found.refused.push(root.error("list", &path, errno));
                }
            }
            Task::Look { folder, paths, prefix_bytes } => {
                for path in paths {
                    look(root, &folder, path, prefix_bytes, queue, found);
                }
            }
        }
    }
}

/// Lists a folder: queues its folders, and stats its files in groups.
fn list(root: &DirHandle, path: &CStr, queue: &TaskQueue, found: &mut Tree) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let folder = Arc::new(root.open_below(path, flags, Mode::empty())?);
    let stat = rustix::fs::fstat(&*folder)?;
    found.folders.push(Folder {
        path: path.to_owned(),
        modified: modified(&stat),
        mode: permissions(&stat),
    });
    let prefix = match path.to_bytes() {
        b"." => Vec::new(),
        path => [path, b"/"].concat(),
    };
    let mut buffer = vec![MaybeUninit::uninit(); 64 * 1024];
    let mut entries = RawDir::new(folder.as_fd(), &mut buffer);
    let mut paths = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        let below = CString::new([&prefix[..], name].concat()).expect("a name has no NUL");
        match entry.file_type() {
            FileType::Directory => queue.push(Task::List(below)),
            FileType::RegularFile | FileType::Unknown => paths.push(below),
            other => found.refused.push(refused(root, &below, other)),
        }
        if paths.len() == NAMES_MAX {
            let paths = std::mem::take(&mut paths);
            let folder = folder.clone();
            queue.push(Task::Look { folder, paths, prefix_bytes: prefix.len() });
        }
    }
    if !paths.is_empty() {
        Task::Look { folder, paths, prefix_bytes: prefix.len() }.run(root, queue, found);
    }
    Ok(())
}

/// Stats one entry of `folder`.
fn look(
    root: &DirHandle,
    folder: &OwnedFd,
    path: CString,
    prefix_bytes: usize,
    queue: &TaskQueue,
    found: &mut Tree,
) {
    let name = CStr::from_bytes_with_nul(&path.as_bytes_with_nul()[prefix_bytes..]);
    let name = name.expect("the end of a path has no other NUL");
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => found.files.push(File {
                bytes: stat.st_size.unsigned_abs(),
                modified: modified(&stat),
                changed: changed(&stat),
                mode: permissions(&stat),
                inode: stat.st_ino,
                path,
            }),
            FileType::Directory => queue.push(Task::List(path)),
            other => found.refused.push(refused(root, &path, other)),
        },
        // Removed since it was listed: it is ignored.
        Err(Errno::NOENT) => {}
        Err(errno) => found.refused.push(root.error("stat", &path, errno)),
    }
}

fn refused(root: &DirHandle, path: &CStr, kind: FileType) -> Error {
    let fault = match kind {
        FileType::Symlink => FileFault::Symlink,
        _ => FileFault::Special,
    };
    Error::file(&root.shown(path), fault)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use rustix::fs::CWD;

    fn walked(path: &Path, threads: usize) -> Tree {
        walk(&DirHandle::open(path).unwrap(), threads)
    }

    #[test]
    fn files_and_folders_are_found_and_nothing_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::create_dir_all(path.join("a/b/c")).unwrap();
        std::fs::create_dir(path.join("empty")).unwrap();
        std::fs::create_dir(path.join("-")).unwrap();
        for (name, bytes) in [("one", 1), ("a/two", 2), ("a/b/c/three", 3)] {
            std::fs::write(path.join(name), vec![0; bytes]).unwrap();
        }
        let odd = OsStr::from_bytes(b"a/\xff\xfe name\n");
        std::fs::write(path.join(odd), b"four").unwrap();
        std::fs::set_permissions(path.join("one"), PermissionsExt::from_mode(0o640)).unwrap();
        symlink("/etc", path.join("a/out")).unwrap();
        symlink("one", path.join("link")).unwrap();
        rustix::fs::mknodat(CWD, path.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();

        for threads in [1, 3] {
            let tree = walked(path, threads);
            let mut files: Vec<_> =
                tree.files.iter().map(|file| (file.path.to_bytes(), file.bytes)).collect();
            files.sort();
            let right: [(&[u8], u64); 4] =
                [(b"a/b/c/three", 3), (b"a/two", 2), (odd.as_bytes(), 4), (b"one", 1)];
            assert_eq!(files, right);
            let folders: Vec<_> =
                tree.folders.iter().map(|folder| folder.path.to_bytes()).collect();
            assert_eq!(folders, [&b"."[..], b"-", b"a", b"a/b", b"a/b/c", b"empty"]);
            let refused: Vec<_> = tree.refused.iter().map(ToString::to_string).collect();
            let at = |name: &str| path.join(name).display().to_string();
            assert_eq!(refused.len(), 3, "{refused:?}");
            assert!(refused[0].starts_with(&at("a/out")) && refused[0].contains("symlink"));
            assert!(refused[1].starts_with(&at("link")) && refused[1].contains("symlink"));
            assert!(refused[2].starts_with(&at("pipe")) && refused[2].contains("no regular file"));
            let one = tree.files.iter().find(|file| file.path.to_bytes() == b"one").unwrap();
            assert_eq!(one.mode, 0o640);
            assert!(one.modified.s > 1_600_000_000);
        }
    }

    #[test]
    fn a_large_folder_is_looked_at_by_all_and_found_whole() {
        let folder = tempfile::tempdir().unwrap();
        let count = 3 * NAMES_MAX + 1;
        for number in 0..count {
            std::fs::write(folder.path().join(format!("{number}")), b"").unwrap();
        }
        assert_eq!(walked(folder.path(), 4).files.len(), count);
    }
}
