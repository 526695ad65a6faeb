// SPDX-License-Identifier: MIT OR Apache-2.0
//! One session on a pacer thread: finds the due packets that are in memory and sends them.
//!
//! A step sends every packet that becomes due before the session's next wake, in as few calls as
//! segment runs allow, so a packet leaves at most one burst early and, if the machine keeps up,
//! never late. Costs per step: one look-up in the clock table, one or two uncontended locks, one
//! send call per segment run. No allocation. No lock is held across a send call: the thread owns
//! the counters, and the session's progress is published when the step has sent.
//!
//! Sources: ARCHITECTURE.md, "A streamed byte's journey"; RFC 3550 §5.1 (timestamps are sampling
//! instants, not departure times, so sending a burst ahead is within the protocol).
//! Does not choose its wakes ([`super::wheel`]) and never blocks.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use media::{TICKS_PER_SECOND, ticks_of};
use paths::{Departure, INTERLEAVED_PACKETS_MAX, SendError, SendStats};

use super::departures::Departures;
use super::media_target::{MediaTarget, log_lowered_segment_limit};
use super::{CATCH_UP, StreamLead, Tools};
use crate::library::asset::Source;
use crate::play::{Link, MediaClock, PacketTrace, Sent, Shift, Speed, TracedCall, icmp_faults};
use crate::prefetch::{PrefetchHandle, SendForm, Window, whole_parts, within};

/// State of a session on its pacer.
pub(crate) struct PacedStream {
    pub(crate) source: Arc<Source>,
    pub(crate) to: MediaTarget,
    pub(crate) link: Arc<Link>,
    /// Set for a session whose packets the kernel holds until they are due.
    pub(super) departures: Option<Departures>,
    /// Set while a client traces it.
    pub(super) trace: Option<Box<PacketTrace>>,
    /// The next packet of the source to send.
    pub(crate) next: u64,
    /// One past the last packet of the source to send that is known so far.
    pub(crate) end: u64,
    /// One past the last packet of the file or channel to send; for a growing recording and for a
    /// channel it lies beyond all known packets.
    limit: u64,
    /// Mean packets a second.
    pub(crate) packets_per_s: u64,
    /// True while a recording has no further packets.
    is_starved: bool,
    /// Media that is still to be sent before the next packet.
    pub(super) lead: Option<StreamLead>,
    /// Play time of the sent lead at the mean rate: it delays the next play, so that a client that
    /// only requests beginnings gets no more media than others.
    pub(super) lead_lasts: Duration,
    /// Offset added to the asset's sequence numbers and timestamps.
    pub(crate) shift: Shift,
    pub(super) speed: Speed,
    /// Maps wall-clock time to media ticks; `None` until the first pages are in memory, and while
    /// paused.
    clock: Option<MediaClock>,
    /// Earliest start of the next play's clock: the end of the media sent so far.
    pub(super) sent_until: Option<Instant>,
    /// Start of the clock of a play that follows another, until the clock has started.
    pub(super) begins_at: Option<Instant>,
    playing: bool,
    /// Number of the current PLAY.
    pub(crate) play: u64,
    /// Consecutive steps that could send nothing.
    pub(crate) waits: u32,
    /// Last view of its ready ranges, one for each form of the asset.
    seen: [Seen; 2],
    /// Tick of the only valid wheel entry.
    pub(crate) wake: super::wheel::Tick,
}

/// View of a ready range, sufficient until packet `look_at`.
#[derive(Clone, Copy, Default)]
struct Seen {
    ready: u64,
    look_at: u64,
}

/// Result of a step.
pub(crate) enum Step {
    /// Every due packet was sent; the next is due at this moment.
    Sent { due: Instant },
    /// A burst was sent and more packets are due already: step again soon.
    Behind,
    /// Pages are missing or the socket is full: retry soon.
    Wait,
    /// The last packet was sent, or sending cannot continue.
    Ended(StreamEnd),
}

/// Reason why a stream ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StreamEnd {
    Finished,
    /// The sending device or socket is gone.
    Gone,
    /// The file was shortened or the network refused, in words.
    Broken(String),
}

impl PacedStream {
    /// Creates a session that does not play yet.
    pub(crate) fn new(source: Arc<Source>, to: MediaTarget, link: Arc<Link>) -> PacedStream {
        let plan = &source.asset.plan;
        let seconds = (plan.duration_ticks() / TICKS_PER_SECOND).max(1);
        PacedStream {
            packets_per_s: plan.packets() / seconds,
            source,
            to,
            link,
            departures: None,
            trace: None,
            next: 0,
            end: 0,
            limit: 0,
            is_starved: false,
            lead: None,
            lead_lasts: Duration::ZERO,
            shift: Shift::default(),
            speed: Speed::ONE,
            clock: None,
            sent_until: None,
            begins_at: None,
            playing: false,
            play: 0,
            waits: 0,
            seen: [Seen::default(); 2],
            wake: 0,
        }
    }

