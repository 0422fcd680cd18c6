//! Instruction sets: which this machine has, and which one runs.

use crate::kernels::Kernels;
use crate::kernels::self_test::self_test;

/// An instruction set that llamay has kernels for; of one architecture, from the least to the most capable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// The reference, on any target.
    Portable,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// The same with AVX-VNNI, which CPUs without AVX-512 have.
    AvxVnni,
    /// AVX-512 VNNI on 256-bit registers, for CPUs that lower their clock under 512-bit work.
    Avx512x256,
    /// AVX-512 VNNI on 512-bit registers.
    Avx512x512,
    /// AArch64 with NEON, which all of them have.
    Neon,
    /// NEON and the dot product extension (`FEAT_DotProd`).
    NeonDotprod,
    /// NEON, dot products and 8-bit matrix products (`FEAT_I8MM`).
    NeonI8mm,
}

impl Isa {
    /// Every instruction set of every architecture.
    pub const ALL: &'static [Isa] = &[
        Isa::Portable,
        Isa::Avx2,
        Isa::AvxVnni,
        Isa::Avx512x256,
        Isa::Avx512x512,
        Isa::Neon,
        Isa::NeonDotprod,
        Isa::NeonI8mm,
    ];

    /// Those that this program has kernels of, from the least to the most capable.
    pub const BUILT: &'static [Isa] = if cfg!(target_arch = "x86_64") {
        &[Isa::Portable, Isa::Avx2, Isa::AvxVnni, Isa::Avx512x256, Isa::Avx512x512]
    } else if cfg!(target_arch = "aarch64") {
        &[Isa::Portable, Isa::Neon, Isa::NeonDotprod, Isa::NeonI8mm]
    } else {
        &[Isa::Portable]
    };

    /// The name that `LLAMAY_ISA` and `llamay version` use.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::AvxVnni => "avx-vnni",
            Isa::Avx512x256 => "avx512-256",
            Isa::Avx512x512 => "avx512-512",
            Isa::Neon => "neon",
            Isa::NeonDotprod => "neon-dotprod",
            Isa::NeonI8mm => "neon-i8mm",
        }
    }

    /// The instruction set of this name.
    pub fn from_name(name: &str) -> Option<Isa> {
        Isa::ALL.iter().copied().find(|i| i.name() == name)
    }

    /// Whether this machine runs it.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => crate::kernels::x86::Avx2::new().is_some(),
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni => crate::kernels::x86::AvxVnni::new().is_some(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512x256 => crate::kernels::x86::Vnni256::new().is_some(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512x512 => crate::kernels::x86::Avx512::new().is_some(),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::AvxVnni | Isa::Avx512x256 | Isa::Avx512x512 => false,
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => crate::kernels::aarch64::Neon::new().is_some(),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonDotprod => crate::kernels::aarch64::DotProd::new().is_some(),
            #[cfg(target_arch = "aarch64")]
            Isa::NeonI8mm => crate::kernels::aarch64::I8mm::new().is_some(),
            #[cfg(not(target_arch = "aarch64"))]
            Isa::Neon | Isa::NeonDotprod | Isa::NeonI8mm => false,
        }
    }

    /// The sets that this machine runs, from the least to the most capable.
    pub fn available() -> Vec<Isa> {
        Isa::BUILT.iter().copied().filter(|i| i.is_available()).collect()
    }

    /// The sets that this machine runs and that are no higher than `cap`, from the most to the least capable; under another
    /// architecture's, the portable one alone. Without a cap the sets that this CPU is slower with are left out.
    pub(crate) fn up_to(cap: Option<Isa>) -> impl Iterator<Item = Isa> {
        let cap = cap.or_else(own_cap);
        let allowed = move |isa: &Isa| {
            cap.is_none_or(|cap| *isa <= cap && (Isa::BUILT.contains(&cap) || *isa == Isa::Portable))
        };
        Isa::available().into_iter().rev().filter(allowed)
    }

    /// The most capable set that this machine runs, no higher than `cap`; under another architecture's the portable one.
    pub fn best(cap: Option<Isa>) -> Isa {
        Isa::up_to(cap).next().unwrap_or(Isa::Portable)
    }

    /// Compares the set's kernels with the portable ones on a few known inputs.
    ///
    /// # Errors
    /// What they compute wrongly, as a clause. The CPU then reports instructions that it does not have in full.
    pub fn self_test(self) -> Result<(), String> {
        self_test(&Kernels::of(self))
    }

    /// Output rows that stand side by side in the lanes of a register: the rows of a packed group.
    pub const fn group_rows(self) -> usize {
        match self {
            Isa::Portable => 1,
            Isa::Avx2 | Isa::AvxVnni | Isa::Avx512x256 | Isa::Neon | Isa::NeonDotprod | Isa::NeonI8mm => 8,
            Isa::Avx512x512 => 16,
        }
    }
}

/// The set above which this CPU loses speed.
fn own_cap() -> Option<Isa> {
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: every x86-64 CPU has the instruction and its leaf 1. (It is a safe function from Rust 1.93 on.)
        #[allow(unused_unsafe)]
        let signature = unsafe { std::arch::x86_64::__cpuid(1) }.eax;
        cap_of(signature)
    }
    #[cfg(not(target_arch = "x86_64"))]
    None
}

/// The set above which a CPU of this signature (`cpuid` leaf 1, EAX: stepping, model, family) loses speed.
///
/// Intel's servers from Skylake to Cooper Lake, family 6, model 85, lower the whole core's clock for 512-bit multiplications,
/// by a quarter and more (Intel, "Xeon Scalable Specification Update", turbo frequencies by instruction class), and go on to
/// do so for a millisecond. Their successors, and AMD's CPUs, lower it by a few percent or not at all.
#[cfg(target_arch = "x86_64")]
fn cap_of(signature: u32) -> Option<Isa> {
    let (family, model) = (signature >> 8 & 15, signature >> 4 & 15 | signature >> 12 & 0xf0);
    (family == 6 && model == 85).then_some(Isa::Avx512x256)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_set_is_no_higher_than_the_cap_and_of_this_architecture() {
        assert_eq!(Isa::best(Some(Isa::Portable)), Isa::Portable);
        for isa in Isa::available() {
            assert_eq!(Isa::best(Some(isa)), isa);
        }
        for isa in Isa::ALL.iter().filter(|i| !Isa::BUILT.contains(i)) {
            assert!(!isa.is_available());
            assert_eq!(Isa::best(Some(*isa)), Isa::Portable);
        }
        assert!(Isa::available().contains(&Isa::best(None)));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn cpus_that_slow_down_under_512_bits_get_256() {
        // Cascade Lake and Cooper Lake; Ice Lake, Sapphire Rapids, AMD Milan and Genoa.
        for (signature, cap) in [
            (0x5_0657, Some(Isa::Avx512x256)),
            (0x5_065b, Some(Isa::Avx512x256)),
            (0x6_06a6, None),
            (0x8_06f8, None),
            (0xa0_0f11, None),
            (0xa1_0f11, None),
        ] {
            assert_eq!(cap_of(signature), cap, "{signature:x}");
        }
    }

    #[test]
    fn names_lead_back_to_their_sets() {
        for isa in Isa::ALL {
            assert_eq!(Isa::from_name(isa.name()), Some(*isa));
        }
    }
}
