// SPDX-License-Identifier: MIT OR Apache-2.0
//! Mutates seeds reproducibly.
//!
//! The mutation derives from the seed's name and a number only (and from the other seeds if two are
//! spliced), so a seed added later does not change the inputs of the others.
//!
//! Sources: the kinds are those of libFuzzer (`FuzzerMutate.cpp`); xorshift is Marsaglia's.
//!
//! Does not learn from the coverage of an input, as libFuzzer does.

use crate::corpus::Corpus;

/// Mutations of one input, at most.
const STEPS_MAX: usize = 4;
/// Bytes that are inserted, removed or copied by one mutation, at most.
const CHUNK_BYTES_MAX: usize = 64;
/// Values at the edges of integers, as the first byte and all bytes after it.
const EDGES: &[(u8, u8)] = &[(0, 0), (0, 1), (0x7f, 0xff), (0x80, 0), (0xff, 0xff), (0xff, 0xfe)];

/// A way to change an input.
enum Kind {
    InPlace(fn(&mut [u8], &mut Noise)),
    Resizing(fn(&mut Vec<u8>, &Corpus, &mut Noise)),
}

/// All kinds of mutations; each is as likely as another.
const KINDS: &[Kind] = &[
    Kind::InPlace(flip_bit),
    Kind::InPlace(replace_byte),
    Kind::InPlace(replace_first_byte),
    Kind::InPlace(replace_integer),
    Kind::InPlace(add_to_integer),
    Kind::Resizing(insert_bytes),
    Kind::Resizing(insert_word),
    Kind::Resizing(replace_by_word),
    Kind::Resizing(remove_chunk),
    Kind::Resizing(repeat_chunk),
    Kind::Resizing(copy_chunk),
    Kind::Resizing(splice),
    Kind::Resizing(truncate),
];

/// Returns the seed of that index after some mutations; the same bytes for the same number. Number
/// 0 is the unchanged seed.
pub(crate) fn mutated(corpus: &Corpus, index: usize, number: usize) -> Vec<u8> {
    let seed = &corpus.seeds[index];
    let mut noise = Noise::new(&seed.name, number);
    let mut input = seed.bytes.clone();
    if number == 0 {
        return input;
    }
    for _ in 0..=noise.below(STEPS_MAX) {
        match KINDS[noise.below(KINDS.len())] {
            Kind::InPlace(change) => change(&mut input, &mut noise),
            Kind::Resizing(change) => change(&mut input, corpus, &mut noise),
        }
    }
    input
}

fn flip_bit(input: &mut [u8], noise: &mut Noise) {
    let at = noise.below(input.len());
    if let Some(byte) = input.get_mut(at) {
        *byte ^= 1 << noise.below(8);
    }
}

fn replace_byte(input: &mut [u8], noise: &mut Noise) {
    let at = noise.below(input.len());
    if let Some(byte) = input.get_mut(at) {
        *byte = noise.byte();
    }
}

/// The first byte chooses among limits, cuts and forms in most targets.
fn replace_first_byte(input: &mut [u8], noise: &mut Noise) {
    if let Some(byte) = input.first_mut() {
        *byte = noise.byte();
    }
}

/// An integer of 1, 2, 4 or 8 bytes becomes an edge, in either order of bytes.
fn replace_integer(input: &mut [u8], noise: &mut Noise) {
    let integer = integer(input, noise);
    let (most, others) = EDGES[noise.below(EDGES.len())];
    integer.fill(others);
    let most_significant =
        if noise.below(2) == 0 { integer.first_mut() } else { integer.last_mut() };
    if let Some(byte) = most_significant {
        *byte = most;
    }
}

