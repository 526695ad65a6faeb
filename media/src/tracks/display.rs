// SPDX-License-Identifier: MIT OR Apache-2.0
//! Describes the display of pictures: the rotation and the pixel aspect ratio in the container.
//!
//! Decoders do not get this data: a telephone that is held upright writes pictures lying on their
//! side, and stores the rotation beside them.
//!
//! Sources: ISO/IEC 14496-12 §6.2.2 (matrices), §8.3.2 (tkhd), §12.1.4 (pasp); RFC 9559
//! §5.1.4.1.28 (DisplayWidth); ISO/IEC 14496-10 table E-1.
//! Does not know the sizes of pictures, or turns by less than a quarter.

/// Largest width of a pixel to its height, and height to width: of the forms that are in use none
/// has a tenth of it.
const ASPECT_MAX: u32 = 100;

/// Largest number in a pixel aspect ratio: enough for sizes in pixels, reduced.
const NUMBER_MAX: u32 = 0xffff;

/// Form of a pixel: its width to its height, without a common divisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PixelAspect {
    width: u32,
    height: u32,
}

impl PixelAspect {
    /// Square pixels, the most common form.
    pub const SQUARE: PixelAspect = PixelAspect { width: 1, height: 1 };

    /// Returns the ratio of this width to this height; `None` if one is zero, or if the ratio is
    /// not in use: more than 100 to 1, or numbers of more than 16 bits.
    pub fn new(width: u64, height: u64) -> Option<PixelAspect> {
        let divisor = common_divisor(width, height).max(1);
        let number = |of: u64| u32::try_from(of / divisor).ok().filter(|&of| of <= NUMBER_MAX);
        let (width, height) = (number(width)?, number(height)?);
        let is_used = width > 0
            && height > 0
            && width.div_ceil(height) <= ASPECT_MAX
            && height.div_ceil(width) <= ASPECT_MAX;
        is_used.then_some(PixelAspect { width, height })
    }

    /// Width and height.
    pub fn numbers(self) -> (u32, u32) {
        (self.width, self.height)
    }

    /// The form of a pixel that is turned by a quarter.
    fn turned(self) -> PixelAspect {
        PixelAspect { width: self.height, height: self.width }
    }

    /// Converts a number of adjacent pixels to square pixels.
    pub(crate) fn square_pixels(self, count: u32) -> u32 {
        let (count, width, height) = (u64::from(count), u64::from(self.width), self.height);
        // Rounded; a form has numbers of 16 bits.
        let square = (count * width + u64::from(height / 2)) / u64::from(height);
        u32::try_from(square).unwrap_or(u32::MAX)
    }
}

fn common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Rotation of pictures by quarter turns, mirrored or not: the signs of the numbers a, b, c and d
/// of a matrix that maps the point (x, y) to (ax + cy, bx + dy), where y points down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn([i8; 4]);

impl Turn {
    /// No rotation.
    pub const NONE: Turn = Turn([1, 0, 0, 1]);

    /// Returns the rotation for the signs of these numbers; `None` if it is not by quarter turns.
    pub(crate) fn of_signs(signs: [i32; 4]) -> Option<Turn> {
        let [a, b, c, d] = signs.map(|sign| sign.signum() as i8);
        let is_quarters =
            (b == 0 && c == 0 && a != 0 && d != 0) || (a == 0 && d == 0 && b != 0 && c != 0);
        is_quarters.then_some(Turn([a, b, c, d]))
    }

    /// The numbers a, b, c and d.
    pub(crate) fn signs(self) -> [i8; 4] {
        self.0
    }

    /// Degrees by which pictures are rotated clockwise; `None` if they are mirrored.
    pub(crate) fn degrees(self) -> Option<u16> {
        match self.0 {
            [1, 0, 0, 1] => Some(0),
            [0, 1, -1, 0] => Some(90),
            [-1, 0, 0, -1] => Some(180),
            [0, -1, 1, 0] => Some(270),
            _ => None,
        }
    }

    /// True if width and height change places.
    fn is_sideways(self) -> bool {
        self.0[0] == 0
    }

    /// Returns the place of the picture's first corner with which the picture begins at zero; width
    /// and height are those before the rotation.
    pub(crate) fn corner(self, (width, height): (u32, u32)) -> (u32, u32) {
        let [a, b, c, d] = self.0;
        let moved = |by: i8, length: u32| if by < 0 { length } else { 0 };
        (moved(a, width) + moved(c, height), moved(b, width) + moved(d, height))
    }
}

