// SPDX-License-Identifier: MIT OR Apache-2.0
//! Part vectorise: loops of a kernel that the compiler vectorises by itself.
//!
//! Building a kernel for the table takes minutes, and its result changes with the compiler alone,
//! so the table is made by hand (`make vectorise`) and committed; this part reads it. It includes
//! the table of the simd-copy paper, file by file.
//!
//! Sources: Saito and Oikawa, section 5.2 and table 1; kernel/vectorise/result.md.
//! Does not build a kernel.

use std::fs;

use super::KernelLab;
use measure::Error;
use measure::results::{Results, Row};
use measure::statistics::Figure;

/// A line of the table.
#[derive(Debug, PartialEq)]
struct File<'a> {
    name: &'a str,
    published: Option<u32>,
    loops: u32,
    blocks: u32,
    /// Reason for a missing count: the file is gone, or was not compiled.
    absent: &'a str,
}

pub(super) fn measure(lab: &KernelLab<'_>, results: &mut Results) -> Result<(), Error> {
    let path = lab.checkout.file(RESULT)?;
    let text = fs::read_to_string(&path).map_err(Error::host(RESULT))?;
    let files = files(&text);
    if files.is_empty() {
        let found = "no table of files, loops and blocks in it; make it anew: make vectorise";
        return Err(Error::Host { what: RESULT.to_owned(), found: found.to_owned() });
    }
    add(&text, &files, results);
    Ok(())
}

