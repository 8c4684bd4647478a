/* Values of the environment: twins of options, what launchers and SLURM say, what chooses kernels.
 * An input is lines NAME=VALUE of the names that are read; others are what stands on the command
 * line behind the verb. Any bytes end in options that are whole, and in limits and names that make
 * sense, or in an error. */
#include <stdlib.h>
#include <string.h>

#include "cli/verb.h"
#include "comm/core/comm.h"
#include "framework/base/memory.h"
#include "framework/base/simd.h"
#include "framework/snapshot/owner.h"
#include "runtime/job.h"
#include "topology/discover.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/tokens.h"

enum { MOST_VALUES = 24, MOST_BYTES = 4096 };

/* Beside the twins; those of MPI are read by us before MPI starts. */
static bool is_read(const char *name)
{
    static const char *const start[] = { "CORTADO_", "SLURM", "OMPI_COMM_WORLD_SIZE", "PMI" };

    for (size_t i = 0; i < sizeof(start) / sizeof(start[0]); i++)
        if (strncmp(name, start[i], strlen(start[i])) == 0) return true;
    return false;
}

/* argument[0] is the verb's. */
static int set_values(char *text, const char *set[MOST_VALUES], char *argument[MOST_VALUES + 2],
                      int *n_argument_p)
{
    int n = 0;

    *n_argument_p = 1;

    for (char *line = strtok(text, "\n"); (line != NULL) && (n < MOST_VALUES);
         line = strtok(NULL, "\n")) {
        char *equal = strchr(line, '=');

        if ((equal == NULL) || (equal == line) || !is_read(line)) {
            if (*n_argument_p <= MOST_VALUES) argument[(*n_argument_p)++] = line;
            continue;
        }
        *equal = '\0';
        if (setenv(line, equal + 1, 1) != 0) abort();
        set[n++] = line;
    }
    return n;
}

/* All that may be asked of what was given. */
static void use_options(ct_options *o, const char *verb)
{
    for (int i = 0; i < ct_option_table_n; i++) {
        const ct_option *op = &ct_option_table[i];
        ct_origin origin;

        if (ct_options_place(o, op->name).text[0] == '\0') abort();
        if (ct_origin_str(ct_options_origin(o, op->name)) == NULL) abort();
        if (((op->kind == CT_OPTION_COUNT) || (op->kind == CT_OPTION_SOME) ||
             (op->kind == CT_OPTION_SEED)) &&
            (ct_options_count(o, op->name, 0) < 0))
            abort();
        if (op->kind == CT_OPTION_FLAG) (void)ct_options_flag(o, op->name);
        if ((op->kind == CT_OPTION_LIST) || (op->kind == CT_OPTION_REST)) {
            for (int k = ct_options_n(o, op->name) - 1; k >= 0; k--)
                if (ct_options_entry(o, op->name, k, &origin) == NULL) abort();
        } else if (((op->kind == CT_OPTION_TEXT) || (op->kind == CT_OPTION_OUT)) &&
                   ct_option_serves(op, verb)) {
            if (ct_options_take(o, verb, op->name, "text", "file:1") != CT_OK) abort();
            if (ct_options_text(o, op->name) == NULL) abort();
        }
    }
}

static void print_help(const char *verb)
{
    FILE *to = fopen("/dev/null", "w");

    if (to == NULL) abort();
    ct_options_help(ct_option_table, ct_option_table_n, verb, to);
    fclose(to);
}

static void read_options(char *argument[MOST_VALUES + 2], int n_argument)
{
    for (const ct_verb *v = ct_verb_table; v->name != NULL; v++) {
        char *copy[MOST_VALUES + 2];
        ct_options *o = NULL;
        ct_status status;

        memcpy(copy, argument, sizeof(copy));
        copy[0] = (char *)(uintptr_t)v->name;
        copy[n_argument] = NULL;
        status = ct_options_parse(ct_option_table, ct_option_table_n, n_argument, copy, &o);
        if ((status != CT_OK) && (status != CT_ERR_CONFIG)) abort();
        if (status != CT_OK) continue;
        use_options(o, v->name);
        ct_options_destroy(o);
    }
}

static void read_launch(void)
{
    const char *who = NULL;
    ct_rank_name name;
    ct_owner_id id;
    double limit = ct_memory_limit_each(2, &who);

    if (!(limit > 0) || (who == NULL)) abort();
    (void)ct_comm_check_launch(2);
    (void)ct_comm_check_launcher();
    (void)ct_job_is_launched();
    (void)ct_simd_pick();
    (void)ct_slurm_node_list();
    ct_rank_name_fill(&name);
    if (memchr(name.node, '\0', sizeof(name.node)) == NULL) abort();
    ct_owner_self(&id);
    if (memchr(id.job, '\0', sizeof(id.job)) == NULL) abort();
}

FUZZ_TOKENS(0, NULL);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *set[MOST_VALUES];
    char text[MOST_BYTES + 1], *argument[MOST_VALUES + 2] = { NULL };
    int n, n_argument;

    if (size > MOST_BYTES) return 0;
    ct_log_set_sink(fuzz_drop, NULL);
    memcpy(text, data, size);
    text[size] = '\0';
    n = set_values(text, set, argument, &n_argument);
    read_options(argument, n_argument);
    print_help(ct_verb_table[size % 4].name);
    read_launch();
    for (int i = 0; i < n; i++) unsetenv(set[i]);
    return 0;
}
