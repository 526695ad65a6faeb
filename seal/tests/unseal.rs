// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sealed files open again, in every form, by both implementations and by other programs; changed
//! files get no name.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use seal::engine::{SealOutcome, SealProgress, Settings};
use seal::folder::opener::SealedFileFault;
use seal::folder::unseal::SealedForm;
use seal::folder::{self, FORMS, FolderForm, unseal, verify};
use seal::key::{Origin, Secret};
use seal::{Error, FileFault};
use tempfile::TempDir;

/// Folders of a source, its sealed files and its opened files.
struct Ground {
    _folder: TempDir,
    source: PathBuf,
    sealed: PathBuf,
    opened: PathBuf,
}

/// Sizes around the borders of slices, segments and blocks, and of the first of them.
const SIZES: [usize; 16] = [
    0, 1, 15, 16, 17, 4096, 32_711, 32_712, 32_713, 32_752, 32_768, 32_769, 65_463, 65_464, 65_465,
    300_001,
];

impl Ground {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let [source, sealed, opened] =
            ["source", "sealed", "opened"].map(|name| folder.path().join(name));
        std::fs::create_dir_all(source.join("a/b")).unwrap();
        for bytes in SIZES {
            std::fs::write(source.join(format!("a/b/{bytes}")), content(bytes)).unwrap();
        }
        let file = source.join("a/17 bytes");
        std::fs::write(&file, content(17)).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        let then = SystemTime::UNIX_EPOCH + Duration::new(1_000_000_007, 123_456_789);
        std::fs::File::open(&file).unwrap().set_modified(then).unwrap();
        Self { _folder: folder, source, sealed, opened }
    }

    fn seal(&self, form: &'static FolderForm, iv: Option<[u8; 16]>) {
        let options = folder::FolderOptions {
            source: self.source.clone(),
            target: self.sealed.clone(),
            form,
            iv,
            secret: key(form),
            stretch: None,
            sync: folder::Durability::None,
            force: false,
            verify: true,
        };
        let outcome = folder::plan(options, 1).unwrap();
        let outcome = outcome.seal(&settings(), &SealProgress::default()).unwrap();
        assert_eq!(messages(&outcome), [""; 0]);
    }

    fn unseal_options(&self, form: &'static FolderForm) -> unseal::UnsealOptions {
        unseal::UnsealOptions {
            source: self.sealed.clone(),
            target: self.opened.clone(),
            how: None,
            secret: key(form),
            sync: folder::Durability::None,
            force: false,
        }
    }

    fn unseal(&self, form: &'static FolderForm) -> SealOutcome {
        unsealed(self.unseal_options(form)).unwrap()
    }

    fn verify(
        &self,
        form: &'static FolderForm,
        how: Option<SealedForm>,
        has_source: bool,
    ) -> SealOutcome {
        let source = has_source.then(|| self.source.clone());
        let target = self.sealed.clone();
        let options = verify::VerifyOptions { target, source, how, secret: key(form) };
        verify::plan(options, 1).unwrap().verify(&settings(), &SealProgress::default()).unwrap()
    }

    /// Changes one sealed file and keeps its time: the manifest alone does not show the change.
    fn change(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let path = self.sealed.join(name);
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        change(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        std::fs::File::open(&path).unwrap().set_modified(modified).unwrap();
    }
}

fn unsealed(options: unseal::UnsealOptions) -> Result<SealOutcome, Error> {
    unseal::plan(options, 2)?.unseal(&settings(), &SealProgress::default())
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn settings() -> Settings {
    Settings::here(Some(2))
}

fn key(form: &FolderForm) -> Secret {
    let hex =
        &"000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"[..form.key_bytes * 2];
    Secret::from_hex(hex.as_bytes(), Origin::new("--key-file", "test.key")).unwrap()
}

fn form(name: &str) -> &'static FolderForm {
    FolderForm::named(name).unwrap()
}

fn messages(outcome: &SealOutcome) -> Vec<String> {
    outcome.failed.iter().map(ToString::to_string).collect()
}

/// Returns the faults of sealed files, by file name.
fn closed(outcome: &SealOutcome) -> Vec<(String, SealedFileFault)> {
    let fault = |error: &Error| match error {
        Error::File { path, fault: FileFault::Sealed(closed) } => {
            (path.file_name().unwrap().to_str().unwrap().to_owned(), closed.clone())
        }
        other => panic!("{other}"),
    };
    outcome.failed.iter().map(fault).collect()
}

