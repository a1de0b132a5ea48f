/* Operations that one inference cannot do without, whatever passes and kernels do: two for each multiply-add of a matrix product or an
 * attention, of openpi's definition of the model. Norms, activations and softmax are not counted, nor is what no action depends on: the
 * last prefix layer beyond its K and V. The time of a step and pi0.5's modulations, which do not depend on the observation, are left out.
 */
#include "model/model.h"

/* Products of one Gemma layer: rows of x, keys to attend to. */
static double gemma_layer(const pi0_gemma_arch *a, double rows, double keys)
{
    const double width = a->width, q_width = (double)a->heads * a->head_dim, kv_width = (double)a->kv_heads * a->head_dim;
    return rows * ((q_width + 2 * kv_width) * width + 2 * keys * q_width + q_width * width + 3 * width * (double)a->mlp);
}

static double vision(const pi0_arch *arch, double cameras)
{
    const double width = arch->vision.width, tokens = arch->vision.tokens, rows = cameras * tokens;
    const double layer = 4 * width * width + 2 * tokens * width + 2 * width * (double)arch->vision.mlp;
    const double patch = width * 3 * (double)arch->vision.patch * (double)arch->vision.patch,
                 projector = width * (double)arch->prefix.width;
    return rows * (patch + (double)arch->vision.depth * layer + projector);
}

static double step(const pi0_arch *arch, double prefix, double horizon)
{
    const double width = arch->expert.width, rows = horizon + (arch->pi05 ? 0 : 1);
    const double action = 2 * horizon * width * (double)arch->action_dim, time_mlp = arch->pi05 ? 0 : horizon * width * width;
    return action + time_mlp + (double)arch->expert.depth * gemma_layer(&arch->expert, rows, prefix + rows);
}

pi0_flop pi0_arch_flop(const pi0_arch *arch, int cameras, int tokens, int horizon, int steps)
{
    const double prefix = (double)cameras * arch->vision.tokens + tokens;
    const double last = prefix * 2 * (double)arch->prefix.kv_heads * arch->prefix.head_dim * arch->prefix.width;
    return (pi0_flop){.vision = 2 * vision(arch, cameras),
                      .prefix = 2 * ((arch->prefix.depth - 1) * gemma_layer(&arch->prefix, prefix, prefix) + last),
                      .denoise = 2 * steps * step(arch, prefix, horizon)};
}
