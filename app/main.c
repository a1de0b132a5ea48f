#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app.h"
#include "signals.h"
#include "stats.h"

/* Commands that have a name and a meaning, but no code yet. */
static const app_command not_yet[] = {
    {.name = "serve", .summary = "the openpi websocket policy server"},
    {.name = "client", .summary = "a client that measures it"},
    {.name = "run", .summary = "the robot-side loop"},
    {.name = "replay", .summary = "replay of recordings"},
};

const app_command *const app_commands[] = {
    &app_infer,           &app_check,  &app_inspect,   &app_synth,  &app_pack,   &app_tokenize, &app_preprocess, &app_bench,
    &app_profile_command, &app_doctor, &app_calibrate, &not_yet[0], &not_yet[1], &not_yet[2],   &not_yet[3],     NULL,
};

const app_command *app_find_command(const char *name)
{
    for (const app_command *const *command = app_commands; *command; command++)
        if (strcmp((*command)->name, name) == 0)
            return *command;
    return NULL;
}

/* A descriptor that is closed at the start would be given to the next file that is opened, and the result printed into it. */
static void fill_standard_descriptors(app_report *report)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0) {
            report->stdout_closed |= fd == 1;
            if (open("/dev/null", O_RDWR) < 0)
                return;
        }
}

static int unknown_command(app_report *report, const char *name)
{
    pi0_error err = {0};
    bool option = name[0] == '-';
    app_err(&err, PI0_ERR_ARGUMENT, option ? "an option before the command" : "unknown command");
    app_err_field(err.got, "%.200s", name);
    app_nearest nearest = {.word = name};
    for (const app_command *const *command = app_commands; *command; command++)
        app_nearest_try(&nearest, (*command)->name);
    if (option)
        app_err_field(err.hint, "write the command first: pi0 COMMAND %.100s ...", name);
    else
        app_err_field(err.hint, "the nearest is `pi0 %s`; `pi0 help` lists all", nearest.best);
    return app_fail(report, &err, APP_READING);
}

static int not_in_this_version(app_report *report, const app_command *command)
{
    pi0_error err = {0};
    app_err(&err, PI0_ERR_UNSUPPORTED, "`pi0 %s` (%s) is not in this version", command->name, command->summary);
    app_err_field(err.where, "pi0 %s", pi0_version());
    app_err_field(err.hint, "`pi0 help` lists what is");
    app_fail(report, &err, APP_READING);
    return APP_RUNTIME;
}

static bool asks_for(int argc, char **argv, const char *word, const char *letter)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], word) == 0 || strcmp(argv[i], letter) == 0)
            return true;
    return false;
}

static int print_help(app_report *report, const app_command *command)
{
    app_text out = {0};
    app_help_add(&out, command);
    int code = app_print(report, &out);
    app_text_release(&out);
    return code;
}

static int print_version(app_report *report, bool json)
{
    app_text out = {0};
    app_text_add(&out, json ? "{\"version\": \"%s\"}\n" : "pi0 %s\n", pi0_version());
    int code = app_print(report, &out);
    app_text_release(&out);
    return code;
}

static int help_command(app_report *report, int argc, char **argv)
{
    if (argc == 0)
        return print_help(report, NULL);
    const app_command *command = app_find_command(argv[0]);
    if (!command)
        return unknown_command(report, argv[0]);
    return command->run ? print_help(report, command) : not_in_this_version(report, command);
}

static int run_command(app_context *app, int argc, char **argv)
{
    pi0_error err = {0};
    if (asks_for(argc, argv, "--help", "-h"))
        return print_help(&app->report, app->command);
    pi0_status status = app_args_parse(app->command->name, &app->command->syntax, argc, argv, &app->args, &err);
    if (status == PI0_OK)
        status = app_args_environment(&app->command->syntax, &app->args, &err);
    if (status != PI0_OK)
        return app_fail(&app->report, &err, APP_READING);
    app->report.quiet = app_args_flag(&app->args, "quiet");
    app->json = app_args_flag(&app->args, "json");
    app_environment_warn(&app->report, app->command);
    if (app_stats_open(app, &err) != PI0_OK)
        return app_fail(&app->report, &err, APP_READING);
    const int code = app->command->run(app);
    app_stats_close(&app->report);
    return code;
}

int main(int argc, char **argv)
{
    app_context app = {0};
    fill_standard_descriptors(&app.report);
    app_signals_install();
    app.report.terminal = isatty(STDERR_FILENO) == 1;
    if (argc < 2) {
        app_text out = {0};
        app_help_add(&out, NULL);
        fputs(out.data ? out.data : "", stderr);
        app_text_release(&out);
        return APP_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0 || strcmp(name, "version") == 0)
        return print_version(&app.report, asks_for(argc - 2, argv + 2, "--json", "--json"));
    if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return help_command(&app.report, argc - 2, argv + 2);
    app.command = app_find_command(name);
    if (!app.command)
        return unknown_command(&app.report, name);
    if (!app.command->run)
        return not_in_this_version(&app.report, app.command);
    int code = run_command(&app, argc - 2, argv + 2);
    app_args_release(&app.args);
    app_text_release(&app.report.said);
    return code;
}