/// Lists everything below a folder: content, permissions, time.
fn tree(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, u32, i64, i64)> {
    let mut tree = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            let content = match metadata.is_dir() {
                true => Vec::new(),
                false => std::fs::read(&path).unwrap(),
            };
            let below = path.strip_prefix(folder).unwrap().to_owned();
            let facts = (content, metadata.mode(), metadata.mtime(), metadata.mtime_nsec());
            tree.insert(below, facts);
            if metadata.is_dir() {
                folders.push(path);
            }
        }
    }
    tree
}

#[test]
fn every_form_opens_to_the_same_tree_and_both_implementations_agree() {
    for form in FORMS {
        for iv in [None, Some([9; 16])] {
            if iv.is_some() && !form.takes_iv {
                continue;
            }
            let ground = Ground::new();
            ground.seal(form, iv);
            let outcome = ground.unseal(form);
            assert_eq!(messages(&outcome), [""; 0], "{}", form.name);
            assert_eq!(outcome.done as usize, SIZES.len() + 1);
            assert!(tree(&ground.opened) == tree(&ground.source), "{} {iv:?}", form.name);
            for has_source in [false, true] {
                let outcome = ground.verify(form, None, has_source);
                assert_eq!(messages(&outcome), [""; 0], "{}", form.name);
                assert_eq!(outcome.done as usize, SIZES.len() + 1);
            }
            // The same without the manifest, as for another program's files.
            std::fs::remove_file(ground.sealed.join(seal::manifest::NAME)).unwrap();
            std::fs::remove_dir_all(&ground.opened).unwrap();
            let how = Some(SealedForm { form, iv });
            let options = unseal::UnsealOptions { how, ..ground.unseal_options(form) };
            assert_eq!(messages(&unsealed(options).unwrap()), [""; 0]);
            assert!(tree(&ground.opened) == tree(&ground.source), "{} {iv:?}", form.name);
            assert_eq!(messages(&ground.verify(form, how, true)), [""; 0]);
        }
    }
}

#[test]
fn nothing_that_was_changed_cut_or_swapped_gets_a_name() {
    for form in FORMS {
        let ground = Ground::new();
        ground.seal(form, None);
        let flip = |at: usize| move |bytes: &mut Vec<u8>| bytes[at] ^= 0x10;
        ground.change("a/b/300001", flip(200_000));
        ground.change("a/b/65465", flip(0));
        ground.change("a/b/65464", |bytes| *bytes.last_mut().unwrap() ^= 1);
        ground.change("a/b/32769", |bytes| bytes.truncate(bytes.len() - 16));
        ground.change("a/b/32768", |bytes| bytes.push(0));
        ground.change("a/b/4096", Vec::clear);
        // A file swapped for another of the same length: authentic, and not the original.
        std::fs::copy(ground.sealed.join("a/b/17"), ground.sealed.join("a/17 bytes")).unwrap();
        std::fs::write(ground.source.join("a/b/17"), [7; 17]).unwrap();
        std::fs::remove_file(ground.sealed.join("a/b/16")).unwrap();
        std::fs::write(ground.sealed.join("a/b/new"), [0; 64]).unwrap();

        let outcome = ground.unseal(form);
        let failed: BTreeMap<_, _> = closed(&outcome).into_iter().collect();
        let names: Vec<&str> = failed.keys().map(String::as_str).collect();
        let expected = ["16", "300001", "32768", "32769", "4096", "65464", "65465", "new"];
        assert_eq!(names, expected, "{}", form.name);
        for name in ["300001", "65464", "65465"] {
            assert_eq!(failed[name], SealedFileFault::Sealed, "{} {name}", form.name);
        }
        for name in ["32768", "32769", "4096"] {
            let resized = matches!(failed[name], SealedFileFault::Resized { .. });
            assert!(resized, "{} {name}: {}", form.name, failed[name]);
        }
        assert_eq!(
            (&failed["16"], &failed["new"]),
            (&SealedFileFault::Missing, &SealedFileFault::Extra)
        );
        for name in expected {
            assert!(!ground.opened.join("a/b").join(name).exists(), "{name}");
        }
        // Both files had the same content, so the swapped one opens to the original.
        assert_eq!(std::fs::read(ground.opened.join("a/17 bytes")).unwrap(), content(17));
        assert_eq!(std::fs::read(ground.opened.join("a/b/17")).unwrap(), content(17));

        // The other implementation finds the same; compared with the source, one more differs.
        let verified = ground.verify(form, None, false);
        let mut names: Vec<String> = closed(&verified).into_iter().map(|(name, _)| name).collect();
        names.sort();
        assert_eq!(names, expected, "{}", form.name);
        let verified = ground.verify(form, None, true);
        let differing: Vec<_> = closed(&verified);
        let other = ("17".to_owned(), SealedFileFault::Differs { offset: 0 });
        assert!(differing.contains(&other), "{} {differing:?}", form.name);
        assert_eq!(differing.len(), expected.len() + 1, "{differing:?}");
    }
}