    /// Starts to play packets of the file or channel. `source` holds the first of them, which the
    /// lead replaces.
    pub(crate) fn play_from(
        &mut self,
        source: Arc<Source>,
        packets: Range<u64>,
        (shift, speed): (Shift, Speed),
        lead: Option<StreamLead>,
    ) {
        self.stop();
        self.speed = speed;
        let start = lead.as_ref().map_or(packets.start, |lead| lead.next);
        let next = start.saturating_sub(source.asset.first_packet());
        self.enter(source, next);
        self.lead = lead;
        (self.limit, self.shift) = (packets.end, shift);
        self.is_starved = false;
        self.take_newest();
        self.playing = true;
    }

    /// Stops sending and records the end of the media already sent. The next play begins no
    /// earlier, so over any period a client receives at most that period's media plus a burst,
    /// however often it seeks or pauses.
    pub(crate) fn stop(&mut self) {
        self.hold_clock();
        self.begins_at = None;
        self.playing = false;
    }

    fn hold_clock(&mut self) {
        if let Some(clock) = self.clock.take() {
            let until = clock.moment_of(self.source.asset.plan.ticks(self.next));
            self.sent_until = Some(until + std::mem::take(&mut self.lead_lasts));
        }
    }

    pub(crate) fn is_playing(&self) -> bool {
        self.playing
    }

    /// Returns the moment at which the last packet to send ends, by the running clock.
    pub(super) fn end_moment(&self) -> Option<Instant> {
        let end_ticks = self.source.asset.plan.ticks(self.end);
        self.clock.map(|clock| clock.moment_of(end_ticks) + self.lead_lasts)
    }

    /// Returns the sequence number of the next packet.
    pub(super) fn next_sequence(&self) -> u16 {
        let first = self.source.asset.plan.identity().first_sequence;
        first.wrapping_add(self.next as u16).wrapping_add(self.shift.sequence)
    }

    /// Sends the packets due before `wake`. The step itself is late by `overslept`.
    pub(crate) fn step(
        &mut self,
        now: Instant,
        (wake, overslept): (Instant, Duration),
        tools: &mut Tools,
    ) -> Step {
        if (self.next >= self.end || self.is_starved)
            && self.may_grow()
            && let Some(wait) = self.follow(now)
        {
            return wait;
        }
        if self.next >= self.end {
            return Step::Ended(StreamEnd::Finished);
        }
        let (form, ready) = self.ready(tools);
        if ready <= self.next {
            // A failing image has been dropped; the next step sends from the file.
            if form == SendForm::Source && self.mark(form).failed() {
                if self.leave_dropped_part(tools) {
                    return Step::Wait;
                }
                let name = &self.source.asset.name;
                return Step::Ended(StreamEnd::Broken(format!("{name}: its pages cannot be read")));
            }
            if self.clock.is_some() {
                self.count_stall(tools);
            }
            return Step::Wait;
        }
        let clock = self.clock_at(now, tools);
        let plan = &self.source.asset.plan;
        // After a stall a step sends at most a burst and a packet. It sends more if the processor
        // was preempted; without kernel preemption that recurs, for longer than a burst.
        let lead = self.lead(tools.burst);
        let span = clock.speed.ticks(tools.burst + lead + CATCH_UP * overslept);
        let cap = plan.ticks(self.next) + span + 1;
        let horizon = clock.ticks_at(wake + lead).min(cap);
        let due = plan.packets_before(horizon).min(self.end);
        let target = due.min(ready);
        if target > self.next && !self.send_lead(tools) {
            return Step::Wait;
        }
        let outcome = self.send(self.next..target, form, clock, tools);
        self.judge_reports(tools);
        if self.to.is_blocked() && self.clock.is_some() {
            self.skip_missed(now, clock, tools);
        }
        match outcome {
            Ok(()) if self.next >= self.end && !self.may_grow() => Step::Ended(StreamEnd::Finished),
            Ok(()) if self.next < due => {
                self.count_stall(tools);
                Step::Wait
            }
            Ok(()) if clock.ticks_at(now) >= cap => Step::Behind,
            Ok(()) => {
                self.to.note_in_time();
                let due = clock.moment_of(self.source.asset.plan.ticks(self.next));
                Step::Sent { due: due.checked_sub(lead).unwrap_or(due) }
            }
            Err(step) => step,
        }
    }

