// Where keys and values of a head lie in a page (vulkan/src/kv.rs). KIND is 0 for f32, 1 for f16, 2 for q8_0, 3 for q4_0.
layout(constant_id = 0) const uint KIND = 1;

const uint PAGE = 64;

uint blocks(uint head_dim) { return (head_dim + 31) / 32; }

// Words of a position's keys, or values, of a head, without scales.
uint position_words(uint head_dim) {
    switch (KIND) {
        case 0u: return head_dim;
        case 1u: return (head_dim + 1) / 2;
        case 2u: return 8 * blocks(head_dim);
        default: return 4 * blocks(head_dim);
    }
}

// Words of all positions' keys, or values, of a head, with scales.
uint side_words(uint head_dim) {
    return PAGE * (position_words(head_dim) + (KIND >= 2 ? blocks(head_dim) : 0));
}

// Walsh-Hadamard over a block of 32, by one lane, times a power of two.
void turn(inout float x[32], float factor) {
    for (uint half_ = 1; half_ < 32; half_ *= 2) {
        for (uint i = 0; i < 32; i++) {
            if ((i & half_) == 0) {
                precise float sum = x[i] + x[i + half_], difference = x[i] - x[i + half_];
                x[i] = sum;
                x[i + half_] = difference;
            }
        }
    }
    for (uint i = 0; i < 32; i++) {
        precise float y = x[i] * factor;
        x[i] = y;
    }
}

uint largest_magnitude(float x[32]) {
    uint m = 0;
    for (uint i = 0; i < 32; i++) m = max(m, floatBitsToUint(x[i]) & 0x7fffffffu);
    return m;
}

// x * inverse to the nearest integer, as the low byte.
uint low_byte(float x, float inverse) {
    precise float t = x * inverse;
    precise float r = t + ROUND;
    return floatBitsToUint(r) & 255u;
}