#[test]
fn a_file_in_place_of_another_is_noticed() {
    for form in FORMS {
        let ground = Ground::new();
        std::fs::write(ground.source.join("a/other"), [7; 17]).unwrap();
        ground.seal(form, None);
        std::fs::copy(ground.sealed.join("a/other"), ground.sealed.join("a/b/17")).unwrap();
        let expected =
            if form.name == "gcm" { SealedFileFault::Other } else { SealedFileFault::Sealed };
        let outcome = ground.unseal(form);
        assert_eq!(closed(&outcome), [("17".to_owned(), expected.clone())], "{}", form.name);
        assert!(!ground.opened.join("a/b/17").exists());
        let outcome = ground.verify(form, None, false);
        assert_eq!(closed(&outcome), [("17".to_owned(), expected)], "{}", form.name);
        let outcome = ground.verify(form, None, true);
        let differs = SealedFileFault::Differs { offset: 0 };
        assert_eq!(closed(&outcome), [("17".to_owned(), differs)], "{}", form.name);
    }
}

#[test]
fn each_cut_and_each_changed_byte_of_a_small_file_is_refused() {
    for form in FORMS {
        let ground = Ground::new();
        ground.seal(form, None);
        let whole = std::fs::read(ground.sealed.join("a/17 bytes")).unwrap();
        let folder = ground.sealed.parent().unwrap().join("cuts");
        std::fs::create_dir(&folder).unwrap();
        for cut in 0..whole.len() {
            std::fs::write(folder.join(format!("cut {cut}")), &whole[..cut]).unwrap();
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x40;
            std::fs::write(folder.join(format!("changed {at}")), changed).unwrap();
        }
        let how = Some(SealedForm { form, iv: None });
        let source = folder.clone();
        let target = ground.opened.clone();
        let options = unseal::UnsealOptions { source, target, how, ..ground.unseal_options(form) };
        let outcome = unsealed(options).unwrap();
        let opened = tree(&ground.opened);
        assert_eq!(outcome.failed.len() + opened.len(), 2 * whole.len());
        if form.name == "gcm" {
            assert!(opened.is_empty(), "{:?}", opened.keys());
            continue;
        }
        // CBC without a manifest detects less: changes of the IV and of whole blocks open, and so
        // do cuts between blocks.
        for (path, (content, ..)) in &opened {
            let (what, at) = path.to_str().unwrap().split_once(' ').unwrap();
            assert!(*content != self::content(17));
            assert!(what == "changed" || at.parse::<usize>().unwrap() % 16 == 0, "{path:?}");
        }
    }
}

#[test]
fn a_wrong_key_is_noticed_before_anything_is_made() {
    for form in FORMS {
        let ground = Ground::new();
        ground.seal(form, None);
        let secret = Secret::random(form.key_bytes).unwrap();
        let options =
            unseal::UnsealOptions { secret: secret.clone(), ..ground.unseal_options(form) };
        let error = unsealed(options).unwrap_err();
        assert!(error.is_caller() && error.to_string().contains("was sealed with"), "{error}");
        assert!(!ground.opened.exists());
        let target = ground.sealed.clone();
        let options =
            verify::VerifyOptions { target, source: None, how: None, secret: secret.clone() };
        assert!(verify::plan(options, 1).unwrap_err().is_caller());

        // Without the manifest a wrong key is found in the files only.
        std::fs::remove_file(ground.sealed.join(seal::manifest::NAME)).unwrap();
        let how = Some(SealedForm { form, iv: None });
        let options = unseal::UnsealOptions { secret, how, ..ground.unseal_options(form) };
        let outcome = unsealed(options).unwrap();
        assert!(closed(&outcome).iter().all(|(_, closed)| *closed == SealedFileFault::Sealed));
        let expected = tree(&ground.source);
        for (path, (content, ..)) in tree(&ground.opened) {
            // One CBC file in 256 has a right padding by chance.
            assert!(form.takes_iv || content.is_empty(), "{path:?}");
            assert!(content.is_empty() || content != expected[&path].0, "{path:?}");
        }
    }
}

