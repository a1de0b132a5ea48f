/* What depends on the flow time alone is a plan of its own, `schedule`, run when the number of steps changes. pi0: the time half of the
 * action-time MLP, whose action half and action_in become one matrix; pi0.5: scale, shift and gate of every adaRMS. The model emits it so
 * (model/policy.c); the pass is the switch. */
#include "plan/plan.h"

pi0_status pi0_pass_time_fold(pi0_plan *plan, pi0_error *err);

pi0_status pi0_pass_time_fold(pi0_plan *plan, pi0_error *err)
{
    (void)plan;
    (void)err;
    return PI0_OK;
}
