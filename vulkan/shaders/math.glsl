// llamay's elementary functions, as cpu/src/math has them: the same operations in the same order, so the same
// bits. vulkan/tests/math.rs compares them.
//
// Division and square root are made of fma and integer operations, since a driver may round its own as it
// likes. Signs and numbers that are none are told apart by bits.

#define F(bits) uintBitsToFloat(bits)

const float ROUND = 12582912.0; // 1.5 * 2^23: adding it leaves no fraction bits.
#define INFINITY F(0x7f800000u)

bool is_nan(float x) { return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u; }

float magnitude(float x) { return F(floatBitsToUint(x) & 0x7fffffffu); }

float negate(float x) { return F(floatBitsToUint(x) ^ 0x80000000u); }

// +0 instead of zeros and subnormals.
float flush(float y) { return (floatBitsToUint(y) & 0x7f800000u) == 0u ? 0.0 : y; }

float with_sign(float m, float sign) {
    return F(floatBitsToUint(m) | (floatBitsToUint(sign) & 0x80000000u));
}

// Nearest integer, ties to even, of a magnitude below 2^22.
float round_even(float x) {
    precise float t = x + ROUND;
    precise float r = t - ROUND;
    return r;
}

// The half-precision number, exactly.
float f16_to_f32(uint h) {
    uint sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 0x3ffu;
    if (exponent == 0u) {
        precise float m = float(mantissa) * F(0x33800000u);
        return F(floatBitsToUint(m) | sign);
    }
    uint bits = exponent == 31u ? 0x7f800000u | mantissa << 13 : (exponent + 112u) << 23 | mantissa << 13;
    return F(bits | sign);
}

// The nearest half-precision number, ties to even.
uint f32_to_f16(float f) {
    uint x = floatBitsToUint(f);
    uint sign = (x >> 16) & 0x8000u, a = x & 0x7fffffffu;
    if (a > 0x7f800000u) return sign | 0x7e00u | ((a >> 13) & 0x3ffu);
    if (a >= 0x47800000u) return sign | 0x7c00u;
    if (a < 0x33000000u) return sign;
    if (a < 0x38800000u) {
        // A subnormal half: a whole number of 2^-24.
        uint shift = 126u - (a >> 23);
        uint m = (a & 0x7fffffu) | 0x800000u;
        uint q = m >> shift, rest = m & ((1u << shift) - 1u), middle = 1u << (shift - 1u);
        if (rest > middle || (rest == middle && (q & 1u) == 1u)) q++;
        return sign | q;
    }
    uint rounded = a + 0xfffu + ((a >> 13) & 1u);
    return sign | ((rounded - 0x38000000u) >> 13);
}

// 1/m for a mantissa m in [1, 2), correctly rounded: cpu/src/math/recip.rs has the proof.
float recip_mantissa(uint mantissa) {
    precise float m = F(mantissa | 0x3f800000u);
    precise float y = fma(m, F(0xbef0f0f1u), F(0x3fb4b4b5u));
    for (int i = 0; i < 4; i++) {
        precise float residual = fma(negate(m), y, 1.0);
        y = fma(residual, y, y);
    }
    return mantissa == 0x7fffffu ? F(0x3f000001u) : y;
}

// a/b, correctly rounded; a subnormal result is +0, and subnormal arguments count as zeros.
//
// On the mantissas nothing over- or underflows, so residuals are exact. The first quotient is within an ulp and a
// half, and correcting it by its residual times a correctly rounded 1/m rounds correctly (Markstein); only
// quotients within 3 * 2^-48 / m of a midpoint could fail, and of these all were tried.
float div(float a, float b) {
    uint ab = floatBitsToUint(a), bb = floatBitsToUint(b);
    uint sign = (ab ^ bb) & 0x80000000u;
    uint ea = (ab >> 23) & 255u, eb = (bb >> 23) & 255u;
    if (is_nan(a)) return a;
    if (is_nan(b)) return b;
    if (ea == 255u) return eb == 255u ? F(0x7fc00000u) : F(sign | 0x7f800000u);
    if (eb == 255u) return 0.0;
    if (eb == 0u) return ea == 0u ? F(0x7fc00000u) : F(sign | 0x7f800000u);
    if (ea == 0u) return 0.0;
    uint mantissa = bb & 0x7fffffu;
    precise float y = recip_mantissa(mantissa);
    precise float m = F(mantissa | 0x3f800000u);
    precise float n = F((ab & 0x7fffffu) | 0x3f800000u);
    precise float q = n * y;
    precise float residual = fma(negate(m), q, n);
    q = fma(residual, y, q);
    int exponent = int(floatBitsToUint(q) >> 23) + int(ea) - int(eb);
    if (exponent <= 0) {
        // From halfway above the greatest subnormal on, the quotient rounds to the least normal number.
        precise float left = fma(negate(m), q, n);
        bool up = exponent == 0 && (floatBitsToUint(q) & 0x7fffffu) == 0x7fffffu && left >= 0.0;
        return up ? F(sign | 0x00800000u) : 0.0;
    }
    if (exponent >= 255) return F(sign | 0x7f800000u);
    return F(sign | uint(exponent) << 23 | (floatBitsToUint(q) & 0x7fffffu));
}

