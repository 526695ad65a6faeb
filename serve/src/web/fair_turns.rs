// SPDX-License-Identifier: MIT OR Apache-2.0
//! Allots turns at slow work to client addresses in rotation.
//!
//! A few pieces of work are done at a time. If they were done in the order of their requests, a
//! client that requests hundreds would keep all others waiting. So each address has a queue of its
//! own, and the next turn goes to the address whose last turn was longest ago. Work that several
//! clients request is done once, at the first turn of any of them: none waits behind the other
//! requests of the first client.
//!
//! Costs a lock and two entries of maps for each request that waits, and a look at each claim of an
//! address for a turn that is handed on.
//!
//! Does not bound the claims: connections are ([`crate::limits`]).

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use access::counted_as;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Turns at one kind of work.
pub(super) struct FairTurns(Arc<Mutex<State>>);

struct State {
    free: usize,
    claimed: u64,
    /// Work that is ready to be done at its turn, with the claim of the client that waits for it.
    awaited: HashMap<Arc<str>, (u64, oneshot::Sender<Turn>)>,
    /// Work that each address waits for, in the order of its claims; none is empty.
    claims: HashMap<IpAddr, BTreeMap<u64, Arc<str>>>,
    /// These addresses, the next one first.
    rotation: VecDeque<IpAddr>,
}

/// A client's request that some work be done; dropping it withdraws it.
pub(super) struct Claim<'a> {
    turns: &'a FairTurns,
    client: IpAddr,
    number: u64,
    work: Arc<str>,
}

/// Permission to do one piece of work; dropping it hands the turn on.
pub(super) struct Turn(Arc<Mutex<State>>);

/// Work that waits for its turn.
struct Awaited<'a>(&'a Claim<'a>);

impl FairTurns {
    /// `at_a_time` is the number of pieces of work that are done at a time.
    pub(super) fn new(at_a_time: usize) -> FairTurns {
        FairTurns(Arc::new(Mutex::new(State {
            free: at_a_time,
            claimed: 0,
            awaited: HashMap::new(),
            claims: HashMap::new(),
            rotation: VecDeque::new(),
        })))
    }

    /// Claims the work of this name for a client. Several clients may claim the same work; one of
    /// them at a time waits for its turn.
    pub(super) fn claim(&self, peer: IpAddr, work: &str) -> Claim<'_> {
        self.claim_as(peer, |_| work.into())
    }

    /// Claims work that no other client requests.
    pub(super) fn claim_own(&self, peer: IpAddr) -> Claim<'_> {
        // No address of a segment is a number.
        self.claim_as(peer, |number| number.to_string().into())
    }

    fn claim_as(&self, peer: IpAddr, name: impl FnOnce(u64) -> Arc<str>) -> Claim<'_> {
        let client = counted_as(peer.to_canonical());
        let mut guard = self.0.lock();
        let state = &mut *guard;
        let number = state.claimed;
        state.claimed += 1;
        let work = name(number);
        let own = state.claims.entry(client).or_insert_with(|| {
            state.rotation.push_back(client);
            BTreeMap::new()
        });
        own.insert(number, work.clone());
        drop(guard);
        Claim { turns: self, client, number, work }
    }
}

impl Claim<'_> {
    /// Resolves when the work may be done.
    pub(super) async fn turn(&self) -> Turn {
        let given = {
            let mut state = self.turns.0.lock();
            if state.free > 0 {
                state.free -= 1;
                state.put_last(self.client);
                return Turn(self.turns.0.clone());
            }
            let (sender, given) = oneshot::channel();
            state.awaited.insert(self.work.clone(), (self.number, sender));
            given
        };
        let _awaited = Awaited(self);
        given.await.expect("it is sent before it is removed")
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut state = self.turns.0.lock();
        let Some(own) = state.claims.get_mut(&self.client) else { return };
        own.remove(&self.number);
        if own.is_empty() {
            state.claims.remove(&self.client);
            state.rotation.retain(|client| *client != self.client);
        }
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        let mut state = self.0.turns.0.lock();
        // Another claim may wait in its place, where it was cancelled.
        let is_own = |(number, _): &(u64, _)| *number == self.0.number;
        if state.awaited.get(&self.0.work).is_some_and(is_own) {
            state.awaited.remove(&self.0.work);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let next = self.0.lock().next();
        // A client that has left meanwhile drops the turn, which hands it on.
        if let Some(next) = next {
            let _ = next.send(Turn(self.0.clone()));
        }
    }
}

