// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watching the folder: a walk at the start, inotify from then on, and the background planner.
//!
//! Events are gathered until a file has been quiet for [`QUIET`], so that a file being copied in is
//! looked at once and not at every write. Where inotify cannot be had (its limit of watches is
//! reached, a network file system), the folder is walked again every [`WALK_AGAIN`]. Costs one
//! inotify watch per folder.
//!
//! Sources: inotify(7).
//! Does not do: descend into symbolic links to folders; their files are served but not listed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use super::segments::is_playlist;
use super::{Entry, Library, NoAsset, State};
use crate::access::{Denied, is_hidden};
use crate::error::Error;
use crate::listen::is_spent;

/// The thread that keeps the names current, and the one that plans what is new.
pub(crate) struct Watch {
    messages: Sender<Message>,
    threads: Vec<JoinHandle<()>>,
}

enum Message {
    Touched(Vec<PathBuf>),
    /// Events were lost: look at everything.
    Overflowed,
    Stop,
}

impl Watch {
    pub(crate) fn start(library: &Arc<Library>) -> Result<Watch, Error> {
        let (messages, inbox) = channel();
        let (work, names) = channel::<String>();
        let (librarian, planner) = (library.clone(), library.clone());
        let events = messages.clone();
        let threads = vec![
            spawn("librarian", move || librarian.watch(&events, &inbox, &work))?,
            spawn("planner", move || {
                planner.plan_waiting(&names);
            })?,
        ];
        Ok(Watch { messages, threads })
    }

    pub(crate) fn stop(self) {
        let _ = self.messages.send(Message::Stop);
        for thread in self.threads {
            // The planner may be in the middle of a large file; it holds nothing that must be
            // saved.
            if thread.is_finished() || thread.thread().name() == Some("librarian") {
                let _ = thread.join();
            }
        }
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).map_err(|source| Error::Host {
        call: "clone",
        object: format!("thread {name}"),
        source,
    })
}

