// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watching the folder: a walk at the start, inotify from then on, and the background planner.
//!
//! Events are gathered until a file has been quiet for [`QUIET`], so that a file being copied in is looked
//! at once and not at every write. Where inotify cannot be had (its limit of watches is reached, a network
//! file system), the folder is walked again every [`WALK_AGAIN`].
//! Costs one inotify watch per folder.
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

use super::{Entry, Library, State};
use crate::access::is_hidden;
use crate::error::Error;

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
                while let Ok(name) = names.recv() {
                    if planner.is_waiting(&name) {
                        // What became of it stands in the index.
                        let _ = planner.asset_blocking(&name);
                    }
                }
            })?,
        ];
        Ok(Watch { messages, threads })
    }

    pub(crate) fn stop(self) {
        let _ = self.messages.send(Message::Stop);
        for thread in self.threads {
            // The planner may be in the middle of a large file; it holds nothing that must be saved.
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
        self.walk(self.folder.path(), work);
        let mut touched: HashMap<PathBuf, Instant> = HashMap::new();
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
                Ok(Message::Overflowed) => self.walk(self.folder.path(), work),
                Err(RecvTimeoutError::Timeout) if watcher.is_none() => {
                    self.walk(self.folder.path(), work);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
            touched.retain(|path, at| {
                let quiet = at.elapsed() >= QUIET;
                if quiet {
                    self.look(path, work);
                }
                !quiet
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

    /// Looks at everything below `top`, and forgets what is no longer there.
    fn walk(&self, top: &Path, work: &Sender<String>) {
        let visible = |entry: &walkdir::DirEntry| {
            entry.depth() == 0 || entry.file_name().to_str().is_none_or(|name| !is_hidden(name))
        };
        for found in walkdir::WalkDir::new(top).into_iter().filter_entry(visible) {
            match found {
                Ok(found) if !found.file_type().is_dir() => self.look_at_file(found.path(), work),
                Ok(_) => {}
                Err(error) => tracing::warn!("walking the folder: {error}; passed over"),
            }
        }
        self.forget_missing(top);
    }

    fn look(&self, path: &Path, work: &Sender<String>) {
        if path.is_dir() && !path.is_symlink() {
            self.walk(path, work);
        } else {
            self.look_at_file(path, work);
            self.forget_missing(path);
        }
    }

    fn look_at_file(&self, path: &Path, work: &Sender<String>) {
        let Some(name) = self.name_of(path) else { return };
        // The same door as for requests: what is listed can be fetched.
        let Ok((_, metadata)) = self.folder.file(&name) else { return };
        let bytes = metadata.len();
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let mut entries = self.entries.write().unwrap();
        let known = entries.get(&name);
        if known.is_some_and(|known| known.bytes == bytes && known.modified == modified) {
            return;
        }
        let playable =
            is_playable(&name) || known.is_some_and(|k| !matches!(k.state, State::Download));
        let state = if playable { State::Waiting } else { State::Download };
        entries.insert(name.clone(), Entry { bytes, modified, state });
        drop(entries);
        if playable {
            // The planner is gone only while the server stops.
            let _ = work.send(name);
        }
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
        let gone: Vec<String> =
            names.into_iter().filter(|name| self.folder.file(name).is_err()).collect();
        if !gone.is_empty() {
            let mut entries = self.entries.write().unwrap();
            for name in gone {
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

    fn is_waiting(&self, name: &str) -> bool {
        let entries = self.entries.read().unwrap();
        entries.get(name).is_some_and(|entry| matches!(entry.state, State::Waiting))
    }
}

/// What the index offers as a stream before anybody asked. Any file that is a transport stream plays when
/// asked for, whatever its name.
fn is_playable(name: &str) -> bool {
    let extension = name.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    extension.is_some_and(|extension| EXTENSIONS.contains(&extension.as_str()))
}

const EXTENSIONS: &[&str] = &["m2t", "m2ts", "mpegts", "mts", "tp", "trp", "ts"];
const QUIET: Duration = Duration::from_millis(300);
const WALK_AGAIN: Duration = Duration::from_secs(10);
