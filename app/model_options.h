/* model_options - the options of how MODEL is opened, turned into pi0_options. */
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

#endif
