#include "signals.h"

#include <signal.h>
#include <string.h>

/* The only state of the program outside its stack: a handler can reach nothing else. */
static volatile sig_atomic_t signal_held, signal_seen;

static void on_signal(int number)
{
    if (signal_held && !signal_seen) {
        signal_seen = number;
        return;
    }
    /* Dying by the signal itself tells the shell and make why. */
    signal(number, SIG_DFL);
    raise(number);
}

void app_signals_install(void)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_NODEFER | SA_RESTART;
    const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction before;
        /* nohup and background jobs start with these ignored, and mean it */
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(numbers[i], &action, NULL);
    }
}

void app_signals_hold(void)
{
    signal_held = 1;
}

void app_signals_release(void)
{
    signal_held = 0;
    if (signal_seen)
        on_signal(signal_seen);
}

int app_stop_requested(void)
{
    return signal_seen != 0;
}
