/* Absent cameras and prompt padding: skipped instead of computed and masked.
 *
 * A masked row is never attended to and never read, and positions count valid rows only, so leaving it out changes nothing but the order of
 * sums (docs/numerics.md). The parameter block then holds live rows only, and attention needs no mask.
 */
#include "plan/plan.h"

pi0_status pi0_pass_drop_masked(pi0_plan *plan, pi0_error *err);

pi0_status pi0_pass_drop_masked(pi0_plan *plan, pi0_error *err)
{
    (void)err;
    plan->live_rows = true;
    for (int i = 0; i < plan->n_ops; i++)
        plan->ops[i].masked = false;
    return PI0_OK;
}
