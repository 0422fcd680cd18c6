//! Prints the instruction sets whose kernels this machine runs, so that a test script can say what it has executed.

fn main() {
    let names: Vec<&str> = llamay_cpu::Isa::available().into_iter().map(llamay_cpu::Isa::name).collect();
    println!("{}", names.join(" "));
}
