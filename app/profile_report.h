/* profile_report - a profile as a page of text, as JSON, and as one HTML file. */
#ifndef APP_PROFILE_REPORT_H
#define APP_PROFILE_REPORT_H

#include "profile_sums.h"

/* What stands around the sums. */
typedef struct app_profile_context {
    const char *title; /* of the model, as it was named */
    int tokens, steps;
    double untraced_ms, traced_ms; /* the fastest of as many runs without recording as with it, in turns */
    pi0_memory memory;
    json_t *machine;  /* of pi0_doctor */
    char *memory_map; /* of pi0_memory_map */
} app_profile_context;

void app_profile_page(app_text *out, const app_profile *profile, const app_profile_context *context);
json_t *app_profile_json(const app_profile *profile, const app_profile_context *context);

/* The template of app/profile.html with the data of the run in the middle. */
void app_profile_html(app_text *out, const app_profile *profile, const app_profile_context *context);

#endif
