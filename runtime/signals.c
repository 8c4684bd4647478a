#include "runtime/signals.h"

#include <signal.h>
#include <string.h>

static volatile int request; /* ct_signal_effect; a stop is never lowered */
static volatile sig_atomic_t dump;
static volatile sig_atomic_t effect_of[65];

static void on_signal(int number)
{
    if (number == SIGUSR2) {
        dump = 1;
        return;
    }
    if (request != CT_SIGNAL_STOP) request = effect_of[number];
}

ct_status ct_signals_effect(const char *effect, ct_signal_effect *effect_p)
{
    static const char *const name[] = { "none", "stop", "snapshot" };

    for (int i = 0; i < 3; i++) {
        if (strcmp(effect, name[i]) != 0) continue;
        *effect_p = (ct_signal_effect)i;
        return CT_OK;
    }
    return CT_FAIL(CT_ERR_CONFIG, "signal effect \"%s\": expected stop, snapshot or none", effect);
}

ct_status ct_signals_install(ct_signal_effect on_int, ct_signal_effect on_hup)
{
    const int number[] = { SIGTERM, SIGUSR1, SIGINT, SIGHUP, SIGUSR2 };
    const ct_signal_effect effect[] = { CT_SIGNAL_STOP, CT_SIGNAL_STOP, on_int, on_hup,
                                        CT_SIGNAL_NONE };
    struct sigaction action;

    memset(&action, 0, sizeof(action));
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < 5; i++) {
        /* "none" is to ignore the signal, as in Caffe */
        bool ignore = (effect[i] == CT_SIGNAL_NONE) && (number[i] != SIGUSR2);

        effect_of[number[i]] = effect[i];
        action.sa_handler = ignore ? SIG_IGN : on_signal;
        if (sigaction(number[i], &action, NULL) != 0) {
            return CT_FAIL(CT_ERR_ARG, "no handler for signal %d", number[i]);
        }
    }
    return CT_OK;
}

volatile int *ct_signals_request(void)
{
    return &request;
}

bool ct_signals_take_dump(void)
{
    bool was = (dump != 0);

    dump = 0;
    return was;
}
