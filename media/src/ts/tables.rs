// SPDX-License-Identifier: MIT OR Apache-2.0
//! The programmes of a stream, and the one of them that is followed.
//!
//! That is the first in the association table whose map has been seen. Recordings that were cut
//! down to one programme often keep the table of all, so the first need not have a map.
//!
//! Bounded: [`PROGRAMMES_MAX`] programmes, one section buffer for each PID with maps.

use super::TsPacket;
use super::psi::{self, AssociationSection, ProgrammeMap, Sections};

/// Most programmes looked at; a satellite transponder has about twenty.
pub(super) const PROGRAMMES_MAX: usize = 128;

/// PID of the association table.
pub(super) const PAT_PID: u16 = 0;

#[derive(Clone)]
struct ListedProgramme {
    number: u16,
    map_pid: u16,
    /// Section of the association table that lists it.
    section: u8,
    map: Option<ProgrammeMap>,
}

/// Change that a packet with tables caused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TableChange {
    /// Nothing that was not known.
    None,
    /// A programme that comes earlier in the table is followed from now on.
    Preferred,
    /// The programmes or the map of the one followed changed.
    Changed,
}

/// The tables as last seen.
#[derive(Clone, Default)]
pub(super) struct TableReader {
    version: u8,
    programmes: Vec<ListedProgramme>,
    pat: Sections,
    maps: Vec<(u16, Sections)>,
    followed: Option<usize>,
    /// Packet at which the last association table started.
    pat_at: Option<u64>,
    /// Packet at which the last map of the programme followed started.
    map_at: Option<u64>,
    /// The same, once the map of the programme followed has come after it.
    complete_from: Option<u64>,
    /// Sections with a wrong CRC.
    bad_sections: u64,
}

impl TableReader {
    /// The PIDs that carry tables.
    pub(super) fn pids(&self) -> impl Iterator<Item = u16> {
        std::iter::once(PAT_PID).chain(self.maps.iter().map(|&(pid, _)| pid))
    }

    /// The map of the programme followed.
    pub(super) fn map(&self) -> Option<&ProgrammeMap> {
        self.programmes[self.followed?].map.as_ref()
    }

    /// Number of the programme followed.
    pub(super) fn programme(&self) -> Option<u16> {
        Some(self.programmes[self.followed?].number)
    }

    /// True when the stream has one programme.
    pub(super) fn is_single(&self) -> bool {
        self.programmes.len() == 1
    }

    /// True when only a new table can replace the followed programme.
    pub(super) fn is_settled(&self) -> bool {
        self.followed == Some(0)
    }

    /// Sections of the association table and of maps that were dropped because their CRC is wrong.
    pub(super) fn bad_sections(&self) -> u64 {
        self.bad_sections
    }

    /// The packet at which the last association table started.
    pub(super) fn pat_at(&self) -> Option<u64> {
        self.pat_at
    }

    /// The packet at which the last map of the programme followed started.
    pub(super) fn map_at(&self) -> Option<u64> {
        self.map_at
    }

    /// The last packet from which on a decoder meets the association table and then the map of
    /// the programme followed, both before what comes next.
    pub(super) fn complete_from(&self) -> Option<u64> {
        self.complete_from
    }

    /// Takes the next packet of one of [`pids`](Self::pids).
    pub(super) fn feed(&mut self, index: u64, packet: &TsPacket<'_>) -> TableChange {
        let pid = packet.header.pid();
        let mut news = TableChange::None;
        if pid == PAT_PID {
            let mut pat = std::mem::take(&mut self.pat);
            pat.feed(index, packet, |section, started| {
                if let Some(association) = psi::association(section) {
                    self.pat_at = Some(started);
                    if self.associate(association) {
                        news = TableChange::Changed;
                    }
                }
            });
            self.bad_sections += pat.take_bad();
            self.pat = pat;
        } else if let Some(slot) = self.maps.iter().position(|&(map_pid, _)| map_pid == pid) {
            let mut sections = std::mem::take(&mut self.maps[slot].1);
            sections.feed(index, packet, |section, started| {
                if let Some((number, map)) = psi::map(section) {
                    match self.put_map(pid, number, map, started) {
                        TableChange::None => {}
                        other => news = other,
                    }
                }
            });
            self.bad_sections += sections.take_bad();
            self.maps[slot].1 = sections;
        }
        news
    }

    /// Takes a section of the association table; whether it says anything new.
    fn associate(&mut self, new: AssociationSection) -> bool {
        let known = self.programmes.iter().filter(|programme| programme.section == new.section);
        if self.version == new.version
            && known.map(|old| (old.number, old.map_pid)).eq(new.programmes.iter().copied())
        {
            return false;
        }
        let old = std::mem::take(&mut self.programmes);
        let followed = self.followed.map(|index| (old[index].number, old[index].map_pid));
        let (mut same, mut gone): (Vec<_>, Vec<_>) = old
            .into_iter()
            .partition(|programme| self.version == new.version && programme.section != new.section);
        for (number, map_pid) in new.programmes {
            let map = gone
                .iter_mut()
                .find(|old| (old.number, old.map_pid) == (number, map_pid))
                .and_then(|old| old.map.take());
            same.push(ListedProgramme { number, map_pid, section: new.section, map });
        }
        same.sort_by_key(|programme| programme.section);
        same.truncate(PROGRAMMES_MAX);
        self.version = new.version;
        self.programmes = same;
        self.maps.retain(|&(pid, _)| self.programmes.iter().any(|entry| entry.map_pid == pid));
        for programme in &self.programmes {
            let pid = programme.map_pid;
            if pid != PAT_PID && !self.maps.iter().any(|&(map_pid, _)| map_pid == pid) {
                self.maps.push((pid, Sections::default()));
            }
        }
        self.followed = self.programmes.iter().position(|programme| programme.map.is_some());
        let now = self.followed.map(|at| &self.programmes[at]);
        if now.map(|programme| (programme.number, programme.map_pid)) != followed {
            self.complete_from = None;
        }
        true
    }

    /// Takes the map of programme `number`, found on `pid` in a section that began at `started`.
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
        let news = match self.followed {
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
        news
    }
}