    /// Counts a stall of the disk. A slow reader is excluded: the pages at the position to which it
    /// skips could not be requested in time.
    fn count_stall(&self, tools: &mut Tools) {
        if !self.to.is_blocked() {
            tools.counters().cold_stalls += 1;
            self.link.count_stall();
        }
    }

    /// Returns the running clock; starts it at the first packet, and moves it if it is too far
    /// behind.
    fn clock_at(&mut self, now: Instant, tools: &mut Tools) -> MediaClock {
        let at = self.source.asset.plan.ticks(self.next);
        let clock = match self.clock {
            Some(clock)
                if now.saturating_duration_since(clock.moment_of(at)) < self.to.behind_max() =>
            {
                clock
            }
            found => {
                if found.is_some() {
                    tools.counters().clock_moves += 1;
                    let name = &self.source.asset.name;
                    tracing::warn!(
                        "{name}: over {} s behind; the stream's clock is moved",
                        self.to.behind_max().as_secs()
                    );
                }
                let behind_max = self.to.behind_max();
                let joins = |at: &Instant| now.saturating_duration_since(*at) < behind_max;
                // After a clock that was behind, `sent_until` lies in the past.
                let resumed = || self.sent_until.map_or(now, |until| until.max(now));
                let moment = self.begins_at.take().filter(joins).unwrap_or_else(resumed);
                let clock = MediaClock { moment, ticks: at, speed: self.speed };
                let ticks = at + self.source.asset.first_ticks();
                self.link.start_clock(MediaClock { ticks, ..clock });
                clock
            }
        };
        self.clock = Some(clock);
        clock
    }

    /// Returns the form to send and one past the last packet in memory; requests more in time.
    fn ready(&mut self, tools: &Tools) -> (SendForm, u64) {
        if let Some(form) = self.image_form(tools) {
            let ready = self.ask_ahead(form, tools);
            if ready > self.next {
                return (form, ready);
            }
            // The image exists but may not be in memory: the file is used if it is in memory.
            let ready = self.link.source.ready_to(self.next);
            if ready > self.next {
                return (SendForm::Source, ready);
            }
            return (form, self.next);
        }
        (SendForm::Source, self.ask_ahead(SendForm::Source, tools))
    }

    /// Returns the image to send from; `None` while there is none for this session.
    fn image_form(&self, tools: &Tools) -> Option<SendForm> {
        // An image holds unshifted numbers, and its path carries no departure times.
        if self.departures.is_some() || self.shift != Shift::default() {
            return None;
        }
        let layout = self.to.image_layout().filter(|&layout| tools.sends_images(layout))?;
        self.source.image(layout).map(|_| SendForm::Image(layout))
    }

    /// Returns one past the last packet in memory. Readers share the ready range, which has memory
    /// of its own, so it is read when half of the window is used, not at every step.
    fn ask_ahead(&mut self, form: SendForm, tools: &Tools) -> u64 {
        let seen = self.seen[form.kind()];
        if self.next < seen.look_at {
            return seen.ready;
        }
        let plan = &self.source.asset.plan;
        let mark = self.mark(form);
        let mut ready = mark.ready_to(self.next);
        let half = ticks_of(WINDOW) / 2;
        let now = plan.ticks(self.next);
        if ready < self.end && plan.ticks(ready.max(self.next)).saturating_sub(now) < half {
            let until = plan.packets_before(now.saturating_add(ticks_of(WINDOW)));
            let packets = window(&self.source, form, ready..until, self.end);
            if self.source.residence(form).is_fresh(&packets) {
                mark.answer(packets, true);
                ready = mark.ready_to(self.next);
            } else if mark.ask() {
                let (source, mark) = (self.source.clone(), self.link.mark(form));
                tools.readers.ask(Window { source, form, packets, mark });
            }
        }
        let look_at = match ready < self.end {
            true => plan.packets_before(plan.ticks(ready).saturating_sub(half)).min(ready),
            false => ready,
        };
        self.seen[form.kind()] = Seen { ready, look_at };
        ready
    }

    fn mark(&self, form: SendForm) -> &crate::prefetch::ReadyRange {
        match form {
            SendForm::Source => &self.link.source,
            SendForm::Image(_) => &self.link.image,
        }
    }

