// Behind the last page: the sink takes its part, and the sum is divided out.

// The factors of every value: first `x`, where there is a sink, then `y`.
vec2 last_factors(float m, float l, bool sunk, float sink) {
    if (!sunk) return vec2(1.0, recip(l));
    precise float highest = sink > m ? sink : m;
    precise float down_a = m - highest, down_b = sink - highest;
    precise float a = exp_(down_a);
    precise float la = l * a;
    precise float sum = la + exp_(down_b);
    return vec2(a, recip(sum));
}

float finished(float v, vec2 factors, bool sunk) {
    precise float y = v;
    if (sunk) y = y * factors.x;
    precise float scaled = y * factors.y;
    return scaled;
}

// The factors by which a page joins those before it: of these, and of the page; and the new maximum.
vec3 joining(float m, float page_m) {
    float highest = page_m > m ? page_m : m;
    precise float down_a = m - highest, down_b = page_m - highest;
    return vec3(exp_(down_a), exp_(down_b), highest);
}

// Two parts joined by their factors.
float joined(float before, float page, vec3 by) {
    precise float scaled = before * by.x;
    precise float sum = fma(page, by.y, scaled);
    return sum;
}
