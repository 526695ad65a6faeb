// SPDX-License-Identifier: MIT OR Apache-2.0
//! A sealed folder to be read: its form, its files and their records in the manifest.
//!
//! Differences between manifest and folder are found before any file is opened: a file that is
//! missing, was never sealed into it, or has another length.
//!
//! Does not open files.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use super::fault::SealedFileFault;
use super::{FolderForm, is_reserved};
use crate::error::{Error, FileFault};
use crate::folder_walk::{self, DirHandle, Tree};
use crate::key::Secret;
use crate::manifest::{self, Manifest, ManifestHeader, ManifestRecord};
use crate::target_path;

/// Form and IV of sealed files.
#[derive(Clone, Copy, Debug)]
pub struct SealedForm {
    /// Form of the files.
    pub form: &'static FolderForm,
    /// One IV for all files, when none is in front.
    pub iv: Option<[u8; 16]>,
}

/// A sealed folder.
#[derive(Debug)]
pub(super) struct SealedDir {
    pub(super) path: PathBuf,
    pub(super) root: DirHandle,
    pub(super) how: SealedForm,
    /// Files and folders, without this program's own files.
    pub(super) tree: Tree,
    /// `None`: sealed by another program, or the manifest is lost.
    pub(super) known: Option<Manifest>,
}

/// Files of the tree, sorted by their records.
pub(super) struct ReadableFiles {
    /// Record of each file that was left in the tree; all `None` without a manifest.
    pub(super) records: Vec<Option<ManifestRecord>>,
    /// Files that were removed from the tree.
    pub(super) rejected: Vec<CString>,
    /// Errors of the rejected and missing files, and of the walk.
    pub(super) failed: Vec<Error>,
}

impl SealedDir {
    /// Reads the manifest and walks the folder. `named` is the form on the command line; the
    /// manifest, if any, must agree.
    pub(super) fn look(
        path: &Path,
        named: Option<SealedForm>,
        secret: &Secret,
        threads: usize,
    ) -> Result<Self, Error> {
        let path = target_path::real(path)?;
        let root = DirHandle::open_canonical(&path)?;
        let known = manifest::read(&root, secret)?;
        let how = how(&path, named, known.as_ref().map(|known| &known.header))?;
        how.form.takes(how.iv, secret)?;
        let mut tree = folder_walk::walk(&root, threads);
        tree.files.retain(|file| !is_reserved(file.path.to_bytes()));
        Ok(Self { path, root, how, tree, known })
    }

    /// Keeps in the tree the files that have the lengths they were sealed with; returns errors of
    /// the others.
    pub(super) fn sorted(&mut self) -> ReadableFiles {
        let mut failed = std::mem::take(&mut self.tree.refused);
        let mut rejected = Vec::new();
        let Some(known) = &mut self.known else {
            return ReadableFiles { records: vec![None; self.tree.files.len()], rejected, failed };
        };
        let mut records = Vec::with_capacity(self.tree.files.len());
        let root = &self.root;
        self.tree.files.retain(|file| {
            let closed = match known.records.remove(file.name()) {
                None => SealedFileFault::Extra,
                Some(kept) if kept.record.sealed_bytes != file.bytes => SealedFileFault::Resized {
                    found_bytes: file.bytes,
                    sealed_bytes: kept.record.sealed_bytes,
                },
                Some(kept) => {
                    records.push(Some(kept.record));
                    return true;
                }
            };
            failed.push(Error::file(&root.shown(&file.path), FileFault::Sealed(closed)));
            rejected.push(file.path.clone());
            false
        });
        let missing = known.records.keys().map(|path| self.path.join(&**path));
        failed.extend(
            missing.map(|path| Error::file(&path, FileFault::Sealed(SealedFileFault::Missing))),
        );
        ReadableFiles { records, rejected, failed }
    }
}

/// Returns the form of a folder, from its manifest or as named.
fn how(
    path: &Path,
    named: Option<SealedForm>,
    header: Option<&ManifestHeader>,
) -> Result<SealedForm, Error> {
    let path = path.display();
    let (header, named) = match (header, named) {
        (None, Some(named)) => return Ok(named),
        (None, None) => {
            return Err(Error::Option {
                option: "form",
                found: format!("none named, and {path} has no {}", manifest::NAME),
                cure: "name it, and the IV when none is in front of the files".to_owned(),
            });
        }
        (Some(header), named) => (header, named),
    };
    let Some(form) = FolderForm::named(&header.form) else {
        return Err(Error::Option {
            option: "form",
            found: format!("{path} was sealed as {}, which is unknown here", header.form),
            cure: "take the program that sealed it".to_owned(),
        });
    };
    let how = SealedForm { form, iv: header.iv };
    match named {
        Some(named)
            if named.form.name != form.name || (named.iv.is_some() && named.iv != how.iv) =>
        {
            Err(Error::Option {
                option: "form",
                found: format!("{path} was sealed otherwise, as {}", form.name),
                cure: "leave out form and IV; they are taken from the manifest".to_owned(),
            })
        }
        _ => Ok(how),
    }
}
