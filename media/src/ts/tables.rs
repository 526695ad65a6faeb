// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tracks the PAT and PMTs of a stream and chooses the programme to follow.
//!
//! The first programme of the PAT whose map was received is followed. Recordings cut down to one
//! programme often keep the PAT of all, so the first programme may have no map.
//!
//! Bounded: [`PROGRAMMES_MAX`] programmes, one section buffer for each PMT PID.

use std::collections::HashMap;

use super::TsPacket;
use super::psi::{self, AssociationSection, ProgrammeMap, Sections};

/// Most programmes that are tracked; a satellite transponder has about twenty.
pub(super) const PROGRAMMES_MAX: usize = 128;

/// PID of the PAT.
pub(super) const PAT_PID: u16 = 0;

/// PIDs of the other tables about all programmes: descriptions of services and events, the time
/// (ISO/IEC 13818-1 table 2-3, EN 300 468 table 1).
pub(super) const SERVICE_PIDS: std::ops::RangeInclusive<u16> = 1..=0x1f;

#[derive(Clone)]
struct ListedProgramme {
    number: u16,
    map_pid: u16,
    /// PAT section that lists it.
    section: u8,
    map: Option<ProgrammeMap>,
}

/// Change caused by a table packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TableChange {
    /// No change.
    None,
    /// A programme earlier in the PAT is followed from now on.
    Preferred,
    /// The programmes or the map of the followed programme changed.
    Changed,
}

/// The tables as last received.
#[derive(Clone, Default)]
pub(super) struct TableReader {
    version: u8,
    programmes: Vec<ListedProgramme>,
    pat: Sections,
    /// Section buffers of the PMT PIDs, sorted by PID.
    maps: Vec<(u16, Sections)>,
    followed: Option<usize>,
    /// First packet of the last PAT.
    pat_at: Option<u64>,
    /// First packet of the last map of the followed programme.
    map_at: Option<u64>,
    /// First packet of the last PAT that was followed by a map of the followed programme.
    complete_from: Option<u64>,
    /// Sections with a wrong CRC.
    bad_sections: u64,
}

impl TableReader {
    /// Returns the PIDs that carry tables.
    pub(super) fn pids(&self) -> impl Iterator<Item = u16> {
        std::iter::once(PAT_PID).chain(self.maps.iter().map(|&(pid, _)| pid))
    }

    /// Returns the map of the followed programme.
    pub(super) fn map(&self) -> Option<&ProgrammeMap> {
        self.programmes[self.followed?].map.as_ref()
    }

    /// Returns the number of the followed programme.
    pub(super) fn programme(&self) -> Option<u16> {
        Some(self.programmes[self.followed?].number)
    }

    /// True if the stream has one programme.
    pub(super) fn is_single(&self) -> bool {
        self.programmes.len() == 1
    }

    /// True if only a new PAT can replace the followed programme.
    pub(super) fn is_settled(&self) -> bool {
        self.followed == Some(0)
    }

    /// Returns the number of PAT and PMT sections dropped for a wrong CRC.
    pub(super) fn bad_sections(&self) -> u64 {
        self.bad_sections
    }

    /// Returns the first packet of the last PAT.
    pub(super) fn pat_at(&self) -> Option<u64> {
        self.pat_at
    }

    /// Returns the first packet of the last map of the followed programme.
    pub(super) fn map_at(&self) -> Option<u64> {
        self.map_at
    }

    /// Returns the last packet from which a decoder receives the PAT and then the map of the
    /// followed programme, both before the next packet.
    pub(super) fn complete_from(&self) -> Option<u64> {
        self.complete_from
    }

    /// Consumes the next packet of one of [`pids`](Self::pids).
    pub(super) fn feed(&mut self, index: u64, packet: &TsPacket<'_>) -> TableChange {
        let pid = packet.header.pid();
        let mut change = TableChange::None;
        if pid == PAT_PID {
            let mut pat = std::mem::take(&mut self.pat);
            pat.feed(index, packet, |section, started| {
                if let Some(association) = psi::association(section) {
                    self.pat_at = Some(started);
                    if self.associate(association) {
                        change = TableChange::Changed;
                    }
                }
            });
            self.bad_sections += pat.take_bad();
            self.pat = pat;
        } else if let Ok(slot) = self.maps.binary_search_by_key(&pid, |&(map_pid, _)| map_pid) {
            let mut sections = std::mem::take(&mut self.maps[slot].1);
            sections.feed(index, packet, |section, started| {
                if let Some((number, map)) = psi::map(section) {
                    match self.put_map(pid, number, map, started) {
                        TableChange::None => {}
                        other => change = other,
                    }
                }
            });
            self.bad_sections += sections.take_bad();
            self.maps[slot].1 = sections;
        }
        change
    }

