// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images: the file, the symbol and the source line of an address of the program.
//!
//! An address becomes a place in three steps: `/proc/PID/maps` names the file and the offset in it,
//! the file's segments turn the offset into the address it was linked for, and symbols and line
//! tables name that address. So position-independent programs and shared objects need no
//! special care, wherever the loader, or valgrind, maps them.
//!
//! Sources: proc_pid_maps(5); System V ABI, "Program Header"; DWARF 5 §6.2.
//!
//! Does not describe code that no file has (the vDSO, code made at run time); it is named by its
//! mapping and address. Mappings are kept after they are gone; a mapping at the same place replaces
//! the old one.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use addr2line::Loader;
use object::read::{ObjectSegment, ReadCache};
use object::{Object, ObjectSymbol, SymbolKind};
use serde::Serialize;

/// Symbol, source line and file of an instruction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The symbol of the instruction, demangled; empty when there is none.
    pub function: String,
    /// The function that was inlined there, when it differs from `function`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inlined: Option<String>,
    /// File and line, `src/main.rs:17`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The program or shared object.
    pub image: String,
    /// Address as linked, which `objdump` shows.
    pub address: u64,
}

/// A function of the program in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Address of its first instruction.
    pub address: u64,
    /// Name, demangled.
    pub name: String,
}

/// Executable memory and the files mapped there.
#[derive(Default)]
pub struct Images {
    /// Mappings by their end addresses.
    mappings: BTreeMap<u64, Mapping>,
    files: HashMap<PathBuf, Image>,
}

struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    path: PathBuf,
}

#[derive(Default)]
struct Image {
    segments: Vec<Segment>,
    loader: Option<Loader>,
}

/// A range of a file and the address it is linked for.
struct Segment {
    offset: u64,
    bytes: u64,
    address: u64,
}

impl Images {
    /// Adds the mappings in the text of `/proc/PID/maps`; returns the functions in new mappings
    /// whose name contains `pattern`, when there is one.
    pub fn read(&mut self, maps: &str, pattern: Option<&str>) -> Vec<Function> {
        let mut found = Vec::new();
        for line in maps.lines() {
            let Some((mapping, executable)) = parsed(line) else { continue };
            if executable && self.add(mapping.start, mapping.end, mapping.offset, &mapping.path) {
                let functions = pattern.map(|pattern| self.functions(mapping.end, pattern));
                found.extend(functions.into_iter().flatten());
            }
        }
        found
    }

    /// Adds a mapping; false when it was added before.
    pub(crate) fn add(&mut self, start: u64, end: u64, offset: u64, path: &Path) -> bool {
        if start >= end {
            return false;
        }
        let known = |old: &Mapping| {
            (old.start, old.end, old.offset) == (start, end, offset) && old.path == path
        };
        if self.mapping(start).is_some_and(known) {
            return false;
        }
        self.mappings.retain(|_, old| old.end <= start || old.start >= end);
        if self.mappings.len() >= MAPPINGS_MAX {
            return false;
        }
        let path = path.to_owned();
        self.files.entry(path.clone()).or_insert_with(|| Image::open(&path));
        self.mappings.insert(end, Mapping { start, end, offset, path });
        true
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        self.mapping(address).is_some()
    }

    /// Copies bytes at `address` from the file mapped there; returns their number.
    pub(crate) fn bytes(&self, address: u64, bytes: &mut [u8]) -> usize {
        let Some(mapping) = self.mapping(address) else { return 0 };
        let length = bytes.len().min(usize::try_from(mapping.end - address).unwrap_or(usize::MAX));
        let at = (address - mapping.start).wrapping_add(mapping.offset);
        let read = |file: File| file.read_at(&mut bytes[..length], at);
        File::open(&mapping.path).and_then(read).unwrap_or(0)
    }

    fn mapping(&self, address: u64) -> Option<&Mapping> {
        let (_, mapping) = self.mappings.range(address.checked_add(1)?..).next()?;
        (mapping.start <= address).then_some(mapping)
    }

