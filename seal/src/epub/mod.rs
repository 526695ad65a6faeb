// SPDX-License-Identifier: MIT OR Apache-2.0
//! Publications: EPUB sealed as Readium LCP says, basic profile.
//!
//! A book is a zip archive of many small texts and a few large pictures and sounds. Each of its
//! entries becomes a message for the lanes: its own IV, the book's key. Books of a catalogue are
//! worked together, so that the lanes are full although a book is gone through in order.
//!
//! A byte of a picture goes from the page cache into a slice, through the lanes, and into the
//! page cache of the target: two copies. A text that is deflated already keeps its deflate stream
//! (LCP wants exactly that inside the cipher) and is inflated once beside it, to be checked. Only
//! text that was stored is deflated. Memory: a slice, the central directory and a deflate window
//! a book, whatever the size of its entries.
//!
//! Sources: EPUB 3.3 §4 (OCF); Readium LCP 1.0.4 (ISO/IEC 23078-2); W3C XML Encryption §5.2 (IV
//! in front, padding whose last byte is its length).
//! Does not: change anything in a book but its encryption; validate; repair.

mod archive;
mod book_journal;
pub mod catalogue;
mod container;
mod content_hash;
mod encryption;
mod fault;
mod payload;
mod seal_book;
mod unseal_book;
mod verify_book;
mod zip_writer;

pub use archive::{BYTES_MAX, DIRECTORY_BYTES_MAX, ENTRIES_MAX, GROWTH_EXEMPT_BYTES, GROWTH_MAX};
pub use book_journal::BookJournal;
pub(crate) use encryption::AES_256_CBC;
pub use fault::BookFault;
pub use seal_book::{Book, BookSealing};
pub use unseal_book::{BookUnsealing, SealedBook};
pub use verify_book::{VerifiedBook, verify};
