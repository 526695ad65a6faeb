// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages in lanes: who enters when another leaves, and the loop that takes all lanes on.
//!
//! Sources: see [`super`].

use zeroize::Zeroize;

use super::key::{Key, ROUND_KEYS_MAX, Schedule};
use super::{BLOCK_BYTES, Message};

/// Messages that are ordered at a time; between two such windows the lanes run empty once.
const WINDOW: usize = 256;

/// What `N` lanes hold. A lane past the occupied ones is a copy of the first.
#[repr(C, align(64))]
pub(super) struct Lanes<const N: usize> {
    /// The chaining values.
    pub(super) chain: [u128; N],
    /// Round keys, lane by lane; only filled when messages have keys of their own.
    pub(super) keys: [[u128; N]; ROUND_KEYS_MAX],
    /// The round keys of all, when all have the same key.
    pub(super) shared: Option<*const Schedule>,
    pub(super) rounds: usize,
    /// The next block of each.
    pub(super) at: [*mut u8; N],
    /// Blocks that are left of each.
    left: [usize; N],
    /// Which message is in it.
    message: [usize; N],
}

/// Takes the lanes `blocks` blocks on. The first so many lanes are occupied.
pub(super) type Run<const N: usize> = unsafe fn(&mut Lanes<N>, usize, usize);

