/** @file signals.h  Signals become flags; nothing else happens in a handler.
 *
 * SIGTERM and SIGUSR1 ask for a snapshot and an end (exit 75), as batch systems send them before
 * the time is up. SIGINT and SIGHUP do what Caffe's --sigint_effect and --sighup_effect say.
 * SIGUSR2 asks for one line that tells what the rank does. The flags are the only mutable globals
 * beside the log's: a handler has no other way to leave word.
 */
#ifndef CT_SIGNALS_H
#define CT_SIGNALS_H

#include "framework/base/status.h"

typedef enum { CT_SIGNAL_NONE = 0, CT_SIGNAL_STOP = 1, CT_SIGNAL_SNAPSHOT = 2 } ct_signal_effect;

/** effect: "stop", "snapshot" or "none". CT_ERR_CONFIG. */
ct_status ct_signals_effect(const char *effect, ct_signal_effect *effect_p);
/** Installs the handlers. */
ct_status ct_signals_install(ct_signal_effect on_int, ct_signal_effect on_hup);
/** What was asked for since; read by the solver at the step boundary. Static. */
volatile int *ct_signals_request(void);
/** True once after each SIGUSR2. */
bool ct_signals_take_dump(void);

#endif
