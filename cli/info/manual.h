/** @file manual.h  Pages of the manual, and completion in shells, made from the tables of verbs and
 *  options. */
#ifndef CT_MANUAL_H
#define CT_MANUAL_H

#include "cli/verb.h"

/** Prints the page on a verb, or on the program where the name is "cortado", as mdoc. Its date is
 *  SOURCE_DATE_EPOCH where that is set, else today. CT_ERR_CONFIG, logged: no such verb. */
ct_status ct_manual_print(const char *verb);

/** Prints a script for "bash" or "zsh". CT_ERR_NOMEM. */
ct_status ct_completion_print(const char *shell);

#endif
