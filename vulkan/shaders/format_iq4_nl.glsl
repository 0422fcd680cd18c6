// IQ4_NL: 4 bits through a table, a scale: words of nibbles.
#define LEN 32
#define WORDS 4
#define REST 2
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
    uint four = code < 8 ? (code < 4 ? 0xbfad9881u : 0xf6eaddcfu) : (code < 12 ? 0x26190d01u : 0x71594535u);
    return four >> 8 * (code & 3u) & 255u;
}

// The same for four nibbles, the low ones of bytes.
uint numbers(uint codes) {
    return number(codes & 15u) | number(codes >> 8 & 15u) << 8 | number(codes >> 16 & 15u) << 16
        | number(codes >> 24 & 15u) << 24;
}

void begin() { scale = f16_to_f32(rest_bits()); }

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    uvec4 codes = uvec4(word_at(0), word_at(1), word_at(2), word_at(3)) >> 4 * i;
    q = uvec4(numbers(codes.x), numbers(codes.y), numbers(codes.z), numbers(codes.w));
}
