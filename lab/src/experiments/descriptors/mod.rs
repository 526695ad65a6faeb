// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pagewire lab descriptors`: the CPU cost of a received packet before its payload is read.
//!
//! Three parts. In cache: every variant of [`crate::specimens::descriptor`] on descriptors that are
//! done, by format, with the published fault (`narrow_store`) beside its published remedy
//! (`sse_blend`). Ring model ([`ring`]): the whole loop of a driver around each variant, with a
//! card on another core, once with the card a ring ahead and once with both at work. Headers: every
//! variant of [`crate::specimens::packet`].
//!
//! Every member's results are compared with the oracle's before it is timed. The ring model
//! verifies every packet during the timed run; a wrong one is an error.
//!
//! Sources: Richardson, "Improving Driver Performance: A Worked Example".
//! Does not measure a real card. Does not count blocked loads: a virtual machine seldom has
//! counters (`pagewire lab stalls` looks for them).

mod convert;
mod headers;
mod model;
mod paper;
mod ring;

use crate::specimens::Specimens;
use crate::specimens::descriptor::Descriptor;
use crate::specimens::packet::Packet;

use measure::Error;
use measure::Options;
use measure::memory::Turns;
use measure::meter::Cores;
use measure::results::Results;

use convert::FORMATS;

pub(crate) fn run(options: &Options) -> Result<Results, Error> {
    let mut results = Results::new("descriptors", options.command.clone());
    results.complete = true;
    let variants = variants(options)?;
    let readers = readers(options);
    let specimens = Specimens::here();
    results.notes.push(format!(
        "chosen here: {:?}, {:?}; narrow_store is a fault, kept to be measured and never chosen; \
         every member's answers were compared with the oracle's",
        specimens.descriptor, specimens.packet
    ));
    // Reads the cores before the thread is pinned to one of them.
    let cores = Cores::allowed();
    let mut turns = Turns::new(options, FORMATS.len() + headers::KINDS.len(), &mut results);
    for format in FORMATS {
        convert::measure(*format, &variants, &mut turns, &mut results)?;
    }
    for kind in headers::KINDS {
        headers::measure(*kind, &readers, &mut turns, &mut results)?;
    }
    model::measure(&variants, options, &cores, &mut results)?;
    turns.finish(&mut results);
    paper::add(&mut results);
    Ok(results)
}

/// Returns the reference of the ratios: the published remedy, where the processor has its
/// instructions.
fn reference() -> &'static str {
    let remedy = Descriptor::all().find(|variant| variant.name() == REMEDY);
    remedy.map_or("scalar", Descriptor::name)
}

/// Returns the selected variants, the fault among them; the reference is always included.
fn variants(options: &Options) -> Result<Vec<Descriptor>, Error> {
    let all = || Descriptor::specimens().chain(Descriptor::all());
    let known = || all().map(Descriptor::name).chain(Packet::all().map(Packet::name));
    let unknown = options.members.iter().find(|member| known().all(|name| name != *member));
    if let Some(other) = unknown {
        let mut known: Vec<_> = known().collect();
        known.dedup();
        return Err(Error::Caller {
            what: format!("member {other}"),
            found: format!("no such variant here; write one of {}", known.join(", ")),
        });
    }
    let asked =
        |name: &str| options.members.is_empty() || options.members.iter().any(|m| m == name);
    Ok(all().filter(|variant| asked(variant.name()) || variant.name() == reference()).collect())
}

/// Returns the selected header readers; the reference is always included.
fn readers(options: &Options) -> Vec<Packet> {
    let asked =
        |name: &str| options.members.is_empty() || options.members.iter().any(|m| m == name);
    Packet::all()
        .filter(|reader| asked(reader.name()) || reader.name() == headers::REFERENCE)
        .collect()
}

/// Parameter for the place of the descriptors, and its values.
const PLACE: &str = "in";
const CACHE: &str = "cache";
const AHEAD: &str = "ring ahead";
const RUNNING: &str = "ring both";
/// Value of `format`: XL710 descriptors of 16 bytes.
const SHORT: &str = "16 B";

/// The published fault and its remedy.
const FAULT: &str = "narrow_store";
const REMEDY: &str = "sse_blend";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_has_its_figures_in_cache_and_in_the_model() {
        let options = Options { quick: true, rounds: Some(1), ..Options::default() };
        let results = run(&options).unwrap();
        assert!(results.complete, "{:?}", results.notes);
        let time = |member: &str, parameters: &[(&str, &str)]| {
            results.figure(member, "time", parameters).map(|figure| figure.median)
        };
        for variant in Descriptor::specimens().chain(Descriptor::all()) {
            for format in [SHORT, "32 B"] {
                let place = [(PLACE, CACHE), ("format", format)];
                assert!(time(variant.name(), &place).is_some_and(|ns| ns > 0.0), "{variant:?}");
            }
        }
        for reader in Packet::all() {
            let place = [("headers", "usual")];
            assert!(time(reader.name(), &place).is_some_and(|ns| ns > 0.0), "{reader:?}");
        }
        if Cores::allowed().count() > 1 {
            for variant in Descriptor::all() {
                for place in [AHEAD, RUNNING] {
                    let found = time(variant.name(), &[(PLACE, place)]);
                    assert!(found.is_some_and(|ns| ns > 0.0), "{variant:?}, {place}");
                }
            }
        }
        let published = results.rows.iter().filter(|row| row.published.is_some());
        assert_eq!(published.count(), 3);
    }

    #[test]
    fn the_reference_is_always_among_the_variants() {
        let names = |members: &[&str]| {
            let members = members.iter().map(|name| (*name).to_owned()).collect();
            variants(&Options { members, ..Options::default() })
                .map(|variants| variants.iter().map(|v| v.name()).collect::<Vec<_>>())
        };
        assert!(names(&["scalar"]).unwrap().contains(&reference()));
        assert_eq!(names(&[]).unwrap().contains(&FAULT), Descriptor::specimens().count() > 0);
        let error = names(&["vector"]).unwrap_err().to_string();
        assert!(error.starts_with("member vector: no such variant here; write one of "));
    }
}
