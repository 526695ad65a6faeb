// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checkout whose kernel/ and guest/ the laboratory uses.
//!
//! Unlike the other experiments, this one needs more than the program: it builds kernels and boots
//! them, by scripts that lie beside the sources. It searches for them from the working folder
//! upwards, or in the folder of --tree.
//!
//! Does not check that they are of this program's version; the scripts report their own errors.

use std::path::{Path, PathBuf};

use measure::Error;

/// A folder with both.
pub(super) struct Checkout {
    root: PathBuf,
}

impl Checkout {
    /// Returns the checkout `tree`, or otherwise the one that contains `from`.
    ///
    /// # Errors
    /// [`Error::Caller`] for a tree that is not a checkout, [`Error::Unavailable`] when there is
    /// none.
    pub(super) fn find(tree: Option<&Path>, from: &Path) -> Result<Checkout, Error> {
        if let Some(tree) = tree {
            let missing = MARKS.iter().find(|mark| !tree.join(mark).is_file());
            return match missing {
                None => Ok(Checkout { root: absolute(tree) }),
                Some(mark) => Err(Error::Caller {
                    what: format!("--tree {}", tree.display()),
                    found: format!("no {mark} in it; name a checkout of pagewire"),
                }),
            };
        }
        let is_root = |folder: &&Path| MARKS.iter().all(|mark| folder.join(mark).is_file());
        match absolute(from).ancestors().find(is_root) {
            Some(root) => Ok(Checkout { root: root.to_owned() }),
            None => Err(Error::Unavailable {
                need: "a checkout of pagewire, whose kernel/ it builds and boots",
                found: "none from the working folder upwards; start it in one, or name one by \
                        --tree"
                    .to_owned(),
            }),
        }
    }

    /// Returns the path of a script or file of it.
    ///
    /// # Errors
    /// [`Error::Host`] when it has no file of that name.
    pub(super) fn file(&self, name: &str) -> Result<PathBuf, Error> {
        let path = self.root.join(name);
        if path.is_file() {
            return Ok(path);
        }
        let found = "not in this checkout; update it, or name another by --tree".to_owned();
        Err(Error::Host { what: name.to_owned(), found })
    }
}

/// Makes a path absolute, as scripts are also started from other folders.
fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Files that identify a checkout with a kernel laboratory.
const MARKS: [&str; 2] = ["kernel/uml/boot.sh", "guest/build.sh"];

#[cfg(test)]
mod tests {
    use super::super::program::tests::script;
    use super::*;

    #[test]
    fn a_checkout_is_found_upwards_or_by_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let found = |tree, from: &Path| Checkout::find(tree, from).map_err(|e| e.to_string());
        let error = found(Some(root), root).err().unwrap();
        assert!(error.contains("no kernel/uml/boot.sh in it; name a checkout"), "{error}");
        MARKS.iter().for_each(|mark| script(&root.join(mark), "exit 0"));
        let below = root.join("kernel/uml");
        assert_eq!(found(None, &below).unwrap().root, root.canonicalize().unwrap());
        let checkout = found(Some(root), Path::new("/")).unwrap();
        assert!(checkout.file("guest/build.sh").unwrap().ends_with("guest/build.sh"));
        let error = checkout.file("kernel/qemu/fetch.sh").unwrap_err().to_string();
        assert_eq!(
            error,
            "kernel/qemu/fetch.sh: not in this checkout; update it, or name another by --tree"
        );
        let error = found(None, Path::new("/")).err().unwrap();
        assert!(error.contains("none from the working folder upwards"), "{error}");
    }
}
