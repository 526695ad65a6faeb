// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the engine over works in memory.

use std::sync::Mutex;

use super::*;
use crate::error::FileFault;
use crate::key::Secret;

/// A work whose message is noise; its result goes to `out`.
struct Memory<'a> {
    number: usize,
    bytes: usize,
    key: &'a AesKey,
    fails: Option<Step>,
    held_bytes: usize,
    out: &'a Mutex<Vec<(usize, Vec<u8>)>>,
}

#[derive(Clone, Copy, PartialEq)]
enum Step {
    Open,
    Fill,
    Drain,
    Finish,
}

struct Open<'a> {
    work: Memory<'a>,
    offset: usize,
    iv: [u8; 16],
    done: Vec<u8>,
    is_ready: bool,
}

fn noise(number: usize, at: usize) -> u8 {
    (number * 31 + at * at / 7 + at) as u8
}

impl<'a> Memory<'a> {
    fn at(&self, step: Step) -> Result<(), Error> {
        match self.fails == Some(step) {
            true => Err(Error::file(format!("{}", self.number).as_ref(), FileFault::Changed)),
            false => Ok(()),
        }
    }
}

impl<'a> Work for Memory<'a> {
    type Stream = Open<'a>;
    fn bytes(&self) -> u64 {
        self.bytes as u64
    }
    fn held_bytes(&self) -> usize {
        self.held_bytes
    }
    fn open(self) -> Result<Open<'a>, Error> {
        self.at(Step::Open)?;
        let iv = [self.number as u8; 16];
        Ok(Open { work: self, offset: 0, iv, done: Vec::new(), is_ready: false })
    }
}

impl WorkStream for Open<'_> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<Filled, Error> {
        assert!((SLICE_BYTES_MIN..=SLICE_BYTES + SLACK_BYTES).contains(&buffer.len()));
        // Every other call returns an empty slice that is not the last.
        self.is_ready = !self.is_ready;
        if !self.is_ready {
            return Ok(Filled::default());
        }
        self.work.at(Step::Fill)?;
        let bytes = (self.work.bytes - self.offset).min(SLICE_BYTES);
        assert!(buffer.len() >= bytes + SLACK_BYTES, "{} for {bytes}", buffer.len());
        for (at, byte) in buffer[..bytes].iter_mut().enumerate() {
            *byte = noise(self.work.number, self.offset + at);
        }
        self.offset += bytes;
        let cipher = 0..bytes / 16 * 16;
        let is_last = self.offset == self.work.bytes;
        Ok(Filled { bytes, cipher, source_bytes: bytes as u64, is_last })
    }
    fn chain(&mut self) -> (&AesKey, &mut [u8; 16]) {
        (self.work.key, &mut self.iv)
    }
    fn drain(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.work.at(Step::Drain)?;
        self.done.extend_from_slice(bytes);
        Ok(())
    }
    fn finish(self) -> Result<(), Error> {
        self.work.at(Step::Finish)?;
        self.work.out.lock().unwrap().push((self.work.number, self.done));
        Ok(())
    }
}

fn settings(threads: usize) -> Settings {
    Settings::here(Some(threads))
}

fn key() -> AesKey {
    AesKey::new(Secret::random(16).unwrap().bytes()).unwrap()
}

/// Lengths around every limit, and many small ones.
fn lengths() -> Vec<usize> {
    let mut lengths = vec![0, 1, 15, 16, 17, 3 * SLICE_BYTES + 5, 40 * SLICE_BYTES];
    for border in [SLICE_BYTES_MIN, SLICE_BYTES, 2 * SLICE_BYTES] {
        lengths.extend(border - 17..border + 17);
    }
    lengths.extend((0..300).map(|number| number * 13));
    lengths
}

#[test]
fn every_work_is_done_once_and_right_by_any_number_of_workers() {
    let key = key();
    let cbc = simd::Kernels::here().cbc;
    let lengths = lengths();
    for threads in [1, 2, 5] {
        let out = Mutex::default();
        let works = lengths.iter().enumerate().map(|(number, &bytes)| Memory {
            number,
            bytes,
            key: &key,
            fails: None,
            held_bytes: 0,
            out: &out,
        });
        let seen = SealProgress::default();
        let outcome = run(works.collect(), &settings(threads), &seen);
        assert!(outcome.failed.is_empty() && !outcome.is_stopped);
        assert_eq!(outcome.done, lengths.len() as u64);
        assert_eq!(outcome.bytes, lengths.iter().map(|&bytes| bytes as u64).sum::<u64>());
        assert_eq!(seen.bytes.load(Ordering::Relaxed), outcome.bytes);
        assert_eq!(seen.done.load(Ordering::Relaxed), outcome.done);
        assert!(outcome.tail <= outcome.wall);
        assert!(outcome.lanes > 1.0, "{}", outcome.lanes);
        let mut out = out.into_inner().unwrap();
        out.sort();
        for ((number, done), (at, &bytes)) in out.iter().zip(lengths.iter().enumerate()) {
            assert_eq!(*number, at);
            let mut right: Vec<u8> = (0..bytes).map(|byte| noise(at, byte)).collect();
            let mut iv = [at as u8; 16];
            // SLICE_BYTES is a multiple of 16: ciphers of consecutive slices join without a gap.
            let whole = &mut right[..bytes / 16 * 16];
            cbc.encrypt(&mut [simd::cbc::Message { key: &key, iv: &mut iv, bytes: whole }]);
            assert!(*done == right, "{bytes} bytes");
        }
    }
}

