//! Fused multiply-adds for drivers that round the product: a module is rewritten so that each one is computed in double
//! precision, with a sum that is rounded to odd, which rounds once more to the right single (Boldo and Melquiond,
//! "Emulation of a FMA and correctly rounded sums", 2008).
//!
//! The product of two singles is exact in double precision; of the sum the error is exact too (Knuth's two-sum). Where there
//! is an error and the sum's last bit is 0, the sum's neighbour on the side of the error has a 1 there.

const HEADER: usize = 5;
const OP_EXT_INST_IMPORT: u32 = 11;
const OP_EXT_INST: u32 = 12;
const OP_CAPABILITY: u32 = 17;
const OP_TYPE_BOOL: u32 = 20;
const OP_TYPE_INT: u32 = 21;
const OP_TYPE_FLOAT: u32 = 22;
const OP_TYPE_VECTOR: u32 = 23;
const OP_CONSTANT: u32 = 43;
const OP_FUNCTION: u32 = 54;
const OP_COMPOSITE_CONSTRUCT: u32 = 80;
const OP_COMPOSITE_EXTRACT: u32 = 81;
const OP_F_CONVERT: u32 = 115;
const OP_BITCAST: u32 = 124;
const OP_F_ADD: u32 = 129;
const OP_I_SUB: u32 = 130;
const OP_F_SUB: u32 = 131;
const OP_F_MUL: u32 = 133;
const OP_LOGICAL_AND: u32 = 167;
const OP_LOGICAL_NOT: u32 = 168;
const OP_SELECT: u32 = 169;
const OP_I_EQUAL: u32 = 170;
const OP_U_LESS_THAN: u32 = 176;
const OP_F_ORD_NOT_EQUAL: u32 = 182;
const OP_BITWISE_OR: u32 = 197;
const OP_BITWISE_XOR: u32 = 198;
const OP_BITWISE_AND: u32 = 199;
const OP_DECORATE: u32 = 71;
/// Forbids a driver to simplify an operation by the algebra of real numbers.
const NO_CONTRACTION: u32 = 42;
/// The opcodes that declare types, which begin behind all decorations.
const TYPES: std::ops::RangeInclusive<u32> = 19..=39;
const CAPABILITY_FLOAT64: u32 = 10;
/// The number of `Fma` in the set of `GLSL.std.450`.
const FMA: u32 = 50;

/// The instructions of a module.
fn instructions(module: &[u32]) -> impl Iterator<Item = &[u32]> {
    let mut at = HEADER.min(module.len());
    std::iter::from_fn(move || {
        let len = (*module.get(at)? >> 16).max(1) as usize;
        let instruction = &module[at..(at + len).min(module.len())];
        at += len;
        Some(instruction)
    })
}

fn opcode(instruction: &[u32]) -> u32 {
    instruction[0] & 0xffff
}

/// Writes instructions with fresh numbers for their results.
struct Writer {
    out: Vec<u32>,
    bound: u32,
    /// Results that are to be decorated.
    exact: Vec<u32>,
}

impl Writer {
    fn fresh(&mut self) -> u32 {
        self.bound += 1;
        self.bound - 1
    }

    fn put(&mut self, op: u32, operands: &[u32]) {
        self.out.push((operands.len() as u32 + 1) << 16 | op);
        self.out.extend_from_slice(operands);
    }

    /// An instruction with a result of a type.
    fn value(&mut self, op: u32, kind: u32, operands: &[u32]) -> u32 {
        let result = self.fresh();
        self.put(op, &[&[kind, result], operands].concat());
        result
    }

    /// An operation on floats that has to be done as it stands.
    fn exact(&mut self, op: u32, kind: u32, operands: &[u32]) -> u32 {
        let result = self.value(op, kind, operands);
        self.exact.push(result);
        result
    }

    /// The number of a type or constant that the module may have already: a second one of the same is not allowed.
    fn declared(&mut self, module: &[u32], op: u32, operands: &[u32]) -> u32 {
        let same = |i: &&[u32]| opcode(i) == op && i.len() > 2 && i[2..] == *operands;
        if let Some(found) = instructions(module).find(same) {
            return found[1];
        }
        let result = self.fresh();
        self.put(op, &[&[result], operands].concat());
        result
    }
}

