//! The compiled kernels, and what is added to them for a device.

/// Each kernel's name and its SPIR-V, as `tools/vulkan/shaders.sh` makes it of `shaders/`.
const KERNELS: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

/// The names of all kernels.
#[cfg(test)]
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    KERNELS.iter().map(|(name, _)| *name)
}

/// The words of a kernel's module; `None` for a name that is none.
pub(crate) fn module(name: &str) -> Option<Vec<u32>> {
    KERNELS.iter().find(|(n, _)| *n == name).map(|(_, bytes)| words(bytes))
}

/// SPIR-V as the files have it, little-endian.
pub(crate) fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|w| u32::from_le_bytes(*w)).collect()
}

/// How a device computes with floats of 32 bits, as far as a module may ask for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FloatControls {
    pub(crate) denorm_preserve: bool,
    pub(crate) round_to_even: bool,
    pub(crate) keep_special: bool,
}

/// Capabilities and execution modes of SPIR-V 1.4 and later, which are one number each.
const DENORM_PRESERVE: (u32, u32) = (4464, 4459);
const ROUND_TO_EVEN: (u32, u32) = (4467, 4462);
const KEEP_SPECIAL: (u32, u32) = (4466, 4461);

/// A module that asks for the float behaviour that the device offers; modules name capabilities that must be there, so the
/// checked-in form names none of these.
pub(crate) fn with_controls(module: &[u32], controls: FloatControls) -> Vec<u32> {
    const HEADER: usize = 5;
    const OP_CAPABILITY: u32 = 17;
    const OP_ENTRY_POINT: u32 = 15;
    const OP_EXECUTION_MODE: u32 = 16;
    let wanted = [
        (controls.denorm_preserve, DENORM_PRESERVE),
        (controls.round_to_even, ROUND_TO_EVEN),
        (controls.keep_special, KEEP_SPECIAL),
    ];
    let wanted = || wanted.iter().filter(|w| w.0).map(|w| w.1);
    let mut out = module[..HEADER.min(module.len())].to_vec();
    wanted().for_each(|(capability, _)| out.extend([2 << 16 | OP_CAPABILITY, capability]));
    let mut at = HEADER;
    while at < module.len() {
        let (op, len) = (module[at] & 0xffff, (module[at] >> 16).max(1) as usize);
        let instruction = &module[at..(at + len).min(module.len())];
        out.extend_from_slice(instruction);
        if op == OP_ENTRY_POINT && len > 2 {
            let function = instruction[2];
            wanted().for_each(|(_, mode)| out.extend([4 << 16 | OP_EXECUTION_MODE, function, mode, 32]));
        }
        at += len;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kernel_is_a_module_and_asks_for_no_float_behaviour_by_itself() {
        for name in names() {
            let module = module(name).unwrap();
            assert_eq!(module[0], 0x0723_0203, "{name}");
            assert_eq!(with_controls(&module, FloatControls::default()), &module[..], "{name}");
            let all = FloatControls { denorm_preserve: true, round_to_even: true, keep_special: true };
            assert_eq!(with_controls(&module, all).len(), module.len() + 3 * (2 + 4), "{name}");
        }
        assert!(super::module("no such kernel").is_none());
    }
}
