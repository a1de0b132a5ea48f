/* app - the program `pi0`: one file per command, over the public API only.
 *
 * A command reads its parsed options, calls libpi0, and prints one result. It never touches files, weights or numbers in ways that
 * pi0.h does not offer, so whatever the program can do, a C program can do.
 */
#ifndef APP_APP_H
#define APP_APP_H

#include "options.h"
#include "report.h"

typedef struct app_command app_command;

typedef struct app_context {
    const app_command *command;
    app_args args;
    app_report report;
    bool json;
} app_context;

struct app_command {
    const char *name;
    const char *summary;  /* one line of `pi0 help` */
    const char *usage;    /* after "pi0 NAME " */
    const char *text;     /* what it does, in a paragraph or two */
    const char *examples; /* lines, each indented by two */
    app_syntax syntax;
    int (*run)(app_context *app); /* returns an app_exit; NULL: not in this version */
};

extern const app_command app_infer, app_check, app_inspect, app_synth, app_pack, app_tokenize, app_preprocess, app_bench, app_doctor,
    app_calibrate, app_profile_command;

/* Shared option tables. */
extern const app_option app_general_options[];     /* --json, --quiet */
extern const app_option app_chunk_options[];       /* --steps, --horizon */
extern const app_option app_model_options[];       /* how MODEL is opened */
extern const app_option app_observation_options[]; /* what the robot sees */

/* All commands, in the order of the help; the last has name NULL. */
extern const app_command *const app_commands[];

const app_command *app_find_command(const char *name);
void app_help_add(app_text *out, const app_command *command); /* NULL: the program's own help */

/* Warns once about PI0_* variables that no option of any command answers to, and once about those whose value only commands other than the
 * running one would refuse. */
void app_environment_warn(app_report *report, const app_command *running);

#endif