    /// Applies a PAT section. Returns true if it differs from the known one.
    ///
    /// Costs a sort of its programmes, at most [`PROGRAMMES_MAX`]: a PAT that changes each time
    /// must not cost more than its bytes justify.
    fn associate(&mut self, mut new: AssociationSection) -> bool {
        new.programmes.truncate(PROGRAMMES_MAX);
        let known = self.programmes.iter().filter(|programme| programme.section == new.section);
        if self.version == new.version
            && known.map(|old| (old.number, old.map_pid)).eq(new.programmes.iter().copied())
        {
            return false;
        }
        let old = std::mem::take(&mut self.programmes);
        let followed = self.followed.map(|index| (old[index].number, old[index].map_pid));
        let (mut same, gone): (Vec<_>, Vec<_>) = old
            .into_iter()
            .partition(|programme| self.version == new.version && programme.section != new.section);
        let known = |old: ListedProgramme| Some(((old.number, old.map_pid), old.map?));
        let mut maps: HashMap<_, _> = gone.into_iter().filter_map(known).collect();
        for (number, map_pid) in new.programmes {
            let map = maps.remove(&(number, map_pid));
            same.push(ListedProgramme { number, map_pid, section: new.section, map });
        }
        same.sort_by_key(|programme| programme.section);
        same.truncate(PROGRAMMES_MAX);
        self.version = new.version;
        self.programmes = same;
        self.gather_maps();
        self.followed = self.programmes.iter().position(|programme| programme.map.is_some());
        let now = self.followed.map(|at| &self.programmes[at]);
        if now.map(|programme| (programme.number, programme.map_pid)) != followed {
            self.complete_from = None;
        }
        true
    }

    /// Rebuilds the section buffers: one for each PMT PID of the programmes.
    fn gather_maps(&mut self) {
        let pids = self.programmes.iter().map(|programme| programme.map_pid);
        let mut pids: Vec<_> = pids.filter(|&pid| pid != PAT_PID).collect();
        pids.sort_unstable();
        pids.dedup();
        let mut old = std::mem::take(&mut self.maps);
        let mut sections = |pid: &u16| {
            let at = old.binary_search_by_key(pid, |&(pid, _)| pid).ok()?;
            Some(std::mem::take(&mut old[at].1))
        };
        self.maps = pids.iter().map(|pid| (*pid, sections(pid).unwrap_or_default())).collect();
    }

    /// Stores the map of programme `number`, received on `pid` in a section that began at
    /// `started`.
    fn put_map(&mut self, pid: u16, number: u16, map: ProgrammeMap, started: u64) -> TableChange {
        let Some(at) = self
            .programmes
            .iter()
            .position(|programme| (programme.map_pid, programme.number) == (pid, number))
        else {
            return TableChange::None;
        };
        let programme = &mut self.programmes[at];
        let is_new = programme.map.as_ref() != Some(&map);
        if is_new {
            programme.map = Some(map);
        }
        let change = match self.followed {
            Some(followed) if followed < at => return TableChange::None,
            Some(followed) if followed > at => TableChange::Preferred,
            _ if is_new => TableChange::Changed,
            _ => TableChange::None,
        };
        self.followed = Some(at);
        self.map_at = Some(started);
        if self.pat_at.is_some_and(|pat_at| pat_at < started) {
            self.complete_from = self.pat_at;
        }
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_more_programmes_than_are_looked_at_is_new_once_and_keeps_its_maps() {
        let table = |version, programmes: u16| {
            let programmes = (0..programmes).map(|at| (at + 1, 8000 - 7 * at % 500)).collect();
            AssociationSection { version, section: 0, programmes }
        };
        let mut tables = TableReader::default();
        assert!(tables.associate(table(0, 250)));
        assert!(!tables.associate(table(0, 250)), "the same again");
        assert_eq!(tables.programmes.len(), PROGRAMMES_MAX);
        let map = ProgrammeMap { pcr_pid: 256, streams: vec![(256, 27)] };
        assert_eq!(tables.put_map(7993, 2, map, 9), TableChange::Changed);
        assert!(tables.associate(table(1, 20)), "another version");
        assert_eq!((tables.programme(), tables.programmes.len()), (Some(2), 20));
        let pids: Vec<_> = tables.pids().collect();
        assert_eq!(pids.len(), 21);
        assert!(pids.is_sorted() && pids.contains(&7993) && pids.contains(&PAT_PID));
        assert!(tables.associate(table(2, 1)));
        assert_eq!((tables.programme(), tables.pids().count()), (None, 2));
    }
}