#[test]
fn what_is_there_is_not_replaced_unless_that_is_said() {
    let form = form("gcm");
    let ground = Ground::new();
    ground.seal(form, None);
    std::fs::create_dir_all(ground.opened.join("a/b")).unwrap();
    std::fs::write(ground.opened.join("a/b/16"), b"mine").unwrap();
    let outcome = ground.unseal(form);
    assert_eq!(outcome.failed.len(), 1);
    let exists = matches!(&outcome.failed[0], Error::File { fault: FileFault::Exists, .. });
    assert!(exists, "{}", outcome.failed[0]);
    assert_eq!(std::fs::read(ground.opened.join("a/b/16")).unwrap(), b"mine");
    assert_eq!(outcome.done as usize, SIZES.len());
    let options = unseal::UnsealOptions { force: true, ..ground.unseal_options(form) };
    assert_eq!(messages(&unsealed(options).unwrap()), [""; 0]);
    assert!(tree(&ground.opened) == tree(&ground.source));
}

#[test]
fn what_cannot_be_said_of_a_folder_is_asked_for() {
    let form = form("aes-256-cbc");
    let ground = Ground::new();
    ground.seal(form, None);
    let how = Some(SealedForm { form: self::form("gcm"), iv: None });
    let error = unsealed(unseal::UnsealOptions { how, ..ground.unseal_options(form) }).unwrap_err();
    assert!(error.to_string().starts_with("form: "), "{error}");
    assert!(error.to_string().contains("was sealed otherwise, as aes-256-cbc"), "{error}");
    std::fs::remove_file(ground.sealed.join(seal::manifest::NAME)).unwrap();
    let error = unsealed(ground.unseal_options(form)).unwrap_err();
    assert!(error.to_string().contains("none named, and"), "{error}");
    let how = Some(SealedForm { form, iv: None });
    let target = ground.sealed.clone();
    let options = verify::VerifyOptions { target, source: None, how, secret: key(form) };
    let error = verify::plan(options, 1).unwrap_err();
    assert!(error.to_string().starts_with("source: none, and"), "{error}");
    let how = Some(SealedForm { form: self::form("aes-128-cbc"), iv: None });
    let error = unsealed(unseal::UnsealOptions { how, ..ground.unseal_options(form) }).unwrap_err();
    assert!(error.to_string().contains("a key of 32 bytes; aes-128-cbc takes 16"), "{error}");
    assert!(!ground.opened.exists());
}

#[test]
fn files_of_openssl_enc_open() {
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("skip: openssl: not installed");
        return;
    }
    for form in FORMS.iter().filter(|form| form.takes_iv) {
        let ground = Ground::new();
        std::fs::create_dir(&ground.sealed).unwrap();
        let iv = [0x5A; 16];
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        for bytes in SIZES {
            let status = Command::new("openssl")
                .args(["enc", &format!("-{}", form.name), "-K", &hex(key(form).bytes())])
                .args(["-iv", &hex(&iv), "-in"])
                .arg(ground.source.join(format!("a/b/{bytes}")))
                .arg("-out")
                .arg(ground.sealed.join(bytes.to_string()))
                .status()
                .unwrap();
            assert!(status.success());
        }
        let how = Some(SealedForm { form, iv: Some(iv) });
        let options = unseal::UnsealOptions { how, ..ground.unseal_options(form) };
        assert_eq!(messages(&unsealed(options).unwrap()), [""; 0]);
        for bytes in SIZES {
            let opened = std::fs::read(ground.opened.join(bytes.to_string())).unwrap();
            assert!(opened == content(bytes), "{} {bytes}", form.name);
        }
    }
}

