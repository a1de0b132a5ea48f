/* signals - Ctrl-C and SIGTERM: at once while nothing is being written, after cleaning up while something is. */
#ifndef APP_SIGNALS_H
#define APP_SIGNALS_H

/* Installs the handlers, and turns a broken pipe or a file size limit from a silent death into a write error. */
void app_signals_install(void);

/* Between hold and release a signal only sets a flag (a second one ends the program): the library then stops through its progress
 * callback and removes its temporary file. release ends the program if a signal came and the work finished all the same. */
void app_signals_hold(void);
void app_signals_release(void);

int app_stop_requested(void);

#endif
