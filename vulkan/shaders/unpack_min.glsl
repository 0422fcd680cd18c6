// The value of formats with a scale and a minimum.
float scale, least;

float value(uint unit, int isum, int msum) {
    precise float m = least * float(msum);
    precise float t = fma(scale, float(isum), m);
    return t;
}
