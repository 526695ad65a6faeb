// SPDX-License-Identifier: MIT OR Apache-2.0
//! Refuses targets that another form of protection already uses.
//!
//! The journal of a folder of `seal folder` or `seal epub` lists its content, and the folder of a
//! film is replaced in one step: files of one form in the other's folder would be lost, or be
//! reported as unexpected. So each form asks here before it makes anything.
//!
//! Costs one `stat` for each folder above the target; for an existing target also a walk in search
//! of films.
//!
//! Does not check that this program wrote the file it finds. Above the target, only files of this
//! user count: in a shared folder another user may have made them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::folder_walk::{self, DirHandle};
use crate::hls::JOURNAL;
use crate::manifest;

/// Refuses `target` for films when it is, or lies in, a folder with a journal of sealed files.
///
/// # Errors
/// [`Error::Option`].
pub(crate) fn refuse_for_films(target: &Path) -> Result<(), Error> {
    match holder(target, manifest::NAME)? {
        Some(folder) => Err(refused(target, &folder, "seal folder or seal epub", manifest::NAME)),
        None => Ok(()),
    }
}

/// Refuses `target` for files when it lies in the folder of a film. A film's folder that was itself
/// sealed as files counts as files.
///
/// # Errors
/// [`Error::Option`].
pub(crate) fn refuse_in_film(target: &Path) -> Result<(), Error> {
    match holder(target, JOURNAL)? {
        Some(folder) if folder.join(manifest::NAME).exists() => Ok(()),
        Some(folder) => Err(refused(target, &folder, "seal hls", JOURNAL)),
        None => Ok(()),
    }
}

/// Refuses the folder `target`, in which no files were sealed yet, when there are films in it.
///
/// # Errors
/// [`Error::Option`].
pub(crate) fn refuse_with_films(target: &DirHandle, threads: usize) -> Result<(), Error> {
    let files = folder_walk::walk(target, threads).files;
    let path = |file: &folder_walk::File| target.path().join(file.name());
    let journal = files.iter().map(path).find(|path| path.file_name() == Some(JOURNAL.as_ref()));
    match journal.as_deref().and_then(Path::parent) {
        Some(folder) => Err(refused(target.path(), folder, "seal hls", JOURNAL)),
        None => Ok(()),
    }
}

fn refused(target: &Path, folder: &Path, by: &str, journal: &str) -> Error {
    let (target, folder) = (target.display(), folder.display());
    Error::Option {
        option: "TARGET",
        found: format!("{target}: {folder} was made by {by} ({journal} is in it)"),
        cure: "name a folder apart from it".to_owned(),
    }
}

/// Returns `target`, or the nearest folder above it, that contains `name`.
fn holder(target: &Path, name: &str) -> Result<Option<PathBuf>, Error> {
    let absolute = std::path::absolute(target).map_err(Error::host("getcwd", target))?;
    // The part of the path that does not exist yet has no links in it.
    let there = absolute.ancestors().find_map(|path| path.canonicalize().ok());
    let Some(there) = there else { return Ok(None) };
    let is_itself = |folder: &Path| absolute.canonicalize().is_ok_and(|path| path == *folder);
    let user = rustix::process::geteuid().as_raw();
    let has = |folder: &&Path| {
        let found = fs::symlink_metadata(folder.join(name));
        found.is_ok_and(|found| is_itself(folder) || found.is_file() && found.uid() == user)
    };
    Ok(there.ancestors().find(has).map(Path::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_form_made_is_refused_from_its_folder_on_downwards() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::create_dir_all(path("sealed/deep")).unwrap();
        fs::create_dir_all(path("site/sub/film")).unwrap();
        fs::write(path("sealed").join(manifest::NAME), "").unwrap();
        fs::write(path("site/sub/film").join(JOURNAL), "").unwrap();
        for target in ["sealed", "sealed/deep", "sealed/new/er"] {
            let error = refuse_for_films(&path(target)).unwrap_err();
            assert!(error.is_caller() && error.to_string().contains(manifest::NAME), "{error}");
            assert!(refuse_in_film(&path(target)).is_ok());
        }
        for target in ["site/sub/film", "site/sub/film/new"] {
            let error = refuse_in_film(&path(target)).unwrap_err();
            assert!(error.to_string().contains("made by seal hls"), "{error}");
            assert!(refuse_for_films(&path(target)).is_ok());
        }
        fs::write(path("sealed").join(JOURNAL), "").unwrap();
        assert!(refuse_in_film(&path("sealed")).is_ok(), "a film's folder, sealed");
        for target in ["", "new", "site", "site/sub/new"] {
            assert!(refuse_for_films(&path(target)).is_ok(), "{target}");
            assert!(refuse_in_film(&path(target)).is_ok(), "{target}");
        }
        for target in ["site", "site/sub", "site/sub/film"] {
            let root = DirHandle::open(&path(target)).unwrap();
            assert!(refuse_with_films(&root, 1).is_err(), "{target}");
        }
        fs::remove_file(path("sealed").join(JOURNAL)).unwrap();
        assert!(refuse_with_films(&DirHandle::open(&path("sealed")).unwrap(), 1).is_ok());
        // A link is resolved: the folder that it points to counts.
        std::os::unix::fs::symlink("sealed", path("link")).unwrap();
        assert!(refuse_for_films(&path("link/new")).is_err());
    }

    #[test]
    fn a_stranger_s_file_above_the_target_claims_nothing() {
        let place = tempfile::tempdir().unwrap();
        let journal = place.path().join(manifest::NAME);
        fs::write(&journal, "").unwrap();
        fs::create_dir(place.path().join("mine")).unwrap();
        if std::os::unix::fs::chown(&journal, Some(65_534), None).is_err() {
            println!("skip: only root can give a file to another user");
            return;
        }
        assert!(refuse_for_films(&place.path().join("mine")).is_ok());
        assert!(refuse_for_films(place.path()).is_err());
    }
}
