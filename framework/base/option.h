/** @file option.h  Command line options, each with an environment twin.
 *
 * A program states its options in a table, one line each. `--name=value` and `--name value` are
 * the same; '-' and '_' are the same in names; a flag needs no value. An option that the command
 * line leaves out is taken from the environment, CORTADO_NAME, and each value remembers where it
 * came from, so that a run can say so.
 */
#ifndef CT_OPTION_H
#define CT_OPTION_H

#include <stdint.h>
#include <stdio.h>

#include "framework/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    CT_OPTION_FLAG,   /* true | false; alone it means true                            */
    CT_OPTION_TEXT,   /* as it is                                                     */
    CT_OPTION_OUT,    /* a file that is written; no other option's                    */
    CT_OPTION_COUNT,  /* a whole number, 0 to 2^31 - 1                                */
    CT_OPTION_SOME,   /* a whole number, 1 to 2^31 - 1                                */
    CT_OPTION_SEED,   /* a whole number, 0 to 2^63 - 1                                */
    CT_OPTION_CHOICE, /* one of the words of `value`, separated by '|'                */
    CT_OPTION_LIST,   /* may be repeated; in the environment separated by ';'         */
    CT_OPTION_MAYBE,  /* text behind '='; alone it means "-"                          */
    CT_OPTION_REST    /* a LIST that also has the arguments that are no options       */
} ct_option_kind;

typedef enum { CT_ORIGIN_DEFAULT, CT_ORIGIN_FILE, CT_ORIGIN_ENV, CT_ORIGIN_COMMAND } ct_origin;

typedef struct ct_option {
    const char *name; /* lower case with '_'; the environment twin is CORTADO_ and its capitals */
    ct_option_kind kind;
    const char *verbs; /* that take it, separated by spaces; "*": all */
    const char *value; /* what the help shows behind '='; the words of a CHOICE */
    const char *help;
} ct_option;

typedef struct ct_options ct_options;

/** Reads argv[1..argc) (argv[0] is the verb) and the environment. table and argv are borrowed.
 *  CT_ERR_CONFIG, logged with the nearest name, on unknown options, on arguments that are no
 *  options, on values of the wrong kind. */
ct_status ct_options_parse(const ct_option *table, int n, int argc, char *const *argv,
                           ct_options **options_p);
void ct_options_destroy(ct_options *o); /* NULL allowed */
/** The value that a file gives to an option of the verb, which must be in the table: it counts
 *  where nobody else gave one. place: of the field in the file, for messages. CT_ERR_CONFIG,
 * logged: it is of the wrong kind. */
ct_status ct_options_take(ct_options *o, const char *verb, const char *name, const char *text,
                          const char *place);

/** The value, or NULL where none was given. name must be in the table. o NULL, here and below:
 *  nobody gave any. */
const char *ct_options_text(const ct_options *o, const char *name);
bool ct_options_flag(const ct_options *o, const char *name);
int64_t ct_options_count(const ct_options *o, const char *name, int64_t otherwise);
/** Entries of a LIST, those of the environment first. */
int ct_options_n(const ct_options *o, const char *name);
const char *ct_options_entry(const ct_options *o, const char *name, int i, ct_origin *origin_p);
ct_origin ct_options_origin(const ct_options *o, const char *name);
typedef struct ct_option_place {
    char text[480];
} ct_option_place;

/** What messages call it: --NAME, or the place in a file that gave the value. */
ct_option_place ct_options_place(const ct_options *o, const char *name);
/** "command line", "environment", "file", "default". */
const char *ct_origin_str(ct_origin origin);

/** Whether the verb takes it. */
bool ct_option_serves(const ct_option *op, const char *verb);
/** The environment twin of an option of that name. */
void ct_option_twin(const char *name, char *to, size_t size);
/** Prints the options of a verb, one a paragraph, with their twins. */
void ct_options_help(const ct_option *table, int n, const char *verb, FILE *to);

#ifdef __cplusplus
}
#endif

#endif
