/* Long horizons: an action attends to the prefix, the state and the actions near it, so that attention costs in proportion to the horizon
 * (sliding windows: Beltagy, Peters and Cohan, Longformer, 2020). The model emits it so (model/policy.c); the pass is the switch. */
#include "plan/plan.h"

pi0_status pi0_pass_local_window(pi0_plan *plan, pi0_error *err);

pi0_status pi0_pass_local_window(pi0_plan *plan, pi0_error *err)
{
    (void)plan;
    (void)err;
    return PI0_OK;
}
