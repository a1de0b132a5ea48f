/* The angles of rotary position embedding (Su et al., RoFormer, 2021), with the roundings of the reference: frequencies and angles in f32
 * (transformers GemmaRotaryEmbedding), sine and cosine rounded once. */
#include <math.h>

#include "plan/plan.h"

static const float rope_theta = 10000.0f;

void pi0_rope_angles(int position, int head_dim, float *cosines, float *sines)
{
    for (int i = 0; i < head_dim / 2; i++) {
        float frequency = 1.0f / powf(rope_theta, (float)(2 * i) / (float)head_dim);
        float angle = frequency * (float)position;
        cosines[i] = (float)cos((double)angle);
        sines[i] = (float)sin((double)angle);
    }
}