/// Adds -8 to 8 to an integer of 1, 2, 4 or 8 bytes, big-endian.
fn add_to_integer(input: &mut [u8], noise: &mut Noise) {
    let integer = integer(input, noise);
    let mut bytes = [0; 8];
    let begin = bytes.len() - integer.len();
    bytes[begin..].copy_from_slice(integer);
    let sum = u64::from_be_bytes(bytes).wrapping_add(noise.below(17) as u64).wrapping_sub(8);
    integer.copy_from_slice(&sum.to_be_bytes()[begin..]);
}

fn insert_bytes(input: &mut Vec<u8>, _: &Corpus, noise: &mut Noise) {
    let at = noise.below(input.len() + 1);
    let bytes: Vec<u8> = (0..=noise.below(CHUNK_BYTES_MAX / 4)).map(|_| noise.byte()).collect();
    input.splice(at..at, bytes);
}

fn insert_word(input: &mut Vec<u8>, corpus: &Corpus, noise: &mut Noise) {
    let at = noise.below(input.len() + 1);
    if let Some(word) = corpus.words.get(noise.below(corpus.words.len())) {
        input.splice(at..at, word.iter().copied());
    }
}

fn replace_by_word(input: &mut Vec<u8>, corpus: &Corpus, noise: &mut Noise) {
    let at = noise.below(input.len() + 1);
    if let Some(word) = corpus.words.get(noise.below(corpus.words.len())) {
        let end = input.len().min(at + word.len());
        input.splice(at..end, word.iter().copied());
    }
}

fn remove_chunk(input: &mut Vec<u8>, _: &Corpus, noise: &mut Noise) {
    let (begin, end) = chunk(input, noise);
    input.drain(begin..end);
}

/// Doubles a chunk in place.
fn repeat_chunk(input: &mut Vec<u8>, _: &Corpus, noise: &mut Noise) {
    let (begin, end) = chunk(input, noise);
    let copy = input[begin..end].to_vec();
    input.splice(begin..begin, copy);
}

/// Inserts a chunk of one place at another.
fn copy_chunk(input: &mut Vec<u8>, _: &Corpus, noise: &mut Noise) {
    let (begin, end) = chunk(input, noise);
    let copy = input[begin..end].to_vec();
    let at = noise.below(input.len() + 1);
    input.splice(at..at, copy);
}

/// Joins the beginning of the input and the end of a seed.
fn splice(input: &mut Vec<u8>, corpus: &Corpus, noise: &mut Noise) {
    let other = &corpus.seeds[noise.below(corpus.seeds.len())].bytes;
    let begin = noise.below(other.len() + 1);
    input.truncate(noise.below(input.len() + 1));
    input.extend_from_slice(&other[begin..]);
}

fn truncate(input: &mut Vec<u8>, _: &Corpus, noise: &mut Noise) {
    input.truncate(noise.below(input.len() + 1));
}

/// A place of 1, 2, 4 or 8 bytes, fewer if the input ends before.
fn integer<'a>(input: &'a mut [u8], noise: &mut Noise) -> &'a mut [u8] {
    let begin = noise.below(input.len());
    let end = input.len().min(begin + (1 << noise.below(4)));
    &mut input[begin..end]
}

/// Begin and end of a chunk; empty if the input is.
fn chunk(input: &[u8], noise: &mut Noise) -> (usize, usize) {
    let begin = noise.below(input.len());
    (begin, input.len().min(begin + 1 + noise.below(CHUNK_BYTES_MAX)))
}

/// Pseudo-random numbers, the same in every run.
pub(crate) struct Noise(u64);

impl Noise {
    fn new(name: &str, number: usize) -> Self {
        let mix = |state: u64, value: u64| (state ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let named = name.bytes().fold(0, |state: u64, byte| mix(state.rotate_left(5), byte.into()));
        Self(mix(named.rotate_left(32), number as u64) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 32
    }

    fn byte(&mut self) -> u8 {
        self.next() as u8
    }

    /// A number below the limit; 0 for the limit 0.
    fn below(&mut self, limit: usize) -> usize {
        if limit == 0 { 0 } else { self.next() as usize % limit }
    }
}
