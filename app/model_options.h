/* model_options - the options of how MODEL is opened, turned into pi0_options, and MODEL opened with them. */
#ifndef APP_MODEL_OPTIONS_H
#define APP_MODEL_OPTIONS_H

#include "app.h"

/* Owns what pi0_options only points to. */
typedef struct app_model_settings {
    pi0_options options;
    const char **set;
    char *hf_home, *openpi_home;
} app_model_settings;

/* Lives as long as the context's arguments. */
pi0_status app_model_settings_fill(app_context *app, app_model_settings *settings, pi0_error *err);
void app_model_settings_release(app_model_settings *settings);

/* MODEL and one robot. It may be shut and opened again with other settings: two open models would need twice the memory. */
typedef struct app_policy {
    app_model_settings settings;
    pi0_model *model;
    pi0_session *session;
} app_policy;

/* Of an empty or a shut one, whose settings are filled. The session has --seed, or 0. */
pi0_status app_policy_open(const app_context *app, app_policy *policy, pi0_error *err);
void app_policy_shut(app_policy *policy);
void app_policy_release(app_policy *policy); /* with its settings */

#endif