    /// Returns the functions in the mapping that ends at `end` whose name contains `pattern`.
    fn functions(&self, end: u64, pattern: &str) -> Vec<Function> {
        let Some(mapping) = self.mappings.get(&end) else { return Vec::new() };
        let Ok(file) = File::open(&mapping.path) else { return Vec::new() };
        let cache = ReadCache::new(file);
        let Ok(file) = object::File::parse(&cache) else { return Vec::new() };
        let Some(image) = self.files.get(&mapping.path) else { return Vec::new() };
        let mut found = BTreeMap::new();
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            if symbol.kind() != SymbolKind::Text || symbol.is_undefined() {
                continue;
            }
            let Ok(name) = symbol.name() else { continue };
            let name = demangled(name);
            if !name.contains(pattern) {
                continue;
            }
            let address = image
                .offset_of(symbol.address())
                .and_then(|offset| mapping.start.checked_add(offset.checked_sub(mapping.offset)?));
            if let Some(address) = address.filter(|address| *address < mapping.end) {
                found.entry(address).or_insert(name);
            }
        }
        found.into_iter().map(|(address, name)| Function { address, name }).collect()
    }

    /// Describes the instruction at `address`.
    pub fn place(&self, address: u64) -> Place {
        let Some(mapping) = self.mapping(address) else {
            return Place { image: "no file".to_owned(), address, ..Place::default() };
        };
        let name = mapping.path.to_string_lossy().into_owned();
        let unknown = || Place { image: name.clone(), address, ..Place::default() };
        let Some(image) = self.files.get(&mapping.path) else { return unknown() };
        let offset = (address - mapping.start).wrapping_add(mapping.offset);
        let Some(linked) = image.address_of(offset) else { return unknown() };
        let mut place = Place { image: name, address: linked, ..Place::default() };
        if let Some(loader) = &image.loader {
            place.function = loader.find_symbol(linked).map(demangled).unwrap_or_default();
            describe(loader, linked, &mut place);
        }
        place
    }
}

/// Adds the source line and the inlined function around it. Of frames inlined into each other it is
/// the innermost outside the language's own library: a line that the programmer can change.
fn describe(loader: &Loader, linked: u64, place: &mut Place) {
    let Ok(mut frames) = loader.find_frames(linked) else { return };
    let mut inner = true;
    while let Ok(Some(frame)) = frames.next() {
        let function = frame.function.as_ref().and_then(|name| name.demangle().ok());
        if let Some(location) = &frame.location
            && let Some(file) = location.file
            && (place.source.is_none() || inner)
        {
            let line = location.line.map(|line| format!(":{line}")).unwrap_or_default();
            place.source = Some(format!("{file}{line}"));
            place.inlined = function.as_deref().map(str::to_owned);
            inner = LIBRARIES.iter().any(|part| file.contains(part));
        }
        // The last frame is the function that contains the code.
        if place.function.is_empty()
            && let Some(function) = function
        {
            place.function = function.into_owned();
        }
    }
    let same = |inlined: &String| {
        let last = |name: &str| name.rsplit("::").next().unwrap_or_default().to_owned();
        last(inlined) == last(&place.function)
    };
    if place.inlined.as_ref().is_some_and(same) {
        place.inlined = None;
    }
}

fn demangled(name: &str) -> String {
    addr2line::demangle_auto(name.into(), None).into_owned()
}

/// Parses a line of `/proc/PID/maps`; true when the mapping is executable.
fn parsed(line: &str) -> Option<(Mapping, bool)> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let (permissions, rest) = rest.split_once(' ')?;
    let (offset, rest) = rest.split_once(' ')?;
    let (_device, rest) = rest.split_once(' ')?;
    // The inode, then blanks up to the name, which may contain blanks itself.
    let (_inode, name) = rest.split_once(' ').unwrap_or((rest, ""));
    let hex = |digits| u64::from_str_radix(digits, 16).ok();
    let path = PathBuf::from(name.trim_start());
    let mapping = Mapping { start: hex(start)?, end: hex(end)?, offset: hex(offset)?, path };
    Some((mapping, permissions.contains('x')))
}

impl Image {
    /// An unreadable file has no segments, and its addresses have no names.
    fn open(path: &Path) -> Self {
        let Ok(file) = File::open(path) else { return Self::default() };
        let cache = ReadCache::new(file);
        let Ok(file) = object::File::parse(&cache) else { return Self::default() };
        let segments = file.segments().map(|segment| {
            let (offset, bytes) = segment.file_range();
            Segment { offset, bytes, address: segment.address() }
        });
        Self { segments: segments.collect(), loader: Loader::new(path).ok() }
    }

    fn address_of(&self, offset: u64) -> Option<u64> {
        let within = |segment: &&Segment| offset.wrapping_sub(segment.offset) < segment.bytes;
        let segment = self.segments.iter().find(within)?;
        Some(segment.address.wrapping_add(offset - segment.offset))
    }