fn add(text: &str, files: &[File<'_>], results: &mut Results) {
    let sum = |of: fn(&File<'_>) -> u32| files.iter().map(of).sum::<u32>();
    let blocks_alone = others(text).map_or(String::new(), |(files, blocks)| {
        format!(", and {blocks} in {files} files that have no such loop")
    });
    results.notes.push(format!(
        "vectorise: {} of these files have a vectorised loop, {} loops; published: {} loops; basic \
         blocks, which the paper's compiler did not report: {} in these files{blocks_alone}",
        files.iter().filter(|file| file.loops > 0).count(),
        sum(|file| file.loops),
        sum(|file| file.published.unwrap_or(0)),
        sum(|file| file.blocks),
    ));
    let absent = files.iter().filter(|file| !file.absent.is_empty());
    let absent: Vec<String> =
        absent.map(|file| format!("{} ({})", file.name, file.absent)).collect();
    if !absent.is_empty() {
        let absent = absent.join(", ");
        results.notes.push(format!("vectorise: no count, as there was nothing to count: {absent}"));
    }
    results.notes.push(
        "vectorise: the kernel of this table was built and not timed; what its vectors are worth \
         is not measured"
            .to_owned(),
    );
    results.notes.extend(built_with(text).map(|with| format!("vectorise: {with}")));
    let row = |member: &str, metric: &str, unit: &str, count: u32| {
        Row::new("kernel", member, metric, unit, Figure::of(vec![f64::from(count)]))
    };
    let published = |member: &str, count: u32| {
        let figure = Figure::published(f64::from(count));
        let row = Row::new("kernel", member, LOOPS, UNIT, figure);
        Row { published: Some(SOURCE.to_owned()), ..row }
    };
    results.rows.push(row(ALL, LOOPS, UNIT, sum(|file| file.loops)));
    results.rows.push(published(ALL, sum(|file| file.published.unwrap_or(0))));
    for file in files {
        if file.absent.is_empty() {
            results.rows.push(row(file.name, LOOPS, UNIT, file.loops));
        }
        results.rows.extend(file.published.map(|count| published(file.name, count)));
    }
    for file in files.iter().filter(|file| file.blocks > 0) {
        results
            .rows
            .push(row(file.name, "vectorised basic blocks", "blocks", file.blocks).as_detail());
    }
}

/// Parses the lines with a file's name in code marks: file, published, loops, blocks, and the
/// reason for a missing count.
fn files(text: &str) -> Vec<File<'_>> {
    let file = |line| {
        let [name, published, loops, blocks, absent] = cells(line)?;
        let name = name.strip_prefix('`')?.strip_suffix('`')?;
        let published = match published {
            "" => None,
            count => Some(count.parse().ok()?),
        };
        let count = |cell: &str| if absent.is_empty() { cell.parse().ok() } else { Some(0) };
        Some(File { name, published, loops: count(loops)?, blocks: count(blocks)?, absent })
    };
    text.lines().filter_map(file).collect()
}

/// Parses the number of files with basic blocks alone, and of their blocks.
fn others(text: &str) -> Option<(u32, u32)> {
    text.lines().find_map(|line| {
        let [name, _, _, blocks, _] = cells(line)?;
        let files = name.strip_suffix(" other files, basic blocks only")?;
        Some((files.parse().ok()?, blocks.parse().ok()?))
    })
}

fn cells(line: &str) -> Option<[&str; 5]> {
    let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    let cells: Vec<&str> = inner.split('|').map(str::trim).collect();
    cells.try_into().ok()
}

/// Returns the sentence that names kernel, compiler and flags.
fn built_with(text: &str) -> Option<String> {
    let begin = text.find("\nLinux ")? + 1;
    let rest = &text[begin..];
    let sentence = rest.split_once(';').map_or(rest, |(sentence, _)| sentence);
    (sentence.len() < SENTENCE_BYTES_MAX)
        .then(|| sentence.split_whitespace().collect::<Vec<_>>().join(" ").replace('`', ""))
}

const RESULT: &str = "kernel/vectorise/result.md";
const LOOPS: &str = "vectorised loops";
const UNIT: &str = "loops";
const ALL: &str = "all files";
const SOURCE: &str = "Saito and Oikawa, table 1 (Linux 2.6.39.3, GCC 4.6.1)";
const SENTENCE_BYTES_MAX: usize = 400;

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# What\n\nLinux 6.12.57 for User Mode Linux, gcc 12.2.0,\n`-O2 -msse2`; \
        configuration: x.\n\n\
        | file | loops published (2.6.39, GCC 4.6) | loops | basic blocks | not counted |\n\
        |---|---|---|---|---|\n\
        | `lib/bitmap.c` | 5 | 6 | 3 | |\n| `fs/ext2/inode.c` | 2 | 0 | 0 | |\n\
        | `fs/ext3/hash.c` | 2 | | | gone from the kernel |\n\
        | `lib/sort.c` |  | 3 | 0 | |\n| 407 other files, basic blocks only | | | 2100 | |\n\
        | all | 23 in 16 files | 9 in 2 files | 2103 | |\n";

    #[test]
    fn the_table_is_read_with_what_was_published() {
        let found = files(TEXT);
        let bitmap =
            File { name: "lib/bitmap.c", published: Some(5), loops: 6, blocks: 3, absent: "" };
        assert_eq!((found.len(), &found[0]), (4, &bitmap));
        assert_eq!(others(TEXT), Some((407, 2100)));
        let with = built_with(TEXT).unwrap();
        assert_eq!(with, "Linux 6.12.57 for User Mode Linux, gcc 12.2.0, -O2 -msse2");
        assert!(files("| a | b |\n| `x` | 1 | y | 2 | |\n").is_empty());
        let mut results = Results::new("kernel", []);
        add(TEXT, &found, &mut results);
        let all = results.figure(ALL, LOOPS, &[]).unwrap();
        assert_eq!(all.median, 9.0);
        let published: Vec<_> = results.rows.iter().filter(|row| row.published.is_some()).collect();
        assert_eq!(published.len(), 4);
        assert_eq!(published[0].figure.median, 9.0, "of this table");
        assert_eq!(results.figure("fs/ext2/inode.c", LOOPS, &[]).map(|f| f.median), Some(0.0));
        assert_eq!(results.figure("fs/ext3/hash.c", LOOPS, &[]), None, "no loop of no file");
        let gone = "fs/ext3/hash.c (gone from the kernel)";
        assert!(results.notes[1].ends_with(gone), "{}", results.notes[1]);
        assert!(results.notes[0].contains("2 of these files have"), "{}", results.notes[0]);
        assert!(measure::Warning::of_rows(&results.rows).is_empty(), "counts are no samples");
    }
}
