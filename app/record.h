/* record - the stages of an inference as named arrays: --dump writes them alone, --record with the observation that led to them. */
#ifndef APP_RECORD_H
#define APP_RECORD_H

#include "observation.h"

/* Every stage under its own name. */
pi0_status app_dump_write(const char *path, const pi0_session *session, pi0_error *err);

/* A file that `pi0 check` replays: observation, noise, and each stage as ref/<stage>. */
pi0_status app_record_write(const char *path, const app_observation *observation, const pi0_session *session, pi0_error *err);

#endif
