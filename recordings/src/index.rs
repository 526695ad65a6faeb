// SPDX-License-Identifier: MIT OR Apache-2.0
//! The index of a camera: the lengths of its complete files, in a file of SQLite in its folder,
//! `.CAMERA-recordings.sqlite3`.
//!
//! It repeats what the files themselves tell. It may be deleted at any time, is made again where it
//! is missing or damaged, and no failure of it fails a recording or a list. It is read as a whole
//! and replaced as a whole, so that nothing waits for another program; of two that write at once
//! one wins, and the next list reads what is missing.
//!
//! Everybody who can write to the folder can write the index, and so make lengths up. SQLite gets
//! only its bytes, of a bounded number and of a regular file: no journal, no lock and no memory is
//! shared. A schema that is compared to the letter leaves no trigger or view to run. Only the owner
//! of the folder makes an index, because that of somebody else could not be replaced by the
//! recorder.
//!
//! Costs a read and a check of the whole, and a write where something has changed: a megabyte for a
//! year of files of an hour. The recorder leaves those over [`QUICK_BYTES_MAX`] to lists.
//!
//! Sources: SQLite, "Defense Against The Dark Arts"; sqlite3_deserialize; PRAGMA quick_check.
//! Does not look at recordings: [`crate::list`] does.

use std::collections::HashMap;
use std::fs::Metadata;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use media::store::{UnfinishedFile, modified_ns, read_regular};
use rusqlite::{Connection, params};
use rustix::process::geteuid;

use crate::camera_files::CameraFiles;

/// The index of a camera.
pub(crate) struct Index {
    connection: Connection,
    path: PathBuf,
}

/// A complete file in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IndexRow {
    pub(crate) bytes: u64,
    /// Time of modification.
    modified_ns: i64,
    /// Length of its media.
    pub(crate) length: Duration,
}

impl IndexRow {
    pub(crate) fn new(about: &Metadata, length: Duration) -> IndexRow {
        IndexRow { bytes: about.len(), modified_ns: modified(about), length }
    }

    /// True if the file is the one that was read, unchanged.
    pub(crate) fn is_of(&self, about: &Metadata) -> bool {
        (self.bytes, self.modified_ns) == (about.len(), modified(about))
    }
}

impl Index {
    /// Reads the index of a camera; an empty one if it is missing or damaged, which is logged.
    /// `None` if there can be none, and if it is larger than a `bytes_max` below [`BYTES_MAX`].
    pub(crate) fn read(camera: &CameraFiles, bytes_max: u64) -> Option<Index> {
        // The folder may be a symbolic link, the index may not.
        let folder = camera.folder.canonicalize().ok()?;
        let path = folder.join(format!(".{}-recordings.sqlite3", camera.camera));
        let connection = match read_regular(&path, bytes_max) {
            Ok(bytes) => opened(&bytes).inspect_err(|fault| {
                tracing::info!("{}: {fault}; it is made again", path.display());
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(String::new()),
            // It may be one for lists.
            Err(error) if error.kind() == ErrorKind::FileTooLarge && bytes_max < BYTES_MAX => {
                return None;
            }
            Err(error) => {
                tracing::info!("{}: {error}; it is made again", path.display());
                Err(String::new())
            }
        };
        let connection = connection.or_else(|_| made()).ok()?;
        Some(Index { connection, path })
    }

    /// All rows, by name of the file.
    pub(crate) fn rows(&self) -> HashMap<String, IndexRow> {
        let rows = || -> rusqlite::Result<HashMap<String, IndexRow>> {
            let mut all = self.connection.prepare(SELECT)?;
            let row = |row: &rusqlite::Row<'_>| {
                let [bytes, modified_ns, length_ns] = [row.get(1)?, row.get(2)?, row.get(3)?];
                // A row that is none of ours is of no file.
                let length = u64::try_from(length_ns).unwrap_or(0);
                let bytes = u64::try_from(bytes).ok().filter(|_| length > 0);
                let bytes = bytes.unwrap_or(u64::MAX);
                let length = Duration::from_nanos(length);
                Ok((row.get(0)?, IndexRow { bytes, modified_ns, length }))
            };
            // A name may not be text.
            Ok(all.query_map([], row)?.filter_map(Result::ok).collect())
        };
        rows().unwrap_or_default()
    }

    /// Adds and removes rows, and replaces the file.
    pub(crate) fn update<'a>(
        &mut self,
        add: &[(String, IndexRow)],
        remove: impl ExactSizeIterator<Item = &'a String>,
    ) {
        if add.is_empty() && remove.len() == 0 {
            return;
        }
        let folder = self.path.parent().and_then(|folder| folder.metadata().ok());
        let is_own = folder.is_some_and(|folder| folder.uid() == geteuid().as_raw());
        if !is_own {
            return tracing::debug!("{}: the folder is another user's", self.path.display());
        }
        let changed = || -> rusqlite::Result<()> {
            let transaction = self.connection.transaction()?;
            {
                let mut insert = transaction.prepare(INSERT)?;
                for (name, row) in add {
                    let length = i64::try_from(row.length.as_nanos()).unwrap_or(i64::MAX);
                    let bytes = i64::try_from(row.bytes).unwrap_or(i64::MAX);
                    insert.execute(params![name, bytes, row.modified_ns, length])?;
                }
                let mut delete = transaction.prepare(DELETE)?;
                for name in remove {
                    delete.execute([name])?;
                }
            }
            transaction.commit()
        };
        let changed = changed().map_err(io::Error::other);
        if let Err(error) = changed.and_then(|()| self.replace()) {
            tracing::debug!("{}: {error}", self.path.display());
        }
    }

