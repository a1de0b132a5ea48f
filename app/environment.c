#include <stdlib.h>
#include <string.h>

#include "app.h"

extern char **environ;

static const char *const silent[] = {
    "PI0_SHARED", /* the test suite's own */
};

/* Of one PI0_* variable, over all options of this name: commands may bound the same option differently. */
typedef struct twin {
    bool known, accepted;
    bool read; /* by the running command, which has refused a bad value already */
} twin;

static twin find_twin(const app_command *running, const char *variable, size_t bytes)
{
    twin found = {0};
    const char *value = variable + bytes + (variable[bytes] == '=');
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++)
        if (strlen(silent[i]) == bytes && memcmp(silent[i], variable, bytes) == 0)
            found.known = found.accepted = true;
    char name[64];
    for (const app_command *const *command = app_commands; *command; command++)
        for (int t = 0; t < APP_MAX_TABLES && (*command)->syntax.tables[t]; t++)
            for (const app_option *option = (*command)->syntax.tables[t]; option->name; option++) {
                app_option_variable(option, name);
                if (strlen(name) != bytes || memcmp(name, variable, bytes) != 0)
                    continue;
                found.known = true;
                found.accepted |= !*value || app_option_accepts(option, value);
                found.read |= *command == running;
            }
    return found;
}

/* What Kubernetes adds to every container for a service named pi0. */
static bool is_kubernetes(const char *variable, size_t bytes)
{
    const char *rest = variable + 4;
    size_t n = bytes - 4;
    if (n >= 8 && memcmp(rest, "SERVICE_", 8) == 0)
        return true;
    return n >= 4 && memcmp(rest, "PORT", 4) == 0 && (n == 4 || rest[4] == '_');
}

void app_environment_warn(app_report *report, const app_command *running)
{
    app_text unknown = {0}, bad = {0};
    size_t strange = 0, kubernetes = 0;
    for (char **entry = environ; entry && *entry; entry++) {
        size_t bytes = strcspn(*entry, "=");
        if (bytes <= 4 || memcmp(*entry, "PI0_", 4) != 0)
            continue;
        twin found = find_twin(running, *entry, bytes);
        if (!found.known && is_kubernetes(*entry, bytes))
            kubernetes++;
        else if (!found.known)
            app_text_add(&unknown, "%s%.*s", strange++ ? ", " : "", (int)(bytes < 64 ? bytes : 64), *entry);
        else if (!found.accepted && !found.read)
            app_text_add(&bad, "%s%.200s", bad.length ? ", " : "", *entry);
    }
    if (kubernetes)
        app_text_add(&unknown, "%s%zu that Kubernetes sets for a service named pi0", strange ? ", and " : "", kubernetes);
    if (unknown.data)
        app_warn(report, "environment variables that no option answers to are ignored: %s", unknown.data);
    if (bad.data)
        app_warn(report, "bad values in environment variables that other commands read, and will refuse: %s", bad.data);
    app_text_release(&unknown);
    app_text_release(&bad);
}
