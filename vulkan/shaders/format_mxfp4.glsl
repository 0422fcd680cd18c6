// MXFP4: 4-bit floats, doubled, under a power of two; one below 2^-29 counts as zero.
#define LEN 32
#define WORDS 4
#define REST 1
#define UNIT 32
#define ACT 32
#define HAS_MIN 0

float scale;

float value(uint unit, int isum, int msum) {
    precise float t = scale * float(isum);
    return t;
}

// What a code stands for, as a byte.
uint number(uint code) {
    uint four = code < 8 ? (code < 4 ? 0x03020100u : 0x0c080604u) : (code < 12 ? 0xfdfeff00u : 0xf4f8fafcu);
    return four >> 8 * (code & 3u) & 255u;
}

// The same for four nibbles, the low ones of bytes.
uint numbers(uint codes) {
    return number(codes & 15u) | number(codes >> 8 & 15u) << 8 | number(codes >> 16 & 15u) << 16
        | number(codes >> 24 & 15u) << 24;
}

void begin() {
    uint e = rest_bits();
    scale = e < 99 ? 0.0 : F((e - 1) << 23);
}

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    uvec4 codes = uvec4(word_at(0), word_at(1), word_at(2), word_at(3)) >> 4 * i;
    q = uvec4(numbers(codes.x), numbers(codes.y), numbers(codes.z), numbers(codes.w));
}