#[test]
fn what_sealing_passes_over_verifying_passes_over() {
    let form = &FORMS[0];
    let ground = Ground::new();
    std::os::unix::fs::symlink("elsewhere", ground.source.join("link")).unwrap();
    ground.seal(form, None);
    let outcome = ground.verify(form, None, true);
    assert_eq!(messages(&outcome), [""; 0]);
    assert_eq!(outcome.passed_over.len(), 1, "{:?}", outcome.passed_over);
}

/// Another implementation, Tink for Python, opens and seals: `make test-clients`.
mod clients {
    use super::*;

    /// Returns the Python that scripts/setup.sh installs with Tink, or else the system's.
    fn python_with_tink() -> PathBuf {
        let installed =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../out/test-tools/python/bin/python3");
        let installed = Some(PathBuf::from(installed)).filter(|path| path.exists());
        installed.unwrap_or_else(|| PathBuf::from("python3"))
    }

    #[test]
    fn tink_opens_what_is_sealed_and_what_it_seals_opens() {
        let python = |script: &Path, arguments: &[&Path]| {
            Command::new(python_with_tink()).arg(script).args(arguments).output()
        };
        let ground = Ground::new();
        let script = ground.source.parent().unwrap().join("interop.py");
        std::fs::write(&script, include_str!("tink.py")).unwrap();
        match python(&script, &[]) {
            Ok(output) if output.status.success() => {}
            Ok(_) => return eprintln!("skip: the Python package tink: not installed"),
            Err(error) => return eprintln!("skip: python3: not installed: {error}"),
        }
        let form = form("gcm");
        ground.seal(form, None);
        let by_tink = ground.source.parent().unwrap().join("by tink");
        let opened = ground.source.parent().unwrap().join("opened by tink");
        for folder in [&by_tink, &opened] {
            std::fs::create_dir(folder).unwrap();
        }
        for (verb, from, to) in
            [("open", &ground.sealed, &opened), ("seal", &ground.source, &by_tink)]
        {
            let output = python(&script, &[verb.as_ref(), &from.join("a/b"), to]).unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        let how = Some(SealedForm { form, iv: None });
        let options = unseal::UnsealOptions { source: by_tink, how, ..ground.unseal_options(form) };
        assert_eq!(messages(&unsealed(options).unwrap()), [""; 0]);
        for bytes in SIZES {
            let name = bytes.to_string();
            assert!(std::fs::read(opened.join(&name)).unwrap() == content(bytes), "{bytes}");
            assert!(std::fs::read(ground.opened.join(&name)).unwrap() == content(bytes), "{bytes}");
        }
    }

    #[test]
    fn the_documented_recipe_for_python_opens_a_sealed_file_and_no_changed_one() {
        let document = include_str!("../../docs/sealing.md");
        let recipe = document.split_once("```python\n").expect("a recipe for Python").1;
        let (recipe, _) = recipe.split_once("```").expect("it ends");
        let ground = Ground::new();
        let at = |name: &str| ground.source.parent().unwrap().join(name);
        std::fs::write(at("open.py"), recipe).unwrap();
        let digits: String = (0..32).map(|byte| format!("{byte:02x}")).collect();
        std::fs::write(at("key"), digits + "\n").unwrap();
        match Command::new(python_with_tink()).args(["-c", "import tink"]).output() {
            Ok(output) if output.status.success() => {}
            Ok(_) => return eprintln!("skip: the Python package tink: not installed"),
            Err(error) => return eprintln!("skip: python3: not installed: {error}"),
        }
        ground.seal(form("gcm"), None);
        let open = |sealed: &Path| {
            let mut python = Command::new(python_with_tink());
            python.arg(at("open.py")).arg(at("key")).arg(sealed).arg(at("clear"));
            python.output().unwrap()
        };
        for bytes in SIZES {
            let sealed = ground.sealed.join("a/b").join(bytes.to_string());
            let output = open(&sealed);
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert!(std::fs::read(at("clear")).unwrap() == content(bytes), "{bytes}");
            let mut changed = std::fs::read(&sealed).unwrap();
            *changed.last_mut().unwrap() ^= 1;
            std::fs::write(at("changed"), changed).unwrap();
            assert!(!open(&at("changed")).status.success(), "{bytes}: changed");
        }
    }
}
