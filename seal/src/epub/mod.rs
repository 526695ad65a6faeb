// SPDX-License-Identifier: MIT OR Apache-2.0
//! Publications: EPUB sealed with the basic profile of Readium LCP.
//!
//! A book is a zip archive of many small texts and a few large pictures and sounds. Each of its
//! entries becomes a message for the lanes: its own IV, the book's key. The entries of one book are
//! sealed in order; several books are sealed together, so that the lanes stay full.
//!
//! A byte of a picture is copied twice: from the page cache into a slice, which the lanes encipher,
//! and into the page cache of the target. A text that is deflated already keeps its deflate stream
//! (LCP wants that inside the cipher) and is inflated once, only as a check. Only text that was
//! stored is deflated. Memory: a slice, the central directory and a deflate window a book, whatever
//! the size of its entries.
//!
//! Sources: EPUB 3.3 §4 (OCF); Readium LCP 1.0.4 (ISO/IEC 23078-2); W3C XML Encryption §5.2 (IV
//! in front, padding whose last byte is its length).
//! Changes nothing in a book but its encryption; does not validate or repair.

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