impl State {
    /// Removes the next work in turn from the queue; where there is none, the turn is free.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        let is_awaited = |work: &&Arc<str>| self.awaited.contains_key(*work);
        let found = self.rotation.iter().find_map(|client| {
            let work = self.claims[client].values().find(is_awaited)?;
            Some((*client, work.clone()))
        });
        let Some((client, work)) = found else {
            self.free += 1;
            return None;
        };
        self.put_last(client);
        self.awaited.remove(&work).map(|(_, sender)| sender)
    }

    /// Lets all other addresses precede this one.
    fn put_last(&mut self, client: IpAddr) {
        self.rotation.retain(|other| *other != client);
        self.rotation.push_back(client);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const ONE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    type Waiting<'a> = Pin<Box<dyn Future<Output = Turn> + 'a>>;

    fn take(waiting: &mut Waiting<'_>) -> Option<Turn> {
        match waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        }
    }

    /// Does work for clients that all claim it before the first turn is handed on, and returns the
    /// order in which it was done. Clients of `gone` leave while they wait; claims without work
    /// wait for that of others.
    fn done(asked: &[(IpAddr, &str)], gone: &[usize], without_work: &[usize]) -> Vec<String> {
        let turns = FairTurns::new(1);
        let first = turns.claim(ONE, "first");
        let mut turn = take(&mut (Box::pin(first.turn()) as Waiting<'_>));
        drop(first);
        let claims: Vec<_> = asked.iter().map(|&(peer, work)| turns.claim(peer, work)).collect();
        let own = claims.iter().enumerate().filter(|(index, _)| !without_work.contains(index));
        let mut waiting: Vec<(usize, Waiting<'_>)> =
            own.map(|(index, claim)| (index, Box::pin(claim.turn()) as Waiting<'_>)).collect();
        assert!(waiting.iter_mut().all(|(_, one)| take(one).is_none()), "all wait");
        waiting.retain(|(index, _)| !gone.contains(index));
        let mut order = Vec::new();
        while !waiting.is_empty() {
            drop(turn);
            let mut given = None;
            waiting.retain_mut(|(index, one)| {
                let claimed = take(one);
                let is_claimed = claimed.is_some();
                if is_claimed {
                    assert!(given.is_none(), "one turn at a time");
                    (given, _) = (claimed, order.push(asked[*index].1.to_owned()));
                }
                !is_claimed
            });
            turn = Some(given.expect("a turn that is free is taken"));
        }
        drop((turn, waiting));
        drop(claims);
        let state = turns.0.lock();
        assert!(state.awaited.is_empty() && state.claims.is_empty() && state.rotation.is_empty());
        assert_eq!(state.free, 1, "each turn is given back");
        order
    }

    /// Regression: a client that requested one segment waited for all that another had requested.
    #[test]
    fn addresses_take_turns_whatever_they_ask_for() {
        let asked = [(ONE, "a"), (ONE, "b"), (ONE, "c"), (OTHER, "x"), (OTHER, "y")];
        assert_eq!(done(&asked, &[], &[]), ["a", "x", "b", "y", "c"]);
        let [one, neighbour] = ["2001:db8::1", "2001:db8::2"].map(|text| text.parse().unwrap());
        let asked = [(one, "a"), (neighbour, "b"), (OTHER, "x")];
        assert_eq!(done(&asked, &[], &[]), ["a", "x", "b"], "a /64 is one client");
    }

    #[test]
    fn those_who_leave_take_no_turn_along() {
        let asked = [(ONE, "a"), (ONE, "b"), (OTHER, "x"), (OTHER, "y")];
        assert_eq!(done(&asked, &[0, 2], &[]), ["b", "y"]);
        assert!(done(&asked, &[0, 1, 2, 3], &[]).is_empty());
    }

    #[test]
    fn work_of_several_is_done_at_the_first_turn_of_any() {
        let asked = [(ONE, "a"), (ONE, "b"), (ONE, "shared"), (OTHER, "shared")];
        assert_eq!(done(&asked, &[], &[3]), ["a", "shared", "b"]);
    }

    /// A turn that was sent to a client that leaves before it receives it.
    #[test]
    fn turns_that_nobody_takes_are_handed_on() {
        let turns = FairTurns::new(1);
        let claims = [turns.claim_own(ONE), turns.claim_own(ONE), turns.claim_own(OTHER)];
        let [mut first, mut second, mut third] =
            claims.each_ref().map(|claim| Box::pin(claim.turn()) as Waiting<'_>);
        let turn = take(&mut first).expect("it is free");
        assert!(take(&mut second).is_none() && take(&mut third).is_none());
        drop(turn);
        // The turn was sent to the other address.
        drop(third);
        assert!(take(&mut second).is_some());
    }
}