// 1/x, correctly rounded; a subnormal result is +0.
float recip(float x) { return div(1.0, x); }

// The square root, correctly rounded: the driver's, brought within an ulp, then corrected by its exact
// residual. A subnormal counts as zero.
float sqrt_exact(float x) {
    uint bits = floatBitsToUint(x);
    if ((bits & 0x7f800000u) == 0u) return F(bits & 0x80000000u);
    if (is_nan(x) || bits == 0x7f800000u) return x;
    if ((bits & 0x80000000u) != 0u) return F(0x7fc00000u);
    int exponent = int(bits >> 23) - 127;
    int odd = exponent & 1;
    // x = m * 2^(2 e) with m in [1, 4).
    precise float m = F((bits & 0x7fffffu) | uint(127 + odd) << 23);
    precise float s = sqrt(m);
    for (int i = 0; i < 2; i++) {
        precise float residual = fma(negate(s), s, m);
        precise float slope = 0.5 * recip(s);
        s = fma(residual, slope, s);
    }
    s = clamp(s, 1.0, F(0x3fffffffu));
    // m against (s +- ulp/2)^2 = s^2 +- s ulp + ulp^2/4: all but the last term are whole numbers of 2^-46.
    precise float residual = fma(negate(s), s, m);
    precise float step = s * F(0x34000000u);
    if (residual > step) s = F(floatBitsToUint(s) + 1u);
    else if (residual <= negate(step)) s = F(floatBitsToUint(s) - 1u);
    return F(floatBitsToUint(s) + uint((exponent - odd) / 2 << 23));
}

// 1/sqrt(x) as two correctly rounded operations.
float rsqrt_exact(float x) { return recip(sqrt_exact(x)); }

// x = k ln 2 + r: (k, expm1(r)).
float expm1_part(float x, out int k) {
    precise float t = fma(x, F(0x3fb8aa3bu), ROUND);
    precise float whole = t - ROUND;
    precise float r = fma(whole, F(0xbf317218u), x);
    r = fma(whole, F(0x3102e308u), r);
    precise float q = F(0x3ab5cb63u);
    q = fma(q, r, F(0x3c0912a0u));
    q = fma(q, r, F(0x3d2aab7bu));
    q = fma(q, r, F(0x3e2aaa5au));
    q = fma(q, r, F(0x3effffffu));
    k = int(floatBitsToUint(t) - floatBitsToUint(ROUND));
    precise float square = r * r;
    precise float p = fma(square, q, r);
    return p;
}

float exp_in_range(float x) {
    int k;
    precise float p = expm1_part(x, k);
    precise float y = 1.0 + p;
    return F(floatBitsToUint(y) + uint(k << 23));
}

float exp_(float x) {
    float y = exp_in_range(x);
    if (x < F(0xc2ae999au)) y = 0.0;
    if (x > F(0x42b17217u)) y = INFINITY;
    return is_nan(x) ? x : y;
}

float tanh_(float x) {
    precise float a = magnitude(x) > 10.0 ? 10.0 : magnitude(x);
    int k;
    precise float twice = a + a;
    precise float p = expm1_part(twice, k);
    precise float scale = F(0x3f800000u + uint(k << 23));
    precise float head = scale - 1.0;
    precise float m = fma(scale, p, head);
    precise float below = m + 2.0;
    return flush(with_sign(div(m, below), x));
}

float erf_(float x) {
    precise float a = magnitude(x);
    precise float z = x * x;
    precise float p = F(0xba190dc4u);
    p = fma(p, z, F(0x3ba29342u));
    p = fma(p, z, F(0xbcdb154du));
    p = fma(p, z, F(0x3de709a6u));
    p = fma(p, z, F(0xbec0935bu));
    p = fma(p, z, F(0x3e0375d2u));
    precise float near = fma(x, p, x);
    precise float b = a > F(0x407ccccdu) ? F(0x407ccccdu) : a;
    precise float t = F(0x394b535du);
    t = fma(t, b, F(0xbb462104u));
    t = fma(t, b, F(0x3cb56d2du));
    t = fma(t, b, F(0xbdd4827fu));
    t = fma(t, b, F(0xbf232aebu));
    t = fma(t, b, F(0xbf9053eeu));
    t = fma(t, b, F(0xb96a5c5eu));
    precise float less = 1.0 - exp_in_range(t);
    float far = with_sign(less, x);
    return flush(a >= 0.9375 ? far : near);
}

