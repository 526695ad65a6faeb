// SPDX-License-Identifier: MIT OR Apache-2.0
//! Builds one timeline, which starts at zero and never goes backwards, from a stream's clock
//! references.
//!
//! A reference gives the due time of its own packet; packets between two references are due at even
//! distances (ISO/IEC 13818-1 §2.4.2.2). Where the clock is reset, as flagged by a
//! discontinuity_indicator (§2.4.3.5) or detected by a jump, time continues at the previous rate.
//! Packets before the first reference and after the last are given the nearest rate.
//!
//! The PID of the clock is known only after the tables, and in broken files never, so until then
//! the references of several PIDs are stored ([`TRACKS_MAX`]). Thinning bounds memory: a full track
//! drops every second reference and from then on stores only every second one. That happens after
//! three hours of references every 40 ms, and the timeline stays exact at the remaining references.

use super::{NULL_PID, PCR_MODULUS};
use crate::plan::{ClockPoint, TIMELINE_TICKS_MAX};
use crate::{Damage, Refusal, TICKS_PER_SECOND};

/// A step forward of more than this, or any step backward, begins a new time base. References have
/// a distance of at most 100 ms (§2.7.2); a recording with signal loss has gaps of seconds.
pub(super) const STEP_TICKS_MAX: u64 = 10 * TICKS_PER_SECOND;

/// The rate next to a gap is measured over this much time, if the time base lasts that long.
const RATE_TICKS: u64 = TICKS_PER_SECOND;

/// References stored per PID: 4 MiB.
const SAMPLES_MAX: usize = 1 << 18;

/// PIDs whose references are stored until the PID of the clock is known.
const TRACKS_MAX: usize = 16;

/// Clock discontinuities allowed; they are never thinned.
const BREAKS_MAX: u64 = 1 << 16;

/// Flag of a sample that begins a time base.
const BREAK: u64 = 1 << 63;

/// A clock reference: its packet, and the time since the first one, in which discontinuities have
/// no duration.
#[derive(Clone, Copy)]
struct PcrSample {
    packet: u64,
    ticks_and_break: u64,
}

impl PcrSample {
    fn ticks(self) -> u64 {
        self.ticks_and_break & !BREAK
    }

    fn begins_base(self) -> bool {
        self.ticks_and_break & BREAK != 0
    }
}

/// The clock references of one PID.
#[derive(Clone)]
struct PcrTrack {
    pid: u16,
    samples: Vec<PcrSample>,
    /// Value of the last reference, stored or not.
    last: Option<u64>,
    /// Time of the last reference.
    ticks: u64,
    /// True if the next reference begins a new time base.
    breaks: bool,
    references: u64,
    discontinuities: u64,
    /// One in this many references is stored.
    keep_one_in: u64,
}

impl PcrTrack {
    fn new(pid: u16) -> Self {
        Self {
            pid,
            samples: Vec::new(),
            last: None,
            ticks: 0,
            breaks: false,
            references: 0,
            discontinuities: 0,
            keep_one_in: 1,
        }
    }

    fn push(&mut self, packet: u64, pcr: u64) {
        let step = self.last.map(|last| (pcr + PCR_MODULUS - last) % PCR_MODULUS);
        let begins_base = match step {
            None => false,
            Some(step) if self.breaks || step > STEP_TICKS_MAX => true,
            Some(step) => {
                self.ticks = self.ticks.saturating_add(step).min(TIMELINE_TICKS_MAX);
                false
            }
        };
        self.last = Some(pcr);
        self.breaks = false;
        self.discontinuities += u64::from(begins_base);
        let is_kept = self.references.is_multiple_of(self.keep_one_in);
        self.references += 1;
        if begins_base && self.discontinuities <= BREAKS_MAX {
            self.samples.push(PcrSample { packet, ticks_and_break: self.ticks | BREAK });
        } else if is_kept && !begins_base {
            self.samples.push(PcrSample { packet, ticks_and_break: self.ticks });
        }
        if self.samples.len() >= SAMPLES_MAX {
            self.thin();
        }
    }

    fn thin(&mut self) {
        let mut keep = false;
        self.samples.retain(|sample| {
            keep = !keep;
            keep || sample.begins_base()
        });
        self.keep_one_in *= 2;
    }

    /// True if there are two references between which to measure a rate.
    fn is_usable(&self) -> bool {
        self.ticks > 0
    }
}

/// The clock references of a file.
#[derive(Clone, Default)]
pub(super) struct PcrTimelines {
    tracks: Vec<PcrTrack>,
    /// PID of the clock according to the tables.
    wanted: Option<u16>,
    is_settled: bool,
    /// True if only the wanted track remains.
    is_single: bool,
}

/// A timeline and its number of discontinuities.
pub(super) struct ClockTimeline {
    pub(super) points: Vec<ClockPoint>,
    pub(super) discontinuities: u64,
}

