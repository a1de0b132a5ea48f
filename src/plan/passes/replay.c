/* Replay of the compiled calls ("graph mode") instead of looking every op up as it runs ("eager"). The work is the device's; the pass is
 * the switch. */
#include "plan/plan.h"

pi0_status pi0_pass_replay(pi0_plan *plan, pi0_error *err);

pi0_status pi0_pass_replay(pi0_plan *plan, pi0_error *err)
{
    (void)err;
    plan->use_replay = true;
    return PI0_OK;
}
