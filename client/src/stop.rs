// SPDX-License-Identifier: MIT OR Apache-2.0
//! A future by which the caller ends a play or a load early, such as on Ctrl-C.
//!
//! Does not end anything itself: a play or a load waits for it beside its own events.

use std::future::ready;
use std::pin::Pin;

/// A future that ends a play or a load when it is ready.
pub(crate) type Stop = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Waits for a stop; ready at once after it has been ready before.
pub(crate) async fn stopped(stop: &mut Stop) {
    (&mut *stop).await;
    *stop = Box::pin(ready(()));
}
