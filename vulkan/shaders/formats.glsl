// How each block format unpacks. Layouts are those of formats/src; `rest` are a block's first bytes where its scale comes
// first, and its last where it comes last, so that quants are whole words.
#if defined(FORMAT_Q4_0)
#include "format_q4_0.glsl"
#elif defined(FORMAT_Q4_1)
#include "format_q4_1.glsl"
#elif defined(FORMAT_Q5_0)
#include "format_q5_0.glsl"
#elif defined(FORMAT_Q5_1)
#include "format_q5_1.glsl"
#elif defined(FORMAT_Q8_0)
#include "format_q8_0.glsl"
#elif defined(FORMAT_Q8_1)
#include "format_q8_1.glsl"
#elif defined(FORMAT_Q2_K)
#include "format_q2_k.glsl"
#elif defined(FORMAT_Q3_K)
#include "format_q3_k.glsl"
#elif defined(FORMAT_Q4_K)
#include "format_q4_k.glsl"
#elif defined(FORMAT_Q5_K)
#include "format_q5_k.glsl"
#elif defined(FORMAT_Q6_K)
#include "format_q6_k.glsl"
#elif defined(FORMAT_Q8_K)
#include "format_q8_k.glsl"
#elif defined(FORMAT_IQ1_S)
#include "format_iq1_s.glsl"
#elif defined(FORMAT_IQ1_M)
#include "format_iq1_m.glsl"
#elif defined(FORMAT_IQ2_XXS)
#include "format_iq2_xxs.glsl"
#elif defined(FORMAT_IQ2_XS)
#include "format_iq2_xs.glsl"
#elif defined(FORMAT_IQ2_S)
#include "format_iq2_s.glsl"
#elif defined(FORMAT_IQ3_XXS)
#include "format_iq3_xxs.glsl"
#elif defined(FORMAT_IQ3_S)
#include "format_iq3_s.glsl"
#elif defined(FORMAT_IQ4_NL)
#include "format_iq4_nl.glsl"
#elif defined(FORMAT_IQ4_XS)
#include "format_iq4_xs.glsl"
#elif defined(FORMAT_MXFP4)
#include "format_mxfp4.glsl"
#elif defined(FORMAT_NVFP4)
#include "format_nvfp4.glsl"
#elif defined(FORMAT_TQ1_0)
#include "format_tq1_0.glsl"
#elif defined(FORMAT_TQ2_0)
#include "format_tq2_0.glsl"
#elif defined(FORMAT_Q1_0)
#include "format_q1_0.glsl"
#else
#error "no format"
#endif
