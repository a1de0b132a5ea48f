/* The list of passes and the switch for each. */
#include <string.h>

#include "plan/plan.h"

#define PASS(id, name, class, summary, founding) pi0_status pi0_pass_##id(pi0_plan *plan, pi0_error *err);
#include "plan/passes/passes.def"
#undef PASS

const pi0_pass pi0_passes[] = {
#define PASS(id, name, class, summary, founding) {name, PI0_PASS_##class, summary, founding, pi0_pass_##id},
#include "plan/passes/passes.def"
#undef PASS
    {NULL, PI0_PASS_BIT, NULL, NULL, NULL},
};

const char *pi0_pass_class_name(pi0_pass_class class)
{
    static const char *const names[] = {
        [PI0_PASS_BIT] = "bit", [PI0_PASS_ORDER] = "order", [PI0_PASS_ROUNDING] = "rounding", [PI0_PASS_MODEL] = "model"};
    return names[class];
}

const pi0_pass *pi0_pass_find(const char *name)
{
    for (const pi0_pass *pass = pi0_passes; pass->name; pass++)
        if (!strcmp(pass->name, name))
            return pass;
    return NULL;
}

/* The next word of a comma separated list; false at the end. */
static bool next_word(const char **list, const char **word, size_t *length)
{
    while (**list == ',' || **list == ' ')
        (*list)++;
    *word = *list;
    *length = strcspn(*list, ", ");
    *list += *length;
    return *length > 0;
}

bool pi0_pass_enabled(const char *disabled, const char *name)
{
    const char *word;
    size_t length;
    while (disabled && next_word(&disabled, &word, &length))
        if (length == strlen(name) && !strncmp(word, name, length))
            return false;
    return true;
}

pi0_status pi0_passes_check(const char *disabled, pi0_error *err)
{
    const char *word;
    size_t length;
    while (disabled && next_word(&disabled, &word, &length)) {
        const pi0_pass *pass = pi0_passes;
        while (pass->name && (strlen(pass->name) != length || strncmp(word, pass->name, length)))
            pass++;
        if (pass->name)
            continue;
        pi0_status status = pi0_fail(err, PI0_ERR_ARGUMENT, "there is no pass '%.*s' to disable", (int)length, word);
        pi0_err_hint(err, "one or more of these, comma separated:");
        for (pass = pi0_passes; pass->name; pass++)
            pi0_err_item(err, "%s: %s", pass->name, pass->summary);
        return status;
    }
    return PI0_OK;
}

pi0_status pi0_passes_run(pi0_plan *plan, const char *disabled, pi0_error *err)
{
    PI0_TRY(pi0_passes_check(disabled, err));
    plan->use_arena = plan->use_replay = plan->live_rows = false; /* each is switched on by its pass */
    for (const pi0_pass *pass = pi0_passes; pass->name; pass++)
        if (pi0_pass_enabled(disabled, pass->name))
            PI0_TRY(pass->run(plan, err));
    return pi0_plan_verify(plan, err);
}