/// Types and constants of the rewritten operations.
struct Names {
    bool_: u32,
    uint: u32,
    pair: u32,
    double: u32,
    zero: u32,
    one: u32,
    sign: u32,
    nothing: u32,
}

/// The module with a decoration on every fused multiply-add that forbids a driver to take it apart; compilers of GLSL leave
/// it out, since to them it is a call.
pub(crate) fn keep_whole(module: &[u32]) -> Vec<u32> {
    let import = instructions(module).find(|i| opcode(i) == OP_EXT_INST_IMPORT).map(|i| i[1]);
    let fmas = instructions(module).filter(|i| is_fma(i, import)).map(|i| i[2]);
    let decorations: Vec<u32> = fmas.flat_map(|id| [3 << 16 | OP_DECORATE, id, NO_CONTRACTION]).collect();
    let mut out = module[..HEADER.min(module.len())].to_vec();
    let mut done = false;
    for i in instructions(module) {
        if !done && TYPES.contains(&opcode(i)) {
            out.extend_from_slice(&decorations);
            done = true;
        }
        out.extend_from_slice(i);
    }
    out
}

fn is_fma(i: &[u32], import: Option<u32>) -> bool {
    opcode(i) == OP_EXT_INST && i.len() == 8 && Some(i[3]) == import && i[4] == FMA
}

/// The module with every fused multiply-add of singles computed in doubles; unchanged if it has none.
pub(crate) fn rewrite(module: &[u32]) -> Vec<u32> {
    let import = instructions(module).find(|i| opcode(i) == OP_EXT_INST_IMPORT).map(|i| i[1]);
    if !instructions(module).any(|i| is_fma(i, import)) {
        return module.to_vec();
    }
    let mut to = Writer { out: module[..HEADER].to_vec(), bound: module[3], exact: Vec::new() };
    to.put(OP_CAPABILITY, &[CAPABILITY_FLOAT64]);
    let (mut names, mut decorations) = (None, 0);
    for i in instructions(module) {
        if decorations == 0 && TYPES.contains(&opcode(i)) {
            decorations = to.out.len();
        }
        if opcode(i) == OP_FUNCTION && names.is_none() {
            names = Some(declare(&mut to, module));
        }
        match &names {
            Some(names) if is_fma(i, import) => fused(&mut to, names, i),
            _ => to.out.extend_from_slice(i),
        }
    }
    to.out[3] = to.bound;
    let exact = to.exact.iter().flat_map(|id| [3 << 16 | OP_DECORATE, *id, NO_CONTRACTION]);
    to.out.splice(decorations..decorations, exact.collect::<Vec<_>>());
    to.out
}

/// Declares what the module lacks, behind everything that it declares itself.
fn declare(to: &mut Writer, module: &[u32]) -> Names {
    let bool_ = match instructions(module).find(|i| opcode(i) == OP_TYPE_BOOL) {
        Some(i) => i[1],
        None => {
            let result = to.fresh();
            to.put(OP_TYPE_BOOL, &[result]);
            result
        }
    };
    let uint = to.declared(module, OP_TYPE_INT, &[32, 0]);
    let pair = to.declared(module, OP_TYPE_VECTOR, &[uint, 2]);
    let double = to.declared(module, OP_TYPE_FLOAT, &[64]);
    let [zero, one, sign] = [0, 1, 0x8000_0000].map(|v| to.value(OP_CONSTANT, uint, &[v]));
    let nothing = to.value(OP_CONSTANT, double, &[0, 0]);
    Names { bool_, uint, pair, double, zero, one, sign, nothing }
}