impl PcrTimelines {
    /// Records that the tables name `pid` as the clock, finally if `is_settled`.
    pub(super) fn follow(&mut self, pid: u16, is_settled: bool) {
        // The null PID means that the programme has no clock (§2.4.4.9).
        if pid == NULL_PID {
            return;
        }
        self.wanted = Some(pid);
        self.is_settled = is_settled;
        if self.is_single && self.tracks[0].pid != pid {
            self.tracks[0].pid = pid;
            self.tracks[0].breaks = true;
        }
    }

    /// Consumes the clock fields of packet number `packet`, of PID `pid`.
    pub(super) fn feed(&mut self, pid: u16, packet: u64, pcr: Option<u64>, breaks: bool) {
        let Some(track) = self.tracks.iter_mut().find(|track| track.pid == pid) else {
            if let (Some(pcr), false) = (pcr, self.is_single || self.tracks.len() == TRACKS_MAX) {
                let mut track = PcrTrack::new(pid);
                track.push(packet, pcr);
                self.tracks.push(track);
            }
            return;
        };
        // The flag holds until the first reference of the new time base.
        track.breaks |= breaks;
        let Some(pcr) = pcr else { return };
        track.push(packet, pcr);
        if !self.is_single && self.is_settled && self.wanted == Some(pid) && track.is_usable() {
            self.tracks.retain(|track| track.pid == pid);
            self.is_single = true;
        }
    }

    /// Returns the timeline of a stream of `packets` packets.
    pub(super) fn timeline(self, packets: u64) -> Result<ClockTimeline, Refusal> {
        let references = self.tracks.iter().map(|track| track.references).max().unwrap_or(0);
        let wanted = self.wanted;
        let track = self
            .tracks
            .iter()
            .filter(|track| track.is_usable())
            .min_by_key(|track| Some(track.pid) != wanted);
        let Some(track) = track else {
            let is_stopped = self
                .tracks
                .iter()
                .any(|track| track.references >= 2 && track.discontinuities + 1 < track.references);
            return Err(match is_stopped {
                true => Refusal::StoppedClock { pcrs: references },
                false => Refusal::NoClock { pcrs: references },
            });
        };
        if track.discontinuities > BREAKS_MAX {
            return Err(Refusal::TooDamaged { damage: Damage::ClockBreaks, limit: BREAKS_MAX });
        }
        let points = lay_out(&track.samples, track.ticks, packets);
        match points.last() {
            Some(last) if (1..TIMELINE_TICKS_MAX).contains(&last.ticks) => {
                Ok(ClockTimeline { points, discontinuities: track.discontinuities })
            }
            Some(last) if last.ticks == 0 => Err(Refusal::StoppedClock { pcrs: references }),
            _ => {
                let limit_s = TIMELINE_TICKS_MAX / TICKS_PER_SECOND;
                Err(Refusal::TooLong { container: "transport stream", limit_s })
            }
        }
    }
}

/// Lays the time bases end to end; `ticks` is their total duration.
fn lay_out(samples: &[PcrSample], ticks: u64, packets: u64) -> Vec<ClockPoint> {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return Vec::new() };
    let overall = PacketRate { ticks, packets: (last.packet - first.packet).max(1) };
    let mut bases = samples.chunk_by(|_, next| !next.begins_base()).peekable();
    let leading = bases.peek().and_then(|base| PacketRate::of(base.iter())).unwrap_or(overall);
    let mut points = Vec::with_capacity(samples.len() + 2);
    if first.packet > 0 {
        points.push(ClockPoint { ts_packet: 0, ticks: 0 });
    }
    let mut end = ClockPoint { ts_packet: 0, ticks: 0 };
    let mut rate = leading;
    for base in bases {
        let start = end.ticks.saturating_add(rate.ticks_of(base[0].packet - end.ts_packet));
        for sample in base {
            let ticks = start.saturating_add(sample.ticks() - base[0].ticks());
            end = ClockPoint { ts_packet: sample.packet, ticks: ticks.min(TIMELINE_TICKS_MAX) };
            points.push(end);
        }
        rate = PacketRate::of(base.iter().rev()).unwrap_or(rate);
    }
    let tail = end.ticks.saturating_add(rate.ticks_of(packets - end.ts_packet));
    points.push(ClockPoint { ts_packet: packets, ticks: tail.min(TIMELINE_TICKS_MAX) });
    points
}

/// Time per packet, as a fraction.
#[derive(Clone, Copy)]
struct PacketRate {
    ticks: u64,
    packets: u64,
}

impl PacketRate {
    /// Returns the rate at the start of `samples`, all of one time base, in either direction.
    fn of<'a>(mut samples: impl Iterator<Item = &'a PcrSample>) -> Option<Self> {
        let first = samples.next()?;
        let mut rate = None;
        for sample in samples {
            let ticks = sample.ticks().abs_diff(first.ticks());
            rate = Some(Self { ticks, packets: sample.packet.abs_diff(first.packet) });
            if ticks >= RATE_TICKS {
                break;
            }
        }
        rate.filter(|rate| rate.ticks > 0)
    }

    fn ticks_of(self, packets: u64) -> u64 {
        let ticks = u128::from(packets) * u128::from(self.ticks) / u128::from(self.packets);
        u64::try_from(ticks).unwrap_or(TIMELINE_TICKS_MAX)
    }
}
