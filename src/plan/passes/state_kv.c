/* pi0: the state token depends neither on the noise nor on the flow time, so its keys and values are part of the context. A step then has
 * exactly `horizon` rows, and none of them needs a mask. The model emits it so (model/policy.c); the pass is the switch. */
#include "plan/plan.h"

pi0_status pi0_pass_state_kv(pi0_plan *plan, pi0_error *err);

pi0_status pi0_pass_state_kv(pi0_plan *plan, pi0_error *err)
{
    (void)plan;
    (void)err;
    return PI0_OK;
}
