// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rows of files with tracks: samples a second that are entered into a plan from the page cache,
//! the bytes read for that, and the size of the plan.
//!
//! A movie of hours is MP4 with tables and MP4 of fragments; a shorter one is Matroska, which has
//! no tables. Each is read in the steps of the server's planner. Before it is timed the plan is
//! compared with the movie, sample by sample, through a file that counts the bytes read; a timed
//! run is compared by its number of samples and bytes.
//!
//! Sources: [`media::Demuxer`].
//! Does not measure the disk, or the first 4 KiB of a file, by which a server recognises its kind.

use std::cell::RefCell;
use std::fs::File;
use std::io;

use media::plan::PlanKey;
use media::{Demuxer, Presentation, ReadAt};

use super::counted::CountingFile;
use super::movie::Movie;
use super::mp4::{self, Written};
use super::{IDENTITY, Planning, add_failure, matroska};
use measure::Error;
use measure::memory::{Group, Member, Turns};
use measure::results::{Results, Row};
use measure::statistics::Figure;

/// A kind of file.
struct Format {
    name: &'static str,
    write: fn(&File, Movie) -> io::Result<Written>,
    /// Part of the movie that is written, as each sample may occupy a page.
    part: u64,
    /// True where no sample is to be read.
    has_tables: bool,
    /// Resolution of its times.
    tolerance_ticks: u64,
}

static FORMATS: &[Format] = &[
    Format {
        name: "MP4",
        write: mp4::write_progressive,
        part: 1,
        has_tables: true,
        tolerance_ticks: 0,
    },
    Format {
        name: "fragmented MP4",
        write: mp4::write_fragmented,
        part: 1,
        has_tables: true,
        tolerance_ticks: 0,
    },
    Format {
        name: "Matroska",
        write: matroska::write,
        part: 24,
        has_tables: false,
        // Milliseconds.
        tolerance_ticks: media::TICKS_PER_SECOND / 1000,
    },
];

/// A file to plan.
struct Tables {
    format: &'static Format,
    file: File,
    movie: Movie,
    written: Written,
}

/// Reads and memory of a file's plan.
struct Size {
    reads: u64,
    bytes_read: u64,
    sample_bytes_read: u64,
    memory_bytes: u64,
    stored_bytes: u64,
}

/// Measures all kinds of files.
pub(super) fn measure(
    planning: &Planning<'_>,
    turns: &mut Turns<'_>,
    results: &mut Results,
) -> Result<(), Error> {
    let mut files = Vec::new();
    for format in FORMATS {
        let movie = Movie::of_seconds(planning.movie_s / format.part);
        let failed = || Error::host(format!("writing {}", format.name));
        let file = tempfile::tempfile_in(&planning.folder).map_err(failed())?;
        let written = (format.write)(&file, movie).map_err(failed())?;
        let tables = Tables { format, file, movie, written };
        match tables.check() {
            Ok(size) => files.push((tables, size)),
            Err(found) => add_failure(results, format.name, found),
        }
    }
    let fault = RefCell::new(None);
    let members = files.iter().map(|(tables, size)| {
        let run = || {
            let wanted = (tables.movie.samples(), tables.sample_bytes());
            let found = demux(&tables.file, tables.written.bytes)
                .map(|found| (samples(&found), found.sample_bytes()));
            if found.as_ref() != Ok(&wanted) {
                let found = format!("{}: {found:?} of {wanted:?}", tables.format.name);
                fault.borrow_mut().get_or_insert(found);
            }
            size.bytes_read
        };
        Member::new(tables.format.name, run).of_operations(tables.movie.samples())
    });
    let (first, members) = (results.rows.len(), members.collect());
    let group = Group { parameters: Vec::new(), reference: "", members };
    turns.measure("files with tracks", group, results);
    if let Some(found) = fault.into_inner() {
        results.rows.truncate(first);
        add_failure(results, "tables", found);
        return Ok(());
    }
    // The bytes a second are those of tables, and no figure of a file.
    let is_speed = |row: &Row| row.metric == "throughput";
    let timed = results.rows.split_off(first);
    results.rows.extend(timed.into_iter().filter(|row| !is_speed(row)));
    super::name_times(results, first, TIME);
    files.iter().for_each(|(tables, size)| tables.add(size, results));
    Ok(())
}

