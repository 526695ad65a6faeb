// SPDX-License-Identifier: MIT OR Apache-2.0
//! Batches to many destinations at once: each has the outcome that it would have had alone.

use std::net::UdpSocket;

use paths::{Destination, Due, SendError, SendStats};

use crate::asset::{Asset, Shape};
use crate::harness::network::{self, Owner};
use crate::peer::{Peer, assert_received};
use crate::stream_paths;

#[test]
fn every_destination_gets_its_own_batch() {
    let assets = [3, 60, 1, 200].map(|packets| Asset::new(Shape::full(packets)));
    for (spec, feed, mut path) in stream_paths() {
        let mut peers = [(); 4].map(|()| Peer::on_loopback());
        let mut destinations = peers.each_ref().map(Peer::destination);
        let pieces = assets.each_ref().map(|asset| asset.pieces(0..asset.packets()));
        let mut stats = SendStats::default();
        let mut dues: Vec<_> = destinations
            .iter_mut()
            .zip(assets.iter().zip(&pieces))
            .map(|(to, (asset, pieces))| {
                Due::new(asset.batch(feed, 0..asset.packets(), pieces), to)
            })
            .collect();
        path.send_all(&mut dues, &mut stats);
        for (due, asset) in dues.iter().zip(&assets) {
            assert_eq!(due.outcome, Ok(asset.packets()), "{spec}");
        }
        drop(dues);
        for (peer, asset) in peers.iter_mut().zip(&assets) {
            assert_received(&peer.all(asset.shape.packets), &asset.datagrams, &spec.to_string());
        }
        assert_eq!((stats.packets, stats.refused), (264, 0), "{spec}");
    }
}

/// One destination's port is closed, the file of another has been cut, the third has no fault.
#[test]
fn a_closed_port_and_a_file_that_is_cut_trouble_no_other() {
    const ROUNDS: usize = 10;
    for (spec, feed, mut path) in stream_paths() {
        let asset = Asset::new(Shape::full(5));
        let cut = Asset::new(Shape::full(5));
        cut.source(feed).map().unwrap();
        cut.source(feed).file().set_len(0).unwrap();
        let pieces = asset.pieces(0..5);
        let (mut peer, other) = (Peer::on_loopback(), Peer::on_loopback());
        let (mut well, mut to_cut) = (peer.destination(), other.destination());
        let mut closed = nobody();
        let mut stats = SendStats::default();
        let mut reports = 0;
        for _ in 0..ROUNDS {
            let mut dues = [
                Due::new(asset.batch(feed, 0..5, &pieces), &mut closed),
                Due::new(cut.batch(feed, 0..5, &pieces), &mut to_cut),
                Due::new(asset.batch(feed, 0..5, &pieces), &mut well),
            ];
            path.send_all(&mut dues, &mut stats);
            assert_eq!(dues[1].outcome, Err(SendError::Shrunk { at: 0 }), "{spec}");
            assert_eq!(dues[2].outcome, Ok(5), "{spec}");
            assert_eq!(dues[0].outcome, Ok(5), "{spec}");
            reports += closed.take_reports().len();
        }
        assert!(reports > 0, "{spec}");
        let expected: Vec<_> = asset.datagrams.iter().cycle().take(5 * ROUNDS).cloned().collect();
        assert_received(&peer.all(5 * ROUNDS), &expected, &spec.to_string());
    }
}

/// Returns a destination at an address of loopback that no test listens at.
fn nobody() -> Destination {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect("127.77.0.1:9").unwrap();
    Destination::new(socket, "nobody").unwrap()
}

/// Full sockets are left for a later send, and the others are served.
#[test]
fn a_full_destination_holds_up_no_other() {
    let setup = "ip link set lo up && ip link add left type veth peer name right \
                 && ip link set right up && ip addr add 10.99.0.1/24 dev left \
                 && ip link set left up";
    network::run(Owner::User, setup, "many::beside_a_silent_network");
}

#[test]
#[ignore = "run by a_full_destination_holds_up_no_other"]
fn beside_a_silent_network() {
    let asset = Asset::new(Shape::full(300));
    for (number, (spec, feed, mut path)) in stream_paths().into_iter().enumerate() {
        let socket = UdpSocket::bind("10.99.0.1:0").unwrap();
        socket.connect((format!("10.99.0.{}", number + 2).as_str(), 5004)).unwrap();
        rustix::net::sockopt::set_socket_send_buffer_size(&socket, 8192).unwrap();
        let mut silent = Destination::new(socket, "silent").unwrap();
        let mut peers = [Peer::on_loopback(), Peer::on_loopback()];
        let [mut before, mut after] = peers.each_ref().map(Peer::destination);
        let pieces = asset.pieces(0..300);
        let few = asset.pieces(0..5);
        let mut stats = SendStats::default();
        for round in 0..2 {
            let mut dues = [
                Due::new(asset.batch(feed, 0..5, &few), &mut before),
                Due::new(asset.batch(feed, 0..300, &pieces), &mut silent),
                Due::new(asset.batch(feed, 0..5, &few), &mut after),
            ];
            path.send_all(&mut dues, &mut stats);
            let [first, full, last] = dues.map(|due| due.outcome);
            assert_eq!((first, last), (Ok(5), Ok(5)), "{spec}");
            match full {
                Ok(accepted) => {
                    assert!(round == 0 && (1..300).contains(&accepted), "{spec}: {accepted}");
                }
                error => assert!(round == 1 && error == Err(SendError::Blocked), "{spec}"),
            }
        }
        assert_eq!(stats.refused, 2, "{spec}");
        let expected = [&asset.datagrams[..5], &asset.datagrams[..5]].concat();
        for peer in &mut peers {
            assert_received(&peer.all(10), &expected, &spec.to_string());
        }
    }
}

#[test]
fn an_empty_list_makes_no_call() {
    for (spec, _, mut path) in stream_paths() {
        let mut stats = SendStats::default();
        path.send_all(&mut [], &mut stats);
        assert_eq!(stats, SendStats::default(), "{spec}");
    }
}
