// Attention of a head of a token over one page. Lanes are positions for scores and elements for values, so that no sum runs
// across lanes.

layout(push_constant, std430) uniform Push {
    Floats q;
    Floats out_;
    Words tokens;
    Table pages;
    Words starts;
    Floats sinks;
    uint rows;
    uint heads;
    uint heads_kv;
    uint head_dim;
    uint group;
    uint n_groups;
    uint layer;
    uint window; // 0: all
    float scale;
    float softcap; // 0: none
    uint flags;    // 1: has sinks
    uint max_pages; // of a token, where pages are shared out
    Floats scratch; // where they are: for each token, head and page its values, maximum and sum
} p;

const uint MOST = 1024; // elements of a head
shared float query[MOST];
shared uint query_words[MOST / 4];
shared float query_scales[MOST / 32];
shared float scores[PAGE];
shared float partial[8];

// The query as it meets the cache: floats, or turned blocks of bytes.
void load_query(uint from) {
    uint lane = gl_LocalInvocationID.x, n = p.head_dim;
    for (uint d = lane; d < n; d += 64) query[d] = p.q.at[from + d];
    barrier();
    if (KIND >= 2) {
        for (uint b = lane; b < blocks(n); b += 64) {
            float x[32];
            for (uint i = 0; i < 32; i++) x[i] = 32 * b + i < n ? query[32 * b + i] : 0.0;
            turn(x, 0.125);
            uint amax = largest_magnitude(x);
            precise float scale = F(amax) * F(0x3c010204u);
            if (amax < 0x12800000u) scale = 0.0;
            precise float inverse = scale > 0.0 ? recip(scale) : 0.0;
            query_scales[b] = scale;
            for (uint w = 0; w < 8; w++) {
                uint word = 0;
                for (uint i = 0; i < 4; i++) word |= low_byte(x[4 * w + i], inverse) << 8 * i;
                query_words[8 * b + w] = word;
            }
        }
        barrier();
    }
}

// The sum of the products of four signed bytes each.
int dot4(uint a, uint b) {
    ivec4 shift = ivec4(0, 8, 16, 24);
    ivec4 x = ivec4(int(a) << 24, int(a) << 16, int(a) << 8, int(a)) >> 24;
    ivec4 y = ivec4(int(b) << 24, int(b) << 16, int(b) << 8, int(b)) >> 24;
    ivec4 xy = x * y;
    return xy.x + xy.y + xy.z + xy.w;
}

// The product of the query with the key at a position.
float product(Words page, uint keys, uint j) {
    uint n = p.head_dim;
    precise float acc = 0.0;
    if (KIND == 0) {
        for (uint d = 0; d < n; d++) acc = fma(query[d], F(page.at[keys + d * PAGE + j]), acc);
    } else if (KIND == 1) {
        for (uint d = 0; d < n; d += 2) {
            uint pair = page.at[keys + d / 2 * PAGE + j];
            acc = fma(query[d], f16_to_f32(pair & 0xffffu), acc);
            if (d + 1 < n) acc = fma(query[d + 1], f16_to_f32(pair >> 16), acc);
        }
    } else {
        uint words = position_words(n);
        for (uint b = 0; b < blocks(n); b++) {
            int sum = 0;
            if (KIND == 2) {
                for (uint w = 0; w < 8; w++) sum += dot4(query_words[8 * b + w], page.at[keys + (8 * b + w) * PAGE + j]);
            } else {
                int of_query = 0;
                for (uint w = 0; w < 4; w++) {
                    uint word = page.at[keys + (4 * b + w) * PAGE + j];
                    uint low = query_words[8 * b + w], high = query_words[8 * b + 4 + w];
                    sum += dot4(low, word & 0x0f0f0f0fu) + dot4(high, word >> 4 & 0x0f0f0f0fu);
                    of_query += dot4(low, 0x01010101u) + dot4(high, 0x01010101u);
                }
                sum -= 8 * of_query;
            }
            float d = F(page.at[keys + PAGE * words + b * PAGE + j]);
            precise float t = d * float(sum);
            acc = fma(query_scales[b], t, acc);
        }
    }
    return acc;
}

// An element of the value at a position.
float value(Words page, uint values, uint j, uint d) {
    uint n = p.head_dim;
    if (KIND == 0) return F(page.at[values + j * n + d]);
    uint words = position_words(n);
    if (KIND == 1) {
        uint pair = page.at[values + j * words + d / 2];
        return f16_to_f32(d % 2 == 0 ? pair & 0xffffu : pair >> 16);
    }
    uint b = d / 32, i = d % 32;
    float scale = F(page.at[values + PAGE * words + b * PAGE + j]);
    int q;
    if (KIND == 2) {
        q = bitfieldExtract(int(page.at[values + j * words + d / 4]), int(8 * (d % 4)), 8);
    } else {
        uint word = page.at[values + j * words + 4 * b + i % 16 / 4];
        q = int(word >> (8 * (i % 4) + (i < 16 ? 0 : 4)) & 15u) - 8;
    }
    precise float v = scale * float(q);
    return v;
}

// What a token sees, and where its pages are.
struct Seen {
    uint first;
    uint position;
    uint table;
};

Seen seen_by(uint token) {
    uint position = p.tokens.at[2 * token], sequence = p.tokens.at[2 * token + 1];
    uint first = p.window == 0 || position + 1 < p.window ? 0 : position + 1 - p.window;
    return Seen(first, position, p.starts.at[sequence * p.n_groups + p.group]);
}

// A page's part of what a token sees: lo..hi.
uvec2 range(Seen seen, uint number) {
    return uvec2(max(seen.first, number * PAGE) - number * PAGE, min(seen.position + 1 - number * PAGE, PAGE));
}

uint keys_of(uint head) {
    uint head_kv = head / (p.heads / p.heads_kv);
    return p.layer + head_kv * 2 * side_words(p.head_dim);
}

// Turns the scores of a page into weights, in `scores`; their maximum and sum.
void weigh(Words page, uint keys, uvec2 at, out float page_m, out float page_l) {
    uint lane = gl_LocalInvocationID.x;
    bool sees = lane >= at.x && lane < at.y;
    precise float score = negate(INFINITY);
    if (sees) {
        score = product(page, keys, lane) * p.scale;
        if (p.softcap != 0.0) {
            precise float bent = tanh_(div(score, p.softcap));
            score = p.softcap * bent;
        }
    }
    scores[lane] = score;
    barrier();
    float most = negate(INFINITY);
    for (uint j = at.x; j < at.y; j++) most = scores[j] > most ? scores[j] : most;
    // Of two zeros the positive.
    page_m = most == 0.0 ? 0.0 : most;
    barrier();
    precise float distance = score - page_m;
    scores[lane] = sees ? exp_(distance) : 0.0;
    barrier();
    if (lane < 8) {
        precise float acc = 0.0;
        for (uint j = lane; j < PAGE; j += 8) acc = acc + scores[j];
        partial[lane] = acc;
    }
    barrier();
    page_l = tree8(partial[0], partial[1], partial[2], partial[3], partial[4], partial[5], partial[6], partial[7]);
}

// The weighted sum of an element of the page's values.
float weighted(Words page, uint values, uvec2 at, uint d) {
    precise float acc = 0.0;
    for (uint j = at.x; j < at.y; j++) acc = fma(scores[j], value(page, values, j, d), acc);
    return acc;
}
