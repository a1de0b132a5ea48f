#include <stdio.h>
#include <string.h>

#include "app.h"

enum { HELP_WIDTH = 100, HELP_INDENT = 30 };

static void add_option(app_text *out, const app_option *option)
{
    char head[128];
    const bool value = option->kind != APP_FLAG;
    snprintf(head, sizeof head, "  %s%c%s--%s%s%s", option->letter ? "-" : "", option->letter ? option->letter : ' ',
             option->letter ? ", " : "", option->name, value ? " " : "", option->metavar ? option->metavar : "");
    /* without a letter the name starts where it would stand behind one */
    const char *text = head;
    char padded[160];
    if (!option->letter) {
        snprintf(padded, sizeof padded, "      %s", head + 3);
        text = padded;
    }
    app_text_add(out, "%s", text);
    size_t width = app_text_width(text);
    if (width + 2 > HELP_INDENT) {
        app_text_add(out, "\n");
        width = 0;
    }
    app_text_repeat(out, " ", HELP_INDENT - width);
    app_text_wrap(out, option->help, HELP_INDENT, HELP_WIDTH);
    app_text_add(out, "\n");
}

static void add_table(app_text *out, const app_option *table)
{
    const char *title = table == app_general_options       ? "Every command"
                        : table == app_model_options       ? "Opening MODEL"
                        : table == app_observation_options ? "Observation"
                                                           : "Options";
    app_text_add(out, "\n%s\n", title);
    for (const app_option *option = table; option->name; option++)
        add_option(out, option);
}

static void add_program(app_text *out)
{
    app_text_add(out, "pi0 %s: runs pi0 and pi0.5 robot policies; pictures, state and a sentence in, a chunk of actions out\n\n",
                 pi0_version());
    app_text_add(out, "usage: pi0 COMMAND [arguments] [options]\n\n");
    const app_command *const *command = app_commands;
    for (; *command && (*command)->run; command++)
        app_text_add(out, "  %-12s%s\n", (*command)->name, (*command)->summary);
    app_text_add(out, "  %-12s%s\n  %-12s%s\n", "help", "this, or one command: pi0 help infer", "version", "the version");
    app_text_add(out, "\nnot in this version\n");
    for (; *command; command++)
        app_text_add(out, "  %-12s%s\n", (*command)->name, (*command)->summary);
    app_text_add(out, "\nfirst steps\n"
                      "  pi0 synth /tmp/tiny --model pi0 --layout lerobot --size tiny   a small random checkpoint\n"
                      "  pi0 inspect /tmp/tiny                                          what a checkpoint is and expects\n"
                      "  pi0 help infer                                                 one chunk of actions, with examples\n");
    app_text_add(out, "\nexit: 0 ok, 1 runtime, 2 usage, 3 model, file or format, 4 a gate of `pi0 check` or `pi0 calibrate` failed\n");
}

void app_help_add(app_text *out, const app_command *command)
{
    if (!command) {
        add_program(out);
        return;
    }
    app_text_add(out, "pi0 %s: %s\n\nusage: pi0 %s %s\n\n", command->name, command->summary, command->name, command->usage);
    app_text_wrap(out, command->text, 0, HELP_WIDTH);
    app_text_add(out, "\n\nExamples\n%s", command->examples);
    for (int t = 0; t < APP_MAX_TABLES && command->syntax.tables[t]; t++)
        add_table(out, command->syntax.tables[t]);
    app_text_add(out,
                 "\nInside a name - and _ are the same, and --name=value is --name value; -- ends the options. Every option may "
                 "also be\nset by a variable: --memory-limit by PI0_MEMORY_LIMIT (for options that may be repeated, one value a "
                 "line); the\ncommand line wins, an empty variable counts as unset. A bad value is an error for the commands that have "
                 "the option,\na warning for the others; a PI0_ variable that no option answers to is a warning.\n");
}