/// Encrypts all messages.
///
/// # Safety
/// The processor has the instructions of `run`.
pub(super) unsafe fn encrypt<const N: usize>(messages: &mut [Message<'_>], run: Run<N>) {
    for window in messages.chunks_mut(WINDOW) {
        for rounds in [10, 12, 14] {
            let mut order = [0_u64; WINDOW];
            let mut count = 0;
            for (index, message) in window.iter().enumerate() {
                let blocks = message.bytes.len() / BLOCK_BYTES;
                if blocks > 0 && message.key.rounds() == rounds {
                    order[count] = (blocks as u64) << 16 | index as u64;
                    count += 1;
                }
            }
            if count == 0 {
                continue;
            }
            let order = &mut order[..count];
            order.sort_unstable_by(|a, b| b.cmp(a));
            // SAFETY: by the caller.
            unsafe { pass(window, order, rounds, run) };
        }
    }
}

/// # Safety
/// As for [`encrypt`].
unsafe fn pass<const N: usize>(
    messages: &mut [Message<'_>],
    order: &[u64],
    rounds: usize,
    run: Run<N>,
) {
    let message_of = |entry: u64| (entry & 0xffff) as usize;
    let first: *const Key = messages[message_of(order[0])].key;
    let same = order.iter().all(|entry| core::ptr::eq(messages[message_of(*entry)].key, first));
    let shared = same.then(|| core::ptr::from_ref(messages[message_of(order[0])].key.encrypt()));
    let mut lanes = Lanes::<N> {
        chain: [0; N],
        keys: [[0; N]; ROUND_KEYS_MAX],
        shared,
        rounds,
        at: [core::ptr::null_mut(); N],
        left: [0; N],
        message: [0; N],
    };
    let mut next = order.iter().copied();
    let mut occupied = 0;
    for entry in next.by_ref().take(N) {
        let index = message_of(entry);
        lanes.enter(occupied, index, &mut messages[index]);
        occupied += 1;
    }
    while occupied > 0 {
        for lane in occupied..N {
            lanes.copy(0, lane);
        }
        let blocks = *lanes.left[..occupied].iter().min().expect("one is occupied");
        // SAFETY: the instructions by the caller; every lane has at least so many blocks left.
        unsafe { run(&mut lanes, occupied, blocks) };
        let mut lane = 0;
        while lane < occupied {
            lanes.left[lane] -= blocks;
            lanes.at[lane] = lanes.at[lane].wrapping_add(blocks * BLOCK_BYTES);
            if lanes.left[lane] > 0 {
                lane += 1;
                continue;
            }
            *messages[lanes.message[lane]].iv = lanes.chain[lane].to_ne_bytes();
            if let Some(entry) = next.next() {
                let index = message_of(entry);
                lanes.enter(lane, index, &mut messages[index]);
                lane += 1;
            } else {
                occupied -= 1;
                lanes.copy(occupied, lane);
            }
        }
    }
}

impl<const N: usize> Lanes<N> {
    fn enter(&mut self, lane: usize, index: usize, message: &mut Message<'_>) {
        self.message[lane] = index;
        self.at[lane] = message.bytes.as_mut_ptr();
        self.left[lane] = message.bytes.len() / BLOCK_BYTES;
        self.chain[lane] = u128::from_ne_bytes(*message.iv);
        if self.shared.is_none() {
            let keys = &message.key.encrypt().0[..=self.rounds];
            for (lanes, key) in self.keys.iter_mut().zip(keys) {
                lanes[lane] = u128::from_ne_bytes(*key);
            }
        }
    }

    fn copy(&mut self, from: usize, to: usize) {
        self.message[to] = self.message[from];
        self.at[to] = self.at[from];
        self.left[to] = self.left[from];
        self.chain[to] = self.chain[from];
        if self.shared.is_none() {
            for lanes in &mut self.keys[..=self.rounds] {
                lanes[to] = lanes[from];
            }
        }
    }
}

impl<const N: usize> Drop for Lanes<N> {
    fn drop(&mut self) {
        if self.shared.is_none() {
            self.keys.as_flattened_mut().zeroize();
        }
    }
}

/// A register of `W` blocks.
pub(super) trait Register<const W: usize>: Copy {
    /// # Safety
    /// The processor has the instructions of the implementation, here and below.
    unsafe fn zero() -> Self;

    /// # Safety
    /// `W` blocks can be read there.
    unsafe fn load(from: *const u8) -> Self;

    /// # Safety
    /// `W` blocks can be written there.
    unsafe fn store(self, to: *mut u8);

    /// The block at each of `from`.
    ///
    /// # Safety
    /// A block can be read at each.
    unsafe fn gather(from: [*const u8; W]) -> Self;

    /// Writes a block to each of `to`.
    ///
    /// # Safety
    /// A block can be written at each.
    unsafe fn scatter(self, to: [*mut u8; W]);

    /// One block, `W` times.
    ///
    /// # Safety
    /// A block can be read there.
    unsafe fn broadcast(from: *const u8) -> Self;

    /// # Safety
    /// As for `zero`.
    unsafe fn xor(self, other: Self) -> Self;

    /// Rows to columns: register `i` of the result has block `i` of each of `rows`.
    ///
    /// # Safety
    /// As for `zero`.
    unsafe fn transposed(rows: [Self; W]) -> [Self; W];

    /// The cipher on `G` registers at once.
    ///
    /// # Safety
    /// As for `zero`.
    unsafe fn encrypt<const G: usize, K: RoundKeys<Self>>(
        state: [Self; G],
        keys: K,
        rounds: usize,
    ) -> [Self; G];
}

/// Where the round keys of a group of lanes are.
pub(super) trait RoundKeys<R>: Copy {
    /// # Safety
    /// The processor has the instructions of `R`, and there are as many.
    unsafe fn key(self, round: usize, group: usize) -> R;
}

/// One key for all lanes.
#[derive(Clone, Copy)]
pub(super) struct Shared<const W: usize>(*const Schedule);

impl<R: Register<W>, const W: usize> RoundKeys<R> for Shared<W> {
    #[inline(always)]
    unsafe fn key(self, round: usize, _: usize) -> R {
        // SAFETY: by the caller; the schedule outlives the call that reads it.
        unsafe { R::broadcast(self.0.cast::<u8>().add(round * BLOCK_BYTES)) }
    }
}

/// A key for each of `N` lanes.
#[derive(Clone, Copy)]
pub(super) struct Own<const W: usize, const N: usize>(*const [[u128; N]; ROUND_KEYS_MAX]);

impl<R: Register<W>, const W: usize, const N: usize> RoundKeys<R> for Own<W, N> {
    #[inline(always)]
    unsafe fn key(self, round: usize, group: usize) -> R {
        // SAFETY: by the caller.
        unsafe { R::load(self.0.cast::<u8>().add((round * N + group * W) * BLOCK_BYTES)) }
    }
}

/// Takes the first `G` registers of lanes on.
///
/// # Safety
/// The processor has the instructions of `R`, and the caller is compiled for them; each of the
/// lanes has `blocks` blocks left.
#[inline(always)]
pub(super) unsafe fn run<R: Register<W>, const W: usize, const G: usize, const N: usize>(
    lanes: &mut Lanes<N>,
    blocks: usize,
) {
    const { assert!(W * G <= N) };
    // SAFETY: by the caller.
    unsafe {
        match lanes.shared {
            Some(schedule) => run_with::<R, Shared<W>, W, G, N>(lanes, Shared(schedule), blocks),
            None => {
                let keys = Own(&raw const lanes.keys);
                run_with::<R, Own<W, N>, W, G, N>(lanes, keys, blocks);
            }
        }
    }
}

/// # Safety
/// As for [`run`].
#[inline(always)]
unsafe fn run_with<
    R: Register<W>,
    K: RoundKeys<R>,
    const W: usize,
    const G: usize,
    const N: usize,
>(
    lanes: &mut Lanes<N>,
    keys: K,
    blocks: usize,
) {
    let rounds = lanes.rounds;
    let at = lanes.at;
    let chain = lanes.chain.as_mut_ptr().cast::<u8>();
    // SAFETY: by the caller.
    unsafe {
        let mut state = [R::zero(); G];
        for (group, state) in state.iter_mut().enumerate() {
            *state = R::load(chain.add(group * W * BLOCK_BYTES));
        }
        let mut offset = 0;
        for _ in 0..blocks / W {
            let mut squares = [[R::zero(); W]; G];
            for group in 0..G {
                for lane in 0..W {
                    squares[group][lane] = R::load(at[group * W + lane].add(offset));
                }
                squares[group] = R::transposed(squares[group]);
            }
            #[expect(clippy::needless_range_loop, reason = "a column, not a row")]
            for block in 0..W {
                for group in 0..G {
                    state[group] = state[group].xor(squares[group][block]);
                }
                state = R::encrypt(state, keys, rounds);
                for group in 0..G {
                    squares[group][block] = state[group];
                }
            }
            for group in 0..G {
                let rows = R::transposed(squares[group]);
                for lane in 0..W {
                    rows[lane].store(at[group * W + lane].add(offset));
                }
            }
            offset += W * BLOCK_BYTES;
        }
        for _ in 0..blocks % W {
            for group in 0..G {
                let mut from = [core::ptr::null(); W];
                for lane in 0..W {
                    from[lane] = at[group * W + lane].add(offset).cast_const();
                }
                state[group] = state[group].xor(R::gather(from));
            }
            state = R::encrypt(state, keys, rounds);
            for group in 0..G {
                let mut to = [core::ptr::null_mut(); W];
                for lane in 0..W {
                    to[lane] = at[group * W + lane].add(offset);
                }
                state[group].scatter(to);
            }
            offset += BLOCK_BYTES;
        }
        for (group, state) in state.iter().enumerate() {
            state.store(chain.add(group * W * BLOCK_BYTES));
        }
    }
}

const _: () = assert!(size_of::<u128>() == BLOCK_BYTES);
