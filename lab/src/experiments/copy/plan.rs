// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plans of a run: the routines, sizes and placements that are measured.
//!
//! Sources: Saito and Oikawa, figure 6, for the sizes.
//! Does not measure.

use crate::specimens::copy::Copier;
use crate::specimens::copy::published::ROUTINES;
use simd::Kernels;

use super::arena::{Mixed, Offsets, Places};
use super::routine::{MEMCPY, Routine};
use measure::Error;
use measure::Options;

/// Copies that are timed in interleaved rounds.
pub(super) struct Plan {
    pub(super) parameters: Vec<(&'static str, String)>,
    pub(super) routines: Vec<Routine>,
    /// The reference of the others.
    pub(super) reference: Routine,
    pub(super) copies: Copies,
    pub(super) offsets: Offsets,
    /// True when its rows enter only the summary.
    pub(super) aside: bool,
    bytes: usize,
}

/// Sizes and places of the copies.
pub(super) enum Copies {
    OfOneSize(Places),
    Mixed(Mixed),
}

impl Plan {
    /// Returns the text for the progress bar.
    pub(super) fn title(&self) -> String {
        let values: Vec<&str> = self.parameters.iter().map(|(_, value)| value.as_str()).collect();
        values.join(", ")
    }

    /// Returns the number of copies a call makes: some tens of microseconds.
    pub(super) fn calls(&self) -> usize {
        (CALL_BYTES / (self.bytes + CALL_OVERHEAD_BYTES)).max(1)
    }

    /// Returns the bytes of the arena that the plan needs.
    pub(super) fn bytes_max(&self) -> usize {
        match &self.copies {
            Copies::OfOneSize(places) => places.reach(),
            Copies::Mixed(_) => self.bytes,
        }
    }
}

/// Selected routines, by kind.
pub(super) struct Sorts {
    /// All copies except those of fixed sizes and those with non-temporal stores.
    copies: Vec<Routine>,
    fixed: Vec<Routine>,
    past_caches: Vec<Routine>,
    /// Members of [`Sorts::copies`] that run at every alignment.
    everywhere: Vec<Routine>,
    sums: Vec<Routine>,
    then_sum: Routine,
}

impl Sorts {
    /// # Errors
    /// [`Error::Caller`] when a selected name is not a routine of this host.
    pub(super) fn of(ours: Copier, options: &Options) -> Result<Sorts, Error> {
        let sum = Kernels::here().checksum;
        let mut copies = vec![Routine::Memcpy];
        copies.extend(ROUTINES.iter().map(Routine::Published));
        copies.extend(Copier::all().map(Routine::Copier));
        let then_sum = Routine::MemcpyThenSum(sum);
        let mut sorts = Sorts {
            everywhere: copies
                .iter()
                .copied()
                .filter(|routine| match routine {
                    Routine::Published(routine) => routine.name == PUBLISHED,
                    Routine::Copier(copier) => copier.name() == ours.name(),
                    _ => true,
                })
                .collect(),
            copies,
            fixed: Copier::all().map(Routine::Fixed).collect(),
            past_caches: Copier::all().skip(1).map(Routine::PastCaches).collect(),
            sums: [then_sum, Routine::ThenSum(ours, sum)]
                .into_iter()
                .chain(Copier::all().map(Routine::AndSum))
                .collect(),
            then_sum,
        };
        sorts.keep(options)?;
        Ok(sorts)
    }

