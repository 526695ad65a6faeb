// SPDX-License-Identifier: MIT OR Apache-2.0
//! Places for requests that wait for a slow operation, bounded in total and for each client
//! address.
//!
//! A place is released when it is dropped, also when a client hangs up while its request waits,
//! since the request's future is dropped then. Costs a lock and a look-up for each place.
//!
//! Sources: none.
//! Does not order the waiting requests.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

use parking_lot::Mutex;

use crate::client_prefix::counted_as;

/// Places, of which each address has a share.
pub(crate) struct WaitingPlaces {
    most: u32,
    most_of_address: u32,
    held: Mutex<HeldPlaces>,
}

#[derive(Default)]
struct HeldPlaces {
    all: u32,
    by_address: HashMap<IpAddr, u32>,
}

/// A place that is held.
pub(crate) struct WaitingPlace<'a> {
    places: &'a WaitingPlaces,
    address: IpAddr,
}

impl WaitingPlaces {
    pub(crate) fn new(most: u32, most_of_address: u32) -> WaitingPlaces {
        WaitingPlaces { most, most_of_address, held: Mutex::default() }
    }

    /// Acquires a place; `None` where all places, or all of this address, are held.
    pub(crate) fn take(&self, address: IpAddr) -> Option<WaitingPlace<'_>> {
        let address = counted_as(address.to_canonical());
        let mut held = self.held.lock();
        let own = held.by_address.get(&address).copied().unwrap_or(0);
        if held.all >= self.most || own >= self.most_of_address {
            return None;
        }
        held.all += 1;
        held.by_address.insert(address, own + 1);
        Some(WaitingPlace { places: self, address })
    }
}

impl Drop for WaitingPlace<'_> {
    fn drop(&mut self) {
        let mut held = self.places.held.lock();
        held.all -= 1;
        if let Entry::Occupied(mut own) = held.by_address.entry(self.address) {
            *own.get_mut() -= 1;
            if *own.get() == 0 {
                own.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_given_back_and_no_address_has_all() {
        let places = WaitingPlaces::new(3, 2);
        let one: IpAddr = "2001:db8::1".parse().unwrap();
        let neighbour: IpAddr = "2001:db8::2".parse().unwrap();
        let other: IpAddr = "192.0.2.1".parse().unwrap();
        let held = [places.take(one), places.take(neighbour)];
        assert!(held.iter().all(Option::is_some));
        assert!(places.take(one).is_none(), "both are of one /64");
        let of_other = places.take(other);
        assert!(of_other.is_some() && places.take(other).is_none(), "three are held");
        drop(held);
        drop(of_other);
        let held = places.held.lock();
        assert!(held.all == 0 && held.by_address.is_empty());
    }
}