    fn offset_of(&self, address: u64) -> Option<u64> {
        let within = |segment: &&Segment| address.wrapping_sub(segment.address) < segment.bytes;
        let segment = self.segments.iter().find(within)?;
        Some(segment.offset.wrapping_add(address - segment.address))
    }
}

/// Far more mappings than a program has; a bound nevertheless.
const MAPPINGS_MAX: usize = 65_536;
/// Folders of the languages' own libraries, whose intrinsics and copies are inlined everywhere.
const LIBRARIES: [&str; 3] = ["/rustc/", "/library/core/src/", "/lib/gcc/"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_read_with_names_that_hold_blanks() {
        let line = "7f00-8f00 r-xp 00001000 fe:01 12345                      /opt/a b (deleted)";
        let (mapping, executable) = parsed(line).unwrap();
        assert!(executable);
        assert_eq!((mapping.start, mapping.end, mapping.offset), (0x7f00, 0x8f00, 0x1000));
        assert_eq!(mapping.path, Path::new("/opt/a b (deleted)"));
        let (mapping, executable) = parsed("1000-2000 rw-p 00000000 00:00 0 ").unwrap();
        assert!(!executable && mapping.path.as_os_str().is_empty());
        for broken in ["", "1000", "1000-2000 r-xp", "x-y r-xp 0 0 0", "10-20 r-xp zz 00:00 0"] {
            assert!(parsed(broken).is_none(), "{broken:?}");
        }
    }

    #[test]
    fn a_mapping_has_the_bytes_of_its_file_up_to_its_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let content: Vec<u8> = (0..=255).cycle().take(5000).collect();
        std::fs::write(file.path(), &content).unwrap();
        let mut images = Images::default();
        assert!(images.add(0x1000, 0x2000, 100, file.path()));
        let read = |images: &Images, address| {
            let mut bytes = [0; 15];
            let length = images.bytes(address, &mut bytes);
            bytes[..length].to_vec()
        };
        assert_eq!(read(&images, 0x1234), content[100 + 0x234..][..15]);
        assert_eq!(read(&images, 0x1ffe), content[100 + 0xffe..][..2]);
        assert!(read(&images, 0x2000).is_empty(), "of no file");
        assert!(images.add(0x3000, 0x4000, 0, Path::new("/gone")));
        assert!(read(&images, 0x3000).is_empty(), "of a file that is not there");
    }

    #[test]
    fn a_mapping_replaces_what_it_covers() {
        let mut images = Images::default();
        let (a, b) = (Path::new("/a"), Path::new("/b"));
        assert!(images.add(0x1000, 0x3000, 0, a));
        assert!(!images.add(0x1000, 0x3000, 0, a), "known");
        assert!(images.add(0x5000, 0x6000, 0, a));
        assert!(images.add(0x2000, 0x5000, 0, b));
        assert!(!images.add(0x9000, 0x9000, 0, b), "empty");
        let of = |address| images.mapping(address).map(|mapping| mapping.path.as_path());
        assert_eq!((of(0x1000), of(0x2000), of(0x4fff)), (None, Some(b), Some(b)));
        assert_eq!((of(0x5000), of(0x6000), of(u64::MAX)), (Some(a), None, None));
        assert_eq!(images.place(0x100).image, "no file");
        assert_eq!(images.place(0x2345).image, "/b", "a file that is not there");
    }

    /// Finds this test's own code by the kernel's list of mappings.
    #[test]
    fn a_function_of_this_program_is_found_by_its_name_and_its_address() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut images = Images::default();
        let found = images.read(&maps, Some("images::tests::a_landmark"));
        let landmark = a_landmark as fn() -> u32 as usize as u64;
        let known = found.iter().find(|function| function.address == landmark);
        let known = known.unwrap_or_else(|| panic!("{landmark:#x} is not of {found:?}"));
        assert!(known.name.ends_with("images::tests::a_landmark"), "{known:?}");
        let place = images.place(landmark);
        assert!(place.function.ends_with("images::tests::a_landmark"), "{place:?}");
        let source = place.source.expect("tests are built with lines");
        assert!(source.contains("stalls/src/images.rs:"), "{source}");
        assert!(images.read(&maps, Some("a_landmark")).is_empty(), "nothing is new");
        assert_eq!(a_landmark(), 17);
    }

    #[inline(never)]
    fn a_landmark() -> u32 {
        std::hint::black_box(17)
    }
}
