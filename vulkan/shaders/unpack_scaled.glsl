// The value of formats with a scale alone.
float scale;

float value(uint unit, int isum, int msum) {
    precise float t = scale * float(isum);
    return t;
}