    /// Sends the packets as segment runs, one call each.
    fn send(
        &mut self,
        packets: Range<u64>,
        form: SendForm,
        clock: MediaClock,
        tools: &mut Tools,
    ) -> Result<(), Step> {
        let mut progress = Sent { path: self.path_name(form, &packets, tools), ..Sent::default() };
        let reading = self.departures.as_ref().map(Departures::reading);
        let most = self.packets_a_call(&packets);
        let outcome = loop {
            if self.next >= packets.end {
                break Ok(());
            }
            let plan = &self.source.asset.plan;
            let count = plan.segment_run(self.next, (packets.end - self.next).min(most));
            let run = self.next..self.next + count;
            let due = clock.moment_of(plan.ticks(run.start));
            let now = tools.clock.now();
            let late = now.saturating_duration_since(due);
            let at = reading.map(|reading| reading.departure(due));
            let mut stats = SendStats::default();
            let was_blocked = self.to.is_blocked();
            let sent = self.send_batch(run, form, at, &mut stats, tools);
            let count = u64::from(*sent.as_ref().unwrap_or(&0));
            // The reader was late, not this server.
            let late = if was_blocked { Duration::ZERO } else { late };
            match was_blocked {
                true => tools.counters().record_late_reader(&stats, count),
                false => tools.counters().record(&stats, late, count),
            }
            progress.refused += stats.refused;
            match sent {
                Ok(0) => break Err(Step::Wait),
                Ok(_) => {
                    if self.trace.is_some() {
                        self.record(count as u32, clock, (now, progress.path));
                    }
                    let plan = &self.source.asset.plan;
                    let octets = plan.payload_bytes(self.next..self.next + count);
                    self.next += count;
                    progress.add(count, octets, late);
                }
                Err(SendError::Shrunk { .. }) if self.leave_dropped_part(tools) => {
                    break Err(Step::Wait);
                }
                Err(error) => break Err(self.step_after(&error, form)),
            }
        };
        if !progress.is_empty() {
            self.link.count(self.position(), progress);
        }
        if let MediaTarget::Datagrams(to) = &mut self.to
            && self
                .departures
                .as_mut()
                .is_some_and(|departures| departures.is_time_to_ask(tools.clock.now()))
        {
            tools.counters().departures_missed += to.take_missed_departures();
        }
        outcome
    }

    /// Adds the next packets, which were sent at this moment by one call, to the trace.
    fn record(&mut self, packets: u32, clock: MediaClock, (sent, path): (Instant, &'static str)) {
        let (first, sequence, plan) = (self.next, self.next_sequence(), &self.source.asset.plan);
        let call = TracedCall { track: 0, sequence, packets, sent, path };
        if let Some(trace) = &mut self.trace {
            trace.record(call, |place| clock.moment_of(plan.ticks(first + u64::from(place))));
        }
    }

    /// Returns the name of the path that sends packets of this form.
    fn path_name(&self, form: SendForm, packets: &Range<u64>, tools: &Tools) -> &'static str {
        let count = packets.end.saturating_sub(packets.start).min(BATCH_PACKETS_MAX);
        let is_image = matches!(form, SendForm::Image(_));
        match self.to {
            MediaTarget::Stream(_) => tools.framed_name(is_image),
            MediaTarget::Datagrams(_) => {
                tools.datagram_name(is_image, count, self.departures.is_some())
            }
        }
    }

    /// Sends one batch of a segment run to the session's target.
    fn send_batch(
        &mut self,
        run: Range<u64>,
        form: SendForm,
        at: Option<Departure>,
        stats: &mut SendStats,
        tools: &mut Tools,
    ) -> Result<u32, SendError> {
        let (source, shift) = (&self.source, self.shift);
        let to = match &mut self.to {
            MediaTarget::Datagrams(to) => to,
            MediaTarget::Stream(to) => {
                let framed = match form {
                    SendForm::Image(_) => tools.framed_image_batch(source, run),
                    SendForm::Source => Some(tools.framed_batch(source, run, shift, to.channel)),
                };
                let (path, batch) = framed.ok_or(SendError::Blocked)?;
                let mut output = to.output.lock();
                let sent = path.send(&batch, &mut output, stats);
                to.is_blocked |= sent == Err(SendError::Blocked) || output.rest_bytes() > 0;
                return sent;
            }
        };
        let batch = match form {
            SendForm::Image(_) => tools.image_batch(source, run),
            SendForm::Source => Some(tools.gathered_batch(source, run, shift, at)),
        };
        let sent = match batch {
            Some((path, batch)) => path.send(&batch, to, stats),
            // Another session has just dropped the image; the next step sends from the file.
            None => Err(SendError::Blocked),
        };
        log_lowered_segment_limit(to);
        sent
    }