    /// Drops the routines that are not selected; references stay.
    fn keep(&mut self, options: &Options) -> Result<(), Error> {
        let names = &options.members;
        if names.is_empty() {
            return Ok(());
        }
        let lists = || [&self.copies, &self.fixed, &self.past_caches, &self.sums];
        let known: Vec<String> =
            lists().into_iter().flatten().map(|routine| routine.name()).collect();
        if let Some(unknown) = names.iter().find(|name| !known.contains(name)) {
            return Err(Error::Caller {
                what: format!("member {unknown}"),
                found: format!("no such routine here; write a name of {}", known.join("; ")),
            });
        }
        let then_sum = self.then_sum.name();
        let keep = |routine: &Routine| {
            let name = routine.name();
            names.contains(&name) || name == MEMCPY || name == then_sum
        };
        for list in [
            &mut self.copies,
            &mut self.fixed,
            &mut self.past_caches,
            &mut self.everywhere,
            &mut self.sums,
        ] {
            list.retain(keep);
        }
        Ok(())
    }
}

/// Returns all plans of a run in order, without those larger than `most` bytes, and the bytes that
/// all of them would need.
pub(super) fn all(sorts: &Sorts, options: &Options, most: usize) -> (Vec<Plan>, usize) {
    let grid = if options.quick { &QUICK } else { &FULL };
    let asked = |sizes: &[usize], least: usize, most: usize| -> Vec<usize> {
        match options.sizes.is_empty() {
            true => sizes.to_vec(),
            false => {
                let asked = options.sizes.iter().map(|size| *size as usize);
                asked.filter(|size| (least..=most).contains(size)).collect()
            }
        }
    };
    let mut plans = Vec::new();
    for (index, placement) in PLACEMENTS.iter().enumerate().take(grid.placements) {
        let fine = if index == 0 { grid.between } else { &[] };
        let mut sizes = [grid.sizes, fine].concat();
        sizes.sort_unstable();
        for bytes in asked(&sizes, 1, SMALL_BYTES_MAX) {
            let routines = [&sorts.copies[..], &sorts.fixed].concat();
            plans.push(one_size(placement, "hot", Places::hot(bytes), routines));
        }
    }
    for placement in &PLACEMENTS[..MAIN] {
        for bytes in asked(grid.large, SMALL_BYTES_MAX + 1, usize::MAX) {
            let routines = [&sorts.copies[..], &sorts.past_caches].concat();
            plans.push(one_size(placement, "hot", Places::hot(bytes), routines));
        }
    }
    for bytes in asked(grid.cold, 1, grid.cold_bytes / 4) {
        let routines = [&sorts.copies[..], &sorts.fixed, &sorts.past_caches].concat();
        let places = Places::cold(bytes, grid.cold_bytes);
        plans.push(one_size(&PLACEMENTS[0], "cold", places, routines));
    }
    for bytes in asked(grid.sums, 1, usize::MAX) {
        let plan = one_size(&PLACEMENTS[0], "hot", Places::hot(bytes), sorts.sums.clone());
        plans.push(Plan { reference: sorts.then_sum, ..plan });
    }
    if options.sizes.is_empty() {
        plans.extend(grid.mixed.iter().map(|&range| mixed(sorts, range)));
        plans.extend(alignments(sorts, grid));
    }
    let reach = plans.iter().map(Plan::bytes_max).max().unwrap_or(0);
    plans.retain(|plan| plan.bytes_max() <= most && plan.routines.len() > 1);
    (plans, reach)
}

fn one_size(
    (placement, offsets): &(&str, Offsets),
    memory: &str,
    places: Places,
    routines: Vec<Routine>,
) -> Plan {
    let bytes = places.bytes();
    let parameters = [
        ("memory", memory.to_owned()),
        ("placement", (*placement).to_owned()),
        ("bytes", bytes.to_string()),
    ];
    Plan {
        parameters: parameters.to_vec(),
        routines: routines.into_iter().filter(|routine| routine.is_for(bytes)).collect(),
        reference: Routine::Memcpy,
        copies: Copies::OfOneSize(places),
        offsets: *offsets,
        aside: false,
        bytes,
    }
}

/// Returns the plan of random sizes.
fn mixed(sorts: &Sorts, (least, most): (usize, usize)) -> Plan {
    let (placement, offsets) = PLACEMENTS[0];
    let parameters = [
        ("memory", "hot".to_owned()),
        ("placement", placement.to_owned()),
        ("sizes", format!("{least} to {most}, mixed")),
    ];
    Plan {
        parameters: parameters.to_vec(),
        routines: sorts.copies.clone(),
        reference: Routine::Memcpy,
        copies: Copies::Mixed(Mixed::new(least, most)),
        offsets,
        aside: false,
        bytes: most,
    }
}

/// Returns the plans of every size at every pair of offsets.
fn alignments(sorts: &Sorts, grid: &Grid) -> Vec<Plan> {
    let mut plans = Vec::new();
    for &source in grid.offsets {
        for &target in grid.offsets {
            for &bytes in grid.sizes.iter().filter(|bytes| bytes.is_multiple_of(PAPER_STEP)) {
                let placement = ("any", Offsets { source, target });
                let routines = sorts.everywhere.clone();
                let mut plan = one_size(&placement, "hot", Places::hot(bytes), routines);
                plan.parameters.push(("source", source.to_string()));
                plan.parameters.push(("target", target.to_string()));
                plans.push(Plan { aside: true, ..plan });
            }
        }
    }
    plans
}

/// True when a placement is measured at every size.
pub(super) fn is_main(name: &str) -> bool {
    PLACEMENTS[..MAIN].iter().any(|(placement, _)| *placement == name)
}

/// Sizes and placements of a run.
struct Grid {
    sizes: &'static [usize],
    /// Sizes between those, measured where both ends are aligned.
    between: &'static [usize],
    placements: usize,
    large: &'static [usize],
    cold: &'static [usize],
    /// Bytes that cold copies walk through; more than any cache.
    cold_bytes: usize,
    mixed: &'static [(usize, usize)],
    sums: &'static [usize],
    offsets: &'static [usize],
}

const FULL: Grid = Grid {
    sizes: &[
        128, 256, 384, 512, 640, 768, 896, 1024, 1152, 1280, 1408, 1536, 1664, 1792, 1920, 2048,
    ],
    between: &[
        64, 192, 320, 448, 576, 704, 832, 960, 1088, 1216, 1316, 1328, 1344, 1472, 1600, 1728,
        1856, 1984, 4096,
    ],
    placements: PLACEMENTS.len(),
    large: &[
        9_000,
        16 << 10,
        64 << 10,
        256 << 10,
        1 << 20,
        4 << 20,
        8 << 20,
        16 << 20,
        32 << 20,
        64 << 20,
        256 << 20,
    ],
    cold: &[64, 128, 256, 512, 1024, 1328, 2048, 4096, 16 << 10, 64 << 10],
    cold_bytes: 256 << 20,
    mixed: &[(1, 16), (1, 64), (1, 256), (64, 512), (128, 2048), (513, 2048)],
    sums: &[64, 128, 188, 256, 512, 1024, 1316, 1328, 1500, 2048, 4096, 9_000, 64 << 10, 1 << 20],
    offsets: &[0, 1, 16, 29, 32, 63],
};

const QUICK: Grid = Grid {
    sizes: &[128, 256, 512, 1024, 1536, 2048],
    between: &[64, 384, 1328],
    placements: 2,
    large: &[64 << 10, 1 << 20, 16 << 20, 64 << 20],
    cold: &[128, 1328, 16 << 10],
    cold_bytes: 64 << 20,
    mixed: &[(1, 64), (128, 2048)],
    sums: &[128, 1328, 9_000],
    offsets: &[0, 1, 29],
};

/// Offsets of source and target from a multiple of 64; the first [`MAIN`] are measured at all
/// sizes.
const PLACEMENTS: [(&str, Offsets); 4] = [
    ("aligned", Offsets { source: 0, target: 0 }),
    ("both off", Offsets { source: 13, target: 29 }),
    ("source 1 off", Offsets { source: 1, target: 0 }),
    ("target 1 off", Offsets { source: 0, target: 1 }),
];

const MAIN: usize = 2;

/// The simd-copy paper's routine.
pub(super) const PUBLISHED: &str = "published_sse";
/// Step between the paper's sizes that are measured in every placement.
pub(super) const PAPER_STEP: usize = 128;
const SMALL_BYTES_MAX: usize = 4096;
const CALL_BYTES: usize = 1 << 19;
/// A call costs as much time as a copy of this many bytes.
const CALL_OVERHEAD_BYTES: usize = 64;
