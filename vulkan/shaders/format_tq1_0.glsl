// TQ1_0: Ternary, five digits of base 3 a byte, the highest first.
#define LEN 256
#define WORDS 13
#define REST 2
#define UNIT 256
#define ACT 256
#define HAS_MIN 0
#include "unpack_scaled.glsl"

void begin() { scale = f16_to_f32(rest_bits()); }

// A digit of four bytes, less 1.
uint digit(uint bytes, uint power) {
    uint even = bytes & 0x00ff00ffu, odd = bytes >> 8 & 0x00ff00ffu;
    even = (even * power & 0x00ff00ffu) * 3 >> 8 & 0x00ff00ffu;
    odd = (odd * power & 0x00ff00ffu) * 3 >> 8 & 0x00ff00ffu;
    return minus(even | odd << 8, 1);
}

uint power_of_three(uint n) { return n == 0 ? 1 : n == 1 ? 3 : n == 2 ? 9 : n == 3 ? 27 : 81; }

void sub(uint i, out uvec4 q, inout int factor, inout int low) {
    if (i == 15) {
        uint bytes = word_at(12);
        q = uvec4(digit(bytes, 1), digit(bytes, 3), digit(bytes, 9), digit(bytes, 27));
        return;
    }
    uint at = i < 10 ? i % 2 * 4 : 8, power = power_of_three(i < 10 ? i / 2 : i - 10);
    q = uvec4(digit(word_at(at), power), digit(word_at(at + 1), power), digit(word_at(at + 2), power),
        digit(word_at(at + 3), power));
}