/// `result = a * b + c`, rounded once.
fn fused(to: &mut Writer, n: &Names, fma: &[u32]) {
    let (float, result) = (fma[1], fma[2]);
    let [a, b, c] = [fma[5], fma[6], fma[7]].map(|v| to.exact(OP_F_CONVERT, n.double, &[v]));
    let product = to.exact(OP_F_MUL, n.double, &[a, b]);
    let sum = to.exact(OP_F_ADD, n.double, &[product, c]);
    // Knuth's two-sum: what the sum has of c, and what each lost.
    let of_c = to.exact(OP_F_SUB, n.double, &[sum, product]);
    let of_product = to.exact(OP_F_SUB, n.double, &[sum, of_c]);
    let lost = to.exact(OP_F_SUB, n.double, &[product, of_product]);
    let lost_c = to.exact(OP_F_SUB, n.double, &[c, of_c]);
    let error = to.exact(OP_F_ADD, n.double, &[lost, lost_c]);
    let inexact = to.value(OP_F_ORD_NOT_EQUAL, n.bool_, &[error, n.nothing]);
    let halves = |to: &mut Writer, v| {
        let words = to.value(OP_BITCAST, n.pair, &[v]);
        [0, 1].map(|i| to.value(OP_COMPOSITE_EXTRACT, n.uint, &[words, i]))
    };
    let [low, high] = halves(to, sum);
    let [_, error_high] = halves(to, error);
    let last = to.value(OP_BITWISE_AND, n.uint, &[low, n.one]);
    let even = to.value(OP_I_EQUAL, n.bool_, &[last, n.zero]);
    let adjust = to.value(OP_LOGICAL_AND, n.bool_, &[inexact, even]);
    // Away from zero the neighbour's last bit is set; towards zero it is one less.
    let signs = to.value(OP_BITWISE_XOR, n.uint, &[high, error_high]);
    let away = to.value(OP_U_LESS_THAN, n.bool_, &[signs, n.sign]);
    let up = to.value(OP_BITWISE_OR, n.uint, &[low, n.one]);
    let down = to.value(OP_I_SUB, n.uint, &[low, n.one]);
    let moved = to.value(OP_SELECT, n.uint, &[away, up, down]);
    let new_low = to.value(OP_SELECT, n.uint, &[adjust, moved, low]);
    let towards = to.value(OP_LOGICAL_NOT, n.bool_, &[away]);
    let down_one = to.value(OP_LOGICAL_AND, n.bool_, &[adjust, towards]);
    let is_zero = to.value(OP_I_EQUAL, n.bool_, &[low, n.zero]);
    let borrow = to.value(OP_LOGICAL_AND, n.bool_, &[down_one, is_zero]);
    let high_less = to.value(OP_I_SUB, n.uint, &[high, n.one]);
    let new_high = to.value(OP_SELECT, n.uint, &[borrow, high_less, high]);
    let words = to.value(OP_COMPOSITE_CONSTRUCT, n.pair, &[new_low, new_high]);
    let odd = to.value(OP_BITCAST, n.double, &[words]);
    // The rounding to single precision must not be taken for superfluous where the result is widened again. `keep_whole`
    // has decorated it.
    to.put(OP_F_CONVERT, &[float, result, odd]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shaders;

    #[test]
    fn rewritten_kernels_have_no_fused_multiply_add_and_every_number_once() {
        for name in shaders::names() {
            let module = keep_whole(&shaders::module(name).unwrap());
            let import = instructions(&module).find(|i| opcode(i) == OP_EXT_INST_IMPORT).map(|i| i[1]);
            let n_fma = instructions(&module).filter(|i| is_fma(i, import)).count();
            let soft = rewrite(&module);
            assert!(!instructions(&soft).any(|i| is_fma(i, import)), "{name}");
            let wide = |m: &[u32]| instructions(m).filter(|i| opcode(i) == OP_F_CONVERT).count();
            assert_eq!(wide(&soft), wide(&module) + 4 * n_fma, "{name}");
            let decorated: Vec<_> =
                instructions(&soft).filter(|i| opcode(i) == OP_DECORATE && i[2] == NO_CONTRACTION).collect();
            let mut once = decorated.clone();
            once.sort();
            once.dedup();
            assert_eq!(once.len(), decorated.len(), "{name}");
        }
    }
}
