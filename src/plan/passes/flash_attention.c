/* attn_scores, softmax, attn_mix -> attention. The running maximum and sum replace the score matrix (Dao et al., FlashAttention, 2022). */
#include "plan/plan.h"

pi0_status pi0_pass_flash_attention(pi0_plan *plan, pi0_error *err);

pi0_status pi0_pass_flash_attention(pi0_plan *plan, pi0_error *err)
{
    (void)err;
    for (int i = 0; i < plan->n_ops; i++) {
        pi0_op *mix = &plan->ops[i];
        if (mix->kind != PI0_OP_ATTN_MIX || pi0_plan_uses(plan, mix->in[0]) != 1)
            continue;
        int at_softmax = pi0_plan_producer(plan, mix->in[0]);
        if (at_softmax < 0 || plan->ops[at_softmax].kind != PI0_OP_SOFTMAX || pi0_plan_uses(plan, plan->ops[at_softmax].in[0]) != 1)
            continue;
        int at_scores = pi0_plan_producer(plan, plan->ops[at_softmax].in[0]);
        if (at_scores < 0 || plan->ops[at_scores].kind != PI0_OP_ATTN_SCORES)
            continue;
        pi0_op fused = plan->ops[at_scores];
        fused.kind = PI0_OP_ATTENTION;
        fused.in[3] = fused.in[2];
        fused.in[2] = mix->in[1];
        fused.in[4] = mix->in[2];
        fused.out = mix->out;
        *mix = fused;
        plan->ops[at_softmax].kind = plan->ops[at_scores].kind = PI0_OP_COUNT;
    }
    pi0_plan_compact(plan);
    return PI0_OK;
}