    fn replace(&mut self) -> io::Result<()> {
        let mut new = UnfinishedFile::create(&self.path)?;
        new.file.write_all(&self.connection.serialize("main").map_err(io::Error::other)?)?;
        new.replace_unsynced()
    }
}

/// Opens the bytes of an index.
///
/// # Errors
/// They are damaged, or of another version.
fn opened(bytes: &[u8]) -> Result<Connection, String> {
    let mut connection = Connection::open_in_memory().map_err(|error| error.to_string())?;
    let read = || -> rusqlite::Result<(String, Vec<Option<String>>)> {
        connection.deserialize_read_exact("main", bytes, bytes.len(), false)?;
        let mut schema = connection.prepare("SELECT sql FROM sqlite_schema LIMIT 2")?;
        let schema = schema.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
        let verdict = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        Ok((verdict, schema))
    };
    match { read }() {
        Ok((verdict, schema)) if schema.as_slice() == [Some(SCHEMA.to_owned())] => {
            match &*verdict {
                "ok" => Ok(connection),
                _ => Err(verdict),
            }
        }
        Ok(_) => Err("not an index of this version".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Makes an index without rows.
fn made() -> rusqlite::Result<Connection> {
    let connection = Connection::open_in_memory()?;
    connection.execute_batch(SCHEMA)?;
    Ok(connection)
}

fn modified(about: &Metadata) -> i64 {
    i64::try_from(modified_ns(about)).unwrap_or(i64::MAX)
}

/// The schema, as SQLite stores it.
const SCHEMA: &str = "CREATE TABLE files (name TEXT PRIMARY KEY, bytes INTEGER NOT NULL, \
                      modified_ns INTEGER NOT NULL, length_ns INTEGER NOT NULL) \
                      STRICT, WITHOUT ROWID";
const SELECT: &str = "SELECT name, bytes, modified_ns, length_ns FROM files";
const INSERT: &str = "INSERT OR REPLACE INTO files VALUES (?1, ?2, ?3, ?4)";
const DELETE: &str = "DELETE FROM files WHERE name = ?1";
/// Largest index that is read for a list (a million files), and for one row.
pub(crate) const BYTES_MAX: u64 = 64 << 20;
pub(crate) const QUICK_BYTES_MAX: u64 = 4 << 20;