impl Tables {
    /// Compares the plan with the movie; counts the bytes read.
    fn check(&self) -> Result<Size, String> {
        let Tables { format, file, movie, written } = self;
        let counting = CountingFile::new(file, &written.media);
        let found = demux(&counting, written.bytes)?;
        movie.check(&found, &written.places, format.tolerance_ticks)?;
        let sample_bytes_read = counting.media_bytes();
        if format.has_tables && sample_bytes_read > 0 {
            return Err(format!("{sample_bytes_read} bytes of samples were read"));
        }
        let path = b"/a/folder/of/films/a film of the measured kind".to_vec();
        let key = PlanKey { path, bytes: written.bytes, modified_ns: 1 << 60, inode: 1 << 20 };
        let stored = found.encode(&key);
        if Presentation::decode(&stored, &key).as_ref() != Ok(&found) {
            return Err("the plan is another one when it is stored and read again".to_owned());
        }
        Ok(Size {
            reads: counting.reads(),
            bytes_read: counting.bytes(),
            sample_bytes_read,
            memory_bytes: found.memory_bytes(),
            stored_bytes: stored.len() as u64,
        })
    }

    fn sample_bytes(&self) -> u64 {
        self.written.media.iter().map(|range| range.end - range.start).sum()
    }

    /// Adds the rows of a file behind its times.
    fn add(&self, size: &Size, results: &mut Results) {
        let Tables { format, movie, written, .. } = self;
        let (hours, samples) = (movie.hours(), movie.samples());
        let time = results.figure(format.name, TIME, &[]);
        let rate = time.map(|time| time.samples.iter().map(|ns| 1e3 / ns).collect::<Vec<_>>());
        let mut push = |metric: &str, unit: &str, figure: Figure| {
            results.rows.push(Row::new("planning", format.name, metric, unit, figure));
        };
        if let Some(rate) = rate {
            push("samples planned", "10⁶/s", Figure::of(rate));
        }
        let share = size.bytes_read as f64 / written.bytes as f64;
        for (metric, unit, value) in [
            ("read of the file", "%", share * 100.0),
            ("read of the samples", "bytes", size.sample_bytes_read as f64),
            ("read for a sample", "bytes", size.bytes_read as f64 / samples as f64),
            ("reads for a thousand samples", "calls", size.reads as f64 * 1e3 / samples as f64),
            ("plan in memory", "MB/h", size.memory_bytes as f64 / hours / 1e6),
            ("plan stored", "MB/h", size.stored_bytes as f64 / hours / 1e6),
        ] {
            push(metric, unit, Figure::derived(value));
        }
        results.notes.push(format!(
            "{}: {:.2} hours, {samples} samples, a file of {:.1} GB of which {:.1} MB are read in \
             {} reads; every sample of its plan compared with the movie",
            format.name,
            hours,
            written.bytes as f64 / 1e9,
            size.bytes_read as f64 / 1e6,
            size.reads,
        ));
    }
}

/// Plans a file.
fn demux(file: &impl ReadAt, bytes: u64) -> Result<Presentation, String> {
    let mut demuxer = Demuxer::of(file, bytes).ok_or("a file of no known kind")?;
    while !demuxer.advance(file, STEP_SAMPLES).map_err(|error| error.to_string())? {}
    demuxer.finish(|| IDENTITY).map_err(|refusal| refusal.to_string())
}

fn samples(found: &Presentation) -> u64 {
    found.tracks().iter().map(|track| track.samples.len() as u64).sum()
}

const TIME: &str = "time a sample";
/// Samples of a step, as of the server's planner.
const STEP_SAMPLES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_file_has_the_plan_of_its_movie() {
        for format in FORMATS {
            let movie = Movie::of_seconds(60);
            let file = tempfile::tempfile().unwrap();
            let written = (format.write)(&file, movie).unwrap();
            assert_eq!(file.metadata().unwrap().len(), written.bytes, "{}", format.name);
            let mut tables = Tables { format, file, movie, written };
            let size = tables.check().unwrap();
            assert!(size.bytes_read > 8 * size.reads && size.stored_bytes < size.memory_bytes);
            let last = tables.written.places[0].last_mut().unwrap();
            *last += 1;
            let found = tables.check().map(|size| size.reads).unwrap_err();
            assert!(found.starts_with("Pictures, sample "), "{}: {found}", format.name);
        }
    }
}