impl Library {
    fn watch(&self, events: &Sender<Message>, inbox: &Receiver<Message>, work: &Sender<String>) {
        let watcher = self.begin_watching(events);
        // After the watch is set, so that nothing falls between.
        let top = self.folder.path();
        let mut touched: HashMap<PathBuf, Instant> = HashMap::new();
        if !self.walk(top, work) {
            touched.insert(top.to_owned(), Instant::now());
        }
        loop {
            let patience = match (&watcher, touched.is_empty()) {
                (_, false) => QUIET / 2,
                (Some(_), true) => Duration::from_secs(3600),
                (None, true) => WALK_AGAIN,
            };
            match inbox.recv_timeout(patience) {
                Ok(Message::Touched(paths)) => {
                    let now = Instant::now();
                    touched.extend(paths.into_iter().map(|path| (path, now)));
                }
                Ok(Message::Overflowed) => {
                    touched.entry(top.to_owned()).or_insert_with(Instant::now);
                }
                Err(RecvTimeoutError::Timeout) if watcher.is_none() => {
                    touched.entry(top.to_owned()).or_insert_with(Instant::now);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
            touched.retain(|path, at| {
                if at.elapsed() < QUIET {
                    return true;
                }
                let looked = self.look(path, work);
                *at = Instant::now();
                !looked
            });
        }
    }

    fn begin_watching(&self, events: &Sender<Message>) -> Option<RecommendedWatcher> {
        let events = events.clone();
        let heard = move |event: notify::Result<notify::Event>| {
            let message = match event {
                Ok(event) if event.need_rescan() => Message::Overflowed,
                Ok(event) if event.kind.is_access() => return,
                Ok(event) => Message::Touched(event.paths),
                Err(_) => Message::Overflowed,
            };
            // The librarian is gone only while the server stops.
            let _ = events.send(message);
        };
        let path = self.folder.path();
        let watcher = notify::recommended_watcher(heard).and_then(|mut watcher| {
            watcher.watch(path, RecursiveMode::Recursive)?;
            Ok(watcher)
        });
        watcher
            .inspect_err(|error| {
                let path = path.display();
                tracing::warn!(
                    "inotify on {path}: {error}; the folder is walked every {WALK_AGAIN:?} instead \
                     (raise fs.inotify.max_user_watches)"
                );
            })
            .ok()
    }

    /// Looks at everything below `top`, and forgets what is no longer there. False if there were
    /// not the file descriptors for it: what is known stays, and somebody has to look again.
    fn walk(&self, top: &Path, work: &Sender<String>) -> bool {
        let mut looked = true;
        let visible = |entry: &walkdir::DirEntry| {
            entry.depth() == 0 || entry.file_name().to_str().is_none_or(|name| !is_hidden(name))
        };
        // What a playlist lists is not planned: it is to be known before its segments are seen.
        let after = |entry: &walkdir::DirEntry| !is_playlist(&entry.file_name().to_string_lossy());
        let walk = walkdir::WalkDir::new(top).sort_by_key(after);
        for found in walk.into_iter().filter_entry(visible) {
            match found {
                Ok(found) if !found.file_type().is_dir() => {
                    looked &= self.look_at_file(found.path(), work);
                }
                Ok(_) => {}
                Err(error) if error.io_error().is_some_and(is_spent) => looked = false,
                Err(error) => tracing::warn!("walking the folder: {error}; passed over"),
            }
        }
        self.forget_missing(top);
        looked
    }

    fn look(&self, path: &Path, work: &Sender<String>) -> bool {
        if path.is_dir() && !path.is_symlink() {
            return self.walk(path, work);
        }
        let looked = self.look_at_file(path, work);
        self.forget_missing(path);
        looked
    }

    fn look_at_file(&self, path: &Path, work: &Sender<String>) -> bool {
        let Some(name) = self.name_of(path) else { return true };
        // The same door as for requests: what is listed can be fetched.
        let (file, metadata) = match self.folder.file(&name) {
            Ok(opened) => opened,
            Err(denied) => return !matches!(denied, Denied::DescriptorsSpent),
        };
        let bytes = metadata.len();
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let is_segment = self.is_segment(&name);
        let mut entries = self.entries.write().unwrap();
        let known = entries.get(&name);
        if known.is_some_and(|known| known.bytes == bytes && known.modified == modified) {
            return true;
        }
        let is_played = known.is_some_and(|k| !matches!(k.state, State::Download));
        let playable = !is_segment && (is_playable(&name) || is_played);
        let state = if playable { State::Waiting } else { State::Download };
        entries.insert(name.clone(), Entry { bytes, modified, state });
        drop(entries);
        if is_playlist(&name) {
            self.look_at_playlist(&name, &file);
        }
        if playable {
            // The planner is gone only while the server stops.
            let _ = work.send(name);
        }
        true
    }

    fn forget_missing(&self, top: &Path) {
        let prefix = self.name_of(top).unwrap_or_default();
        let below = |name: &str| {
            prefix.is_empty()
                || name.strip_prefix(&prefix).is_some_and(|r| r.is_empty() || r.starts_with('/'))
        };
        let names: Vec<String> = {
            let entries = self.entries.read().unwrap();
            entries.keys().filter(|name| below(name)).cloned().collect()
        };
        let is_gone = |name: &String| {
            let opened = self.folder.file(name);
            opened.is_err_and(|denied| !matches!(denied, Denied::DescriptorsSpent))
        };
        let gone: Vec<String> = names.into_iter().filter(is_gone).collect();
        if !gone.is_empty() {
            let mut segments = self.segments.write().unwrap();
            let mut entries = self.entries.write().unwrap();
            for name in gone {
                segments.remove(&name);
                entries.remove(&name);
            }
        }
    }

    /// The name below the folder; `None` for hidden ones and for what is no UTF-8.
    fn name_of(&self, path: &Path) -> Option<String> {
        let name = path.strip_prefix(self.folder.path()).ok()?.to_str()?;
        let listed = !name.is_empty() && !name.split('/').any(is_hidden);
        listed.then(|| name.to_owned())
    }

    /// Plans what the librarian names. What finds no descriptor left has its turn again later.
    fn plan_waiting(&self, names: &Receiver<String>) {
        let mut put_off: Vec<String> = Vec::new();
        loop {
            let patience = if put_off.is_empty() { Duration::from_secs(3600) } else { PLAN_AGAIN };
            let name = match names.recv_timeout(patience) {
                Ok(name) => Some(name),
                Err(RecvTimeoutError::Timeout) => put_off.pop(),
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let Some(name) = name.filter(|name| self.is_waiting(name)) else { continue };
            // What else became of it stands in the index.
            if let Err(NoAsset::Denied(denied)) = self.asset_blocking(&name)
                && matches!(*denied, Denied::DescriptorsSpent)
            {
                put_off.push(name);
            }
        }
    }

    pub(super) fn is_waiting(&self, name: &str) -> bool {
        let entries = self.entries.read().unwrap();
        entries.get(name).is_some_and(|entry| matches!(entry.state, State::Waiting))
    }
}

/// What the index offers as a stream before anybody asked. Any file that is a transport stream
/// plays when asked for, whatever its name.
fn is_playable(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    extension.is_some_and(|extension| EXTENSIONS.contains(&extension.as_str()))
}

const EXTENSIONS: &[&str] = &["m2t", "m2ts", "mpegts", "mts", "tp", "trp", "ts"];
const QUIET: Duration = Duration::from_millis(300);
const PLAN_AGAIN: Duration = Duration::from_millis(500);
const WALK_AGAIN: Duration = Duration::from_secs(10);
