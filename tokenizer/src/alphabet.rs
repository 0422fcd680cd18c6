//! The alphabet of byte-level BPE: a printable character for each byte, as GPT-2 chose them.
//!
//! Printable Latin-1 characters stand for themselves, the other 68 bytes are U+0100 onwards in order of the byte.

const fn is_printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF)
}

const CHARS: [char; 256] = {
    let mut chars = ['\0'; 256];
    let mut next = 0x100;
    let mut byte = 0;
    while byte < 256 {
        if is_printable(byte as u8) {
            chars[byte] = byte as u8 as char;
        } else if let Some(c) = char::from_u32(next) {
            chars[byte] = c;
            next += 1;
        }
        byte += 1;
    }
    chars
};

/// The bytes of U+0100..U+0144.
const SHIFTED: [u8; 68] = {
    let mut bytes = [0; 68];
    let mut byte = 0;
    while byte < 256 {
        let code = CHARS[byte] as usize;
        if code >= 0x100 {
            bytes[code - 0x100] = byte as u8;
        }
        byte += 1;
    }
    bytes
};

/// The character that stands for a byte.
pub(crate) fn char_of(byte: u8) -> char {
    CHARS[byte as usize]
}

/// The byte that a character stands for, if any.
pub(crate) fn byte_of(c: char) -> Option<u8> {
    match u32::from(c) {
        code @ 0..=0xFF => is_printable(code as u8).then_some(code as u8),
        code => SHIFTED.get(code as usize - 0x100).copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_character() {
        for byte in 0..=255 {
            assert_eq!(byte_of(char_of(byte)), Some(byte));
        }
    }

    #[test]
    fn the_well_known_ones() {
        assert_eq!(char_of(b' '), 'Ġ');
        assert_eq!(char_of(b'\n'), 'Ċ');
        assert_eq!(char_of(0xAD), '\u{143}');
        assert_eq!(byte_of('\u{144}'), None);
        assert_eq!(byte_of('\u{AD}'), None);
    }
}