#[test]
fn a_work_that_fails_at_any_step_fails_alone() {
    let key = key();
    let out = Mutex::default();
    let steps = [Step::Open, Step::Fill, Step::Drain, Step::Finish];
    let works = (0..400).map(|number| Memory {
        number,
        bytes: number * 200 + 1,
        key: &key,
        fails: steps.get(number % 8).copied(),
        held_bytes: 0,
        out: &out,
    });
    let seen = SealProgress::default();
    let outcome = run(works.collect(), &settings(2), &seen);
    assert_eq!((outcome.done, outcome.failed.len()), (200, 200));
    assert_eq!(seen.failed.load(Ordering::Relaxed), 200);
    let mut done: Vec<_> =
        out.into_inner().unwrap().into_iter().map(|(number, _)| number).collect();
    done.sort_unstable();
    assert_eq!(done, (0..400).filter(|number| number % 8 >= 4).collect::<Vec<_>>());
}

#[test]
fn a_run_that_is_stopped_says_so() {
    let key = key();
    let out = Mutex::default();
    let work = Memory { number: 0, bytes: 9, key: &key, fails: None, held_bytes: 0, out: &out };
    let seen = SealProgress { stop: AtomicBool::new(true), ..SealProgress::default() };
    let outcome = run(vec![work], &settings(1), &seen);
    assert!(outcome.is_stopped);
    assert_eq!((outcome.done, outcome.failed.len()), (0, 0));
}

#[test]
fn streams_that_hold_memory_are_open_only_as_many_as_there_is() {
    let key = key();
    let out = Mutex::default();
    let work = |held_bytes| Memory {
        number: 0,
        bytes: 100,
        key: &key,
        fails: None,
        held_bytes,
        out: &out,
    };
    let count_claimed = |held_bytes: usize| {
        let queue =
            WorkQueue::new((0..9).map(|_| work(held_bytes)).collect(), (1, 1), STREAMS_MAX, 4096);
        let mut claimed = Vec::new();
        queue.take(0, &mut work_queue::WorkerLoad::default(), &mut claimed);
        claimed.len()
    };
    assert_eq!(
        [count_claimed(0), count_claimed(1024), count_claimed(4096), count_claimed(5000)],
        [9, 4, 1, 1]
    );
}

#[test]
fn too_little_memory_is_named_with_the_least_that_works() {
    let error = settings(2).within(WORKER_BYTES - 1).err().unwrap();
    assert!(error.is_caller());
    assert!(error.to_string().starts_with("memory: ") && error.to_string().contains("write 2 MiB"));
    assert_eq!(settings(4).within(2 * WORKER_BYTES).unwrap().threads, 2);
    assert_eq!(settings(4).within(1 << 30).unwrap().threads, 4);
}

/// The first of two workers claims works several times before the second has started.
#[test]
fn no_worker_takes_more_than_its_share_of_what_is_unfinished() {
    let key = AesKey::new(&[7; 32]).expect("a length of AES");
    let out = Mutex::new(Vec::new());
    let work = |number| Memory {
        number,
        bytes: 4 << 20,
        key: &key,
        fails: None,
        held_bytes: 0,
        out: &out,
    };
    let nine =
        |workers| WorkQueue::new((0..9).map(work).collect(), workers, STREAMS_MAX, MEMORY_BYTES);
    let queue = nine((2, 8));
    let (mut first, mut second) =
        (work_queue::WorkerLoad::default(), work_queue::WorkerLoad::default());
    let mut claimed = Vec::new();
    for _ in 0..5 {
        queue.take(0, &mut first, &mut claimed);
    }
    assert_eq!((claimed.len(), first.streams), (5, 5), "half of nine, and not one by one the rest");
    queue.take(1, &mut second, &mut claimed);
    assert_eq!((claimed.len(), second.streams), (9, 4));
    // A worker that has finished its own streams claims no more than the queue has.
    let mut idle = work_queue::WorkerLoad::default();
    queue.take(0, &mut idle, &mut claimed);
    assert_eq!((claimed.len(), idle.streams), (9, 0));
    // Ten workers on two cores fill their lanes as two workers would.
    let (queue, mut claimed) = (nine((10, 2)), Vec::new());
    queue.take(7, &mut work_queue::WorkerLoad::default(), &mut claimed);
    assert_eq!(claimed.len(), 5);
}