float sigmoid(float x) {
    precise float d = 1.0 + exp_(negate(x));
    return flush(recip(d));
}

float silu(float x) {
    precise float d = 1.0 + exp_(negate(x));
    return flush(div(x, d));
}

float gelu_tanh(float x) {
    precise float square = x * x;
    precise float inner = fma(square, F(0x3d922279u), F(0x3fcc422au));
    precise float two_u = x * inner;
    precise float d = 1.0 + exp_(negate(two_u));
    return flush(div(x, d));
}

float gelu_erf(float x) {
    precise float half_x = 0.5 * x;
    precise float scaled = x * F(0x3f3504f3u);
    precise float sum = 1.0 + erf_(scaled);
    precise float y = half_x * sum;
    return flush(y);
}

// A NaN stays, whatever a driver makes of the comparison.
float relu(float x) { return x <= 0.0 && !is_nan(x) ? 0.0 : flush(x); }

float relu_squared(float x) {
    precise float r = relu(x);
    precise float y = r * r;
    return flush(y);
}

float clipped_swiglu(float gate, float up) {
    float g = gate > 7.0 ? 7.0 : gate;
    float u = up > 7.0 ? 7.0 : up;
    u = u < -7.0 ? -7.0 : u;
    precise float scaled = F(0x3fd9db23u) * g;
    precise float product = g * sigmoid(scaled);
    precise float more = u + 1.0;
    precise float y = flush(product) * more;
    return y;
}

// Sine and cosine; the range and the parts of pi/2 are cpu/src/math/trig.rs's.
void sin_cos(float angle, out float sine, out float cosine) {
    float x = magnitude(angle) <= 2097152.0 ? angle : F(0x7fc00000u);
    precise float t = fma(x, F(0x3f22f983u), ROUND);
    uint quadrant = floatBitsToUint(t);
    precise float n = t - ROUND;
    precise float r = fma(n, F(0xbfc90fdbu), x);
    precise float product = n * F(0xb33bbd2eu);
    precise float product_lo = fma(n, F(0xb33bbd2eu), negate(product));
    precise float hi = r - product;
    precise float back = hi - r;
    precise float undone = hi - back;
    precise float lost = r - undone;
    precise float taken = product + back;
    precise float hi_lo = lost - taken;
    precise float rest = hi_lo - product_lo;
    precise float lo = fma(n, F(0x26f72cedu), rest);
    precise float z = hi * hi;
    precise float s = F(0xb94bc7c0u);
    s = fma(s, z, F(0x3c0880deu));
    s = fma(s, z, F(0xbe2aaa9bu));
    precise float cube = hi * z;
    precise float bend = fma(cube, s, lo);
    precise float sn = hi + bend;
    precise float c = F(0x37cc3667u);
    c = fma(c, z, F(0xbab60343u));
    c = fma(c, z, F(0x3d2aaaa0u));
    precise float half_z = 0.5 * z;
    precise float head = 1.0 - half_z;
    precise float off = 1.0 - head;
    precise float off_lo = off - half_z;
    precise float tail = fma(hi, negate(lo), off_lo);
    precise float fourth = z * z;
    precise float low = fma(fourth, c, tail);
    precise float cs = head + low;
    bool odd = (quadrant & 1u) != 0u;
    float first = odd ? cs : sn, second = odd ? sn : cs;
    uint sin_sign = (quadrant & 2u) << 30, cos_sign = ((quadrant + 1u) & 2u) << 30;
    sine = flush(F(floatBitsToUint(first) ^ sin_sign));
    cosine = flush(F(floatBitsToUint(second) ^ cos_sign));
}

// The numbers are those of vulkan/src/record.rs.
float nonlinearity(uint kind, float x) {
    switch (kind) {
        case 0u: return silu(x);
        case 1u: return gelu_tanh(x);
        case 2u: return gelu_erf(x);
        case 3u: return relu(x);
        case 4u: return relu_squared(x);
        default: return sigmoid(x);
    }
}

// Eight partial sums as a balanced tree.
float tree8(float a, float b, float c, float d, float e, float f, float g, float h) {
    precise float ab = a + b, cd = c + d, ef = e + f, gh = g + h;
    precise float abcd = ab + cd, efgh = ef + gh;
    precise float sum = abcd + efgh;
    return sum;
}
