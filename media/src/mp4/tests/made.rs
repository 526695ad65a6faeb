// SPDX-License-Identifier: MIT OR Apache-2.0
//! Synthetic files, built byte by byte, so that any box can be wrong.

/// A box.
pub(super) fn boxed(code: &[u8; 4], parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    [&(8 + body.len() as u32).to_be_bytes(), code.as_slice(), &body].concat()
}

/// A box with its size in 64 bits.
pub(super) fn long_boxed(code: &[u8; 4], body: &[u8]) -> Vec<u8> {
    [&[0, 0, 0, 1], code.as_slice(), &(16 + body.len() as u64).to_be_bytes(), body].concat()
}

/// Numbers of 32 bits.
pub(super) fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

/// A table: version and flags, the number of entries, and the entries of `entry_words` numbers.
pub(super) fn table(code: &[u8; 4], entry_words: usize, entries: &[u32]) -> Vec<u8> {
    let count = (entries.len() / entry_words) as u32;
    boxed(code, &[&words(&[0, count]), &words(entries)])
}

/// A sample description of sound: fields and boxes.
pub(super) fn sound_entry(code: &[u8; 4], boxes: &[u8]) -> Vec<u8> {
    let header = [0, 0, 0, 0, 0, 0, 0, 1];
    let fields = words(&[0, 0, 2 << 16 | 16, 0, 48_000 << 16]);
    boxed(code, &[&header, &fields, boxes])
}

/// A sample description of pictures: fields and boxes.
pub(super) fn picture_entry(code: &[u8; 4], boxes: &[u8]) -> Vec<u8> {
    boxed(code, &[&[0, 0, 0, 0, 0, 0, 0, 1], &[0; 70], boxes])
}

/// A description of H.264 without parameter sets.
pub(super) fn h264_entry() -> Vec<u8> {
    picture_entry(b"avc1", &boxed(b"avcC", &[&[1, 100, 0, 31, 0xff, 0xe0, 0]]))
}

/// Sound of layer III needs no configuration.
pub(super) fn mp3_entry() -> Vec<u8> {
    sound_entry(b".mp3", &[])
}

/// The parts of a track that tests change.
#[derive(Debug, Clone)]
pub(super) struct Trak {
    pub(super) id: u32,
    pub(super) timescale: u32,
    /// Entries of `stsd`.
    pub(super) entries: Vec<Vec<u8>>,
    pub(super) stts: Vec<u8>,
    pub(super) stsz: Vec<u8>,
    pub(super) stsc: Vec<u8>,
    pub(super) stco: Vec<u8>,
    /// Further boxes of `stbl`, of `minf`, of `mdia` and of `trak`.
    pub(super) tables: Vec<u8>,
    pub(super) data: Vec<u8>,
    pub(super) media: Vec<u8>,
    pub(super) edits: Vec<u8>,
    /// The first two rows of the display matrix, without their last numbers.
    pub(super) matrix: [i32; 4],
}

impl Trak {
    /// Sound: six samples of 10 bytes from `place` on, two in a chunk.
    pub(super) fn of(id: u32, place: u32) -> Trak {
        Trak {
            id,
            timescale: 1000,
            entries: vec![mp3_entry()],
            stts: table(b"stts", 2, &[6, 24]),
            stsz: boxed(b"stsz", &[&words(&[0, 0, 6]), &words(&[10; 6])]),
            stsc: table(b"stsc", 3, &[1, 2, 1]),
            stco: table(b"stco", 1, &[place, place + 20, place + 40]),
            tables: Vec::new(),
            data: Vec::new(),
            media: Vec::new(),
            edits: Vec::new(),
            matrix: [0; 4],
        }
    }

    /// Creates the same without samples, for fragments.
    pub(super) fn empty(id: u32) -> Trak {
        Trak {
            stts: table(b"stts", 2, &[]),
            stsz: boxed(b"stsz", &[&words(&[0, 0, 0])]),
            stsc: table(b"stsc", 3, &[]),
            stco: table(b"stco", 1, &[]),
            ..Trak::of(id, 0)
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let [a, b, c, d] = self.matrix.map(|number| number as u32);
        let matrix = words(&[a, b, 0, c, d, 0, 0, 0, 1 << 30]);
        let header = [&words(&[7, 0, 0, self.id]), [0; 24].as_slice(), &matrix, &[0; 8]].concat();
        let times = [&words(&[0, 0, 0, self.timescale, 0]), [0x10, 0xb5, 0, 0].as_slice()].concat();
        let count = words(&[0, self.entries.len() as u32]);
        let stsd = boxed(b"stsd", &[&count, &self.entries.concat()]);
        let Trak { stts, stsz, stsc, stco, tables, data, media, edits, .. } = self;
        let stbl = boxed(b"stbl", &[&stsd, stts, stsz, stsc, stco, tables]);
        let minf = boxed(b"minf", &[data, &stbl]);
        let mdia = boxed(b"mdia", &[&boxed(b"mdhd", &[&times]), media, &minf]);
        boxed(b"trak", &[&boxed(b"tkhd", &[&header]), edits, &mdia])
    }
}

/// A movie header with a time scale of 600.
pub(super) fn mvhd() -> Vec<u8> {
    boxed(b"mvhd", &[&words(&[0, 0, 0, 600, 0]), &[0; 80]])
}

/// An edit list: duration (600 a second), media time and rate of each edit.
pub(super) fn edits(edits: &[(u32, i32, u32)]) -> Vec<u8> {
    let entries: Vec<_> =
        edits.iter().flat_map(|&(duration, start, rate)| [duration, start as u32, rate]).collect();
    boxed(b"edts", &[&table(b"elst", 3, &entries)])
}

/// The offset of the first sample in [`file`].
pub(super) const PLACE: u32 = 24;

/// A file: `ftyp`, 1000 bytes of samples, and `moov`.
pub(super) fn file(tracks: &[Trak]) -> Vec<u8> {
    let tracks: Vec<_> = tracks.iter().flat_map(Trak::bytes).collect();
    let moov = boxed(b"moov", &[&mvhd(), &tracks]);
    [boxed(b"ftyp", &[b"isom\0\0\0\0"]), boxed(b"mdat", &[&[7; 1000]]), moov].concat()
}