/// Display of the pictures of a track, as given by its container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Display {
    /// Rotation before display.
    pub turn: Turn,
    /// Pixel aspect ratio before the rotation; `None` if the container names none, and that of the
    /// codec applies.
    pub pixel_aspect: Option<PixelAspect>,
}

impl Default for Display {
    fn default() -> Display {
        Display { turn: Turn::NONE, pixel_aspect: None }
    }
}

/// Pictures in displayed form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShownPictures {
    /// Width and height in pixels, after the rotation.
    pub size: (u32, u32),
    /// Aspect ratio of these pixels.
    pub pixel_aspect: PixelAspect,
}

impl ShownPictures {
    /// Creates the description of pictures of this size, with the pixel aspect ratio of the
    /// container, or else that of the codec.
    pub(crate) fn new(
        size: (u32, u32),
        of_codec: Option<PixelAspect>,
        display: Display,
    ) -> ShownPictures {
        let aspect = display.pixel_aspect.or(of_codec).unwrap_or(PixelAspect::SQUARE);
        match display.turn.is_sideways() {
            true => ShownPictures { size: (size.1, size.0), pixel_aspect: aspect.turned() },
            false => ShownPictures { size, pixel_aspect: aspect },
        }
    }

    /// Width and height in square pixels; the height is unchanged.
    pub fn resolution(self) -> (u32, u32) {
        (self.pixel_aspect.square_pixels(self.size.0), self.size.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_pixels_are_reduced_and_those_of_no_use_are_none() {
        let form = |width, height| PixelAspect::new(width, height).map(PixelAspect::numbers);
        assert_eq!(form(32, 22), Some((16, 11)));
        assert_eq!(form(1920 * 1080, 1440 * 1080), Some((4, 3)));
        assert_eq!(form(1 << 40, 1 << 40), Some((1, 1)));
        assert_eq!(form(100, 1), Some((100, 1)));
        for (width, height) in [(0, 0), (0, 1), (1, 0), (101, 1), (1, 101), (65_537, 65_536)] {
            assert_eq!(form(width, height), None, "{width}:{height}");
        }
    }

    #[test]
    fn turns_move_pictures_to_where_they_begin_at_zero() {
        let mut seen = Vec::new();
        for signs in (0..81).map(|number: i32| {
            [number % 3 - 1, number / 3 % 3 - 1, number / 9 % 3 - 1, number / 27 - 1]
        }) {
            let Some(turn) = Turn::of_signs(signs) else { continue };
            seen.push(turn.degrees());
            let (x, y) = turn.corner((640, 360));
            let [a, b, c, d] = signs;
            let corners = [(0, 0), (640, 0), (0, 360), (640, 360)];
            let placed = corners.map(|(across, down)| {
                (x as i32 + a * across + c * down, y as i32 + b * across + d * down)
            });
            let (right, lower) = if a == 0 { (360, 640) } else { (640, 360) };
            for corner in [(0, 0), (right, 0), (0, lower), (right, lower)] {
                assert!(placed.contains(&corner), "{signs:?}: {placed:?}");
            }
        }
        seen.sort_unstable();
        assert_eq!(seen[..4], [None; 4], "mirrored");
        assert_eq!(seen[4..], [Some(0), Some(90), Some(180), Some(270)]);
    }

    #[test]
    fn size_is_that_of_what_is_shown() {
        let aspect = PixelAspect::new(16, 11);
        let shown = |of_codec, turn, pixel_aspect| {
            let display = Display { turn, pixel_aspect };
            let shown = ShownPictures::new((720, 576), of_codec, display);
            (shown.size, shown.pixel_aspect.numbers(), shown.resolution())
        };
        let upright = ((720, 576), (16, 11), (1047, 576));
        assert_eq!(shown(None, Turn::NONE, aspect), upright);
        assert_eq!(shown(aspect, Turn::NONE, None), upright);
        let square = Some(PixelAspect::SQUARE);
        assert_eq!(shown(aspect, Turn::NONE, square), ((720, 576), (1, 1), (720, 576)));
        let quarter = Turn([0, 1, -1, 0]);
        assert_eq!(shown(None, quarter, aspect), ((576, 720), (11, 16), (396, 720)));
        assert_eq!(shown(None, Turn([-1, 0, 0, -1]), None), ((720, 576), (1, 1), (720, 576)));
    }
}