    /// Returns the time by which packets are passed to the kernel before they are due.
    fn lead(&self, burst: Duration) -> Duration {
        self.departures.as_ref().map_or(Duration::ZERO, |departures| departures.lead(burst))
    }

    /// Returns the most packets of one send call in a burst of these packets.
    fn packets_a_call(&self, packets: &Range<u64>) -> u64 {
        let burst_packets = packets.end.saturating_sub(self.next);
        let shared = self.departures.as_ref().map(|departures| departures.packets(burst_packets));
        match self.to {
            MediaTarget::Stream(_) => INTERLEAVED_PACKETS_MAX,
            MediaTarget::Datagrams(_) => {
                shared.map_or(BATCH_PACKETS_MAX, |packets| packets.min(BATCH_PACKETS_MAX))
            }
        }
    }

    /// Returns the result of a step whose send call failed.
    fn step_after(&self, error: &SendError, form: SendForm) -> Step {
        match (error, form) {
            (SendError::Blocked, _) => Step::Wait,
            // The image was truncated or unreadable after its comparison; the asset may be intact.
            (SendError::Shrunk { .. }, SendForm::Image(layout)) => {
                if let Some(image) = self.source.image(layout) {
                    image.drop_out(&error.to_string());
                }
                Step::Wait
            }
            (SendError::Gone { .. }, _) => Step::Ended(StreamEnd::Gone),
            _ => Step::Ended(StreamEnd::Broken(format!("{}: {error}", self.source.asset.name))),
        }
    }
}

impl PacedStream {
    /// Records ICMP reports about the session's packets; counts and ignores the rest.
    fn judge_reports(&mut self, tools: &mut Tools) {
        let MediaTarget::Datagrams(to) = &mut self.to else { return };
        let reports = to.take_reports();
        if reports.is_empty() {
            return;
        }
        let plan = &self.source.asset.plan;
        let packet_bytes = plan.wire_offset(1);
        let mut ignored = 0;
        for report in &reports {
            let kind = icmp_faults::kind(report.fault, packet_bytes, to.is_cut_on_the_way());
            match kind {
                Some(kind)
                    if icmp_faults::is_sent(
                        report.quote(),
                        plan,
                        self.shift,
                        self.next,
                        BATCH_PACKETS_MAX,
                    ) =>
                {
                    self.link.report_fault(kind, tools.clock.now());
                }
                _ => ignored += 1,
            }
        }
        let counters = tools.counters();
        counters.icmp_verified += reports.len() as u64 - ignored;
        counters.icmp_ignored += ignored;
        if ignored > 0 {
            tools.log_ignored(to.name());
        }
    }
}

/// Returns the window that begins with `packets`, of a play that ends at `limit`: at least
/// [`PACKETS_MIN`] and at most [`WINDOW_BYTES_MAX`] of the form, in whole parts of the asset.
fn window(source: &Source, form: SendForm, packets: Range<u64>, limit: u64) -> Range<u64> {
    let Range { start: ready, end: until } = packets;
    let plan = &source.asset.plan;
    let least = (ready + PACKETS_MIN).min(limit);
    let wanted = ready..until.clamp(least, limit.max(least));
    let end = within(plan, form, wanted, WINDOW_BYTES_MAX).max(least);
    whole_parts(ready..end, plan.packets())
}

/// Requests the first window of a play that has not begun.
pub(super) fn ask_first(source: &Arc<Source>, packets: &Range<u64>, readers: &PrefetchHandle) {
    let (plan, first) = (&source.asset.plan, source.asset.first_packet());
    let start = packets.start.saturating_sub(first);
    let limit = packets.end.saturating_sub(first).min(source.end());
    let until = plan.packets_before(plan.ticks(start).saturating_add(ticks_of(WINDOW)));
    let (form, mark) = (SendForm::Source, Arc::default());
    let packets = window(source, form, start..until, limit);
    readers.ask(Window { source: source.clone(), form, packets, mark });
}

/// Media kept in memory ahead of a session; the next window is requested when half is used.
const WINDOW: Duration = Duration::from_secs(2);
/// 32 MiB: two seconds at 134 Mb/s.
const WINDOW_BYTES_MAX: u64 = 32 << 20;
/// Least packets of a window: at a slow rate a few packets would be requested at every step.
const PACKETS_MIN: u64 = 64;
/// Most packets of a call: a GSO batch is limited to 64 KiB.
const BATCH_PACKETS_MAX: u64 = 48;

mod parts;
#[cfg(test)]
pub(super) mod tests;
