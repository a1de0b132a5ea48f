/* linear x3 of one input -> linears: queries, keys and values from one product, which is as wide as the three together. */
#include "plan/plan.h"

pi0_status pi0_pass_fuse_qkv(pi0_plan *plan, pi0_error *err);

static bool feeds_attention(const pi0_plan *plan, int tensor)
{
    for (int i = 0; i < plan->n_ops; i++) {
        const pi0_op_kind kind = plan->ops[i].kind;
        const bool attention = kind == PI0_OP_ROPE || kind == PI0_OP_ATTN_SCORES || kind == PI0_OP_ATTN_MIX;
        for (int j = 0; attention && j < PI0_OP_INPUTS; j++)
            if (plan->ops[i].in[j] == tensor)
                return true;
    }
    return false;
}

pi0_status pi0_pass_fuse_qkv(pi0_plan *plan, pi0_error *err)
{
    for (int i = 0; i < plan->n_ops; i++) {
        int group[PI0_MAX_SOURCES], n = 0;
        bool attention = false;
        if (plan->ops[i].kind != PI0_OP_LINEAR)
            continue;
        for (int j = i; j < plan->n_ops && n < PI0_MAX_SOURCES; j++)
            if (plan->ops[j].kind == PI0_OP_LINEAR && plan->ops[j].in[0] == plan->ops[i].in[0]) {
                group[n++] = j;
                attention |= feeds_attention(plan, plan->ops[j].out);
            }
        if (n > 1 && attention && !pi0_plan_merge_linears(plan, group, n))
            return pi0_fail_memory(err, 0, "a plan");
    }
    pi0_plan_compact(plan);
    return PI0_OK;
}
