//! The byte order of a file.

/// The byte order of the numbers in a file, independent of the host's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Endian {
    /// Least significant byte first: nearly every file.
    #[default]
    Little,
    /// Most significant byte first: files made for s390x and the like.
    Big,
}

impl Endian {
    /// The bytes of one number turned from this order into little-endian, or back: the two are the same step.
    #[inline]
    pub(crate) fn order<const N: usize>(self, mut bytes: [u8; N]) -> [u8; N] {
        if self == Endian::Big {
            bytes.reverse();
        }
        bytes
    }
}

impl std::fmt::Display for Endian {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Endian::Little => "little-endian",
            Endian::Big => "big-endian",
        })
    }
}
