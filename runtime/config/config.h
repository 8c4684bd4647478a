/** @file config.h  What a run is asked to do: files, options and environment made one.
 *
 * Reads the solver and its nets (or a model alone), lays the environment and then the command line
 * over them, and remembers where each value came from. Precedence: command line, environment, file,
 * default. The nets end up inside the solver message (net_param …), so that one message is all
 * that ranks exchange and snapshots keep.
 */
#ifndef CT_CONFIG_H
#define CT_CONFIG_H

#include "framework/base/json_writer.h"
#include "framework/base/option.h"
#include "framework/base/text.h"
#include "framework/proto/upgrade.h"

#include "framework/net/exec.h"

#define CT_CONFIG_MAX_SET 128
/** Of snapshots, behind the folder of --run. */
#define CT_CONFIG_RUN_PREFIX "/snapshots/snapshot"

typedef struct ct_config {
    Ct__SolverParameter *solver; /* owned; a default one where only a model was given */
    Ct__NetParameter *net;       /* the model, inside solver->net_param; NULL with train_net */
    ct_source_map *map;          /* NULL on ranks that did not read the files         */
    char file[256];              /* the solver's or model's name                      */
    ct_phase phase;              /* the one that --set=batch_size means               */
    bool is_model;               /* --model instead of --solver                       */
    int32_t repeat_count;        /* --set=repeat.count=N; 0: as the nets say          */
    int n_set;
    struct {
        char path[96], value[256];
        ct_origin origin;
    } set[CT_CONFIG_MAX_SET]; /* fields that options set, in order                 */
} ct_config;

/** Reads --solver or --model and applies the options. phase: whose data layers --set=batch_size
 *  means. CT_ERR_CONFIG, CT_ERR_IO, logged. */
ct_status ct_config_read(const ct_options *o, ct_phase phase, ct_config *c);
/** The same, the nets' only `repeat` with `count` copies, whatever options say; 0: as they say. */
ct_status ct_config_read_repeat(const ct_options *o, ct_phase phase, int32_t count, ct_config *c);
/** A solver's file for a program that has no options. settings: as entries of --set, NULL behind
 *  the last; NULL: none. solver_mode is CPU where nobody says it. CT_ERR_CONFIG, CT_ERR_IO, logged.
 */
ct_status ct_config_read_solver(const char *file, const char *const *settings, ct_config *c);
void ct_config_destroy(ct_config *c);

/** Whether a field says which nets to train or test: net, net_param, train_net … */
bool ct_config_names_net(const char *path);

/** Packs what the other ranks need (malloc'ed), and the reverse. */
ct_status ct_config_pack(const ct_config *c, void **data_p, size_t *size_p);
ct_status ct_config_unpack(ct_config *c, const void *data, size_t size);

/** One log line a value that somebody chose, with its origin; then the defaults, many a line. */
void ct_config_log(const ct_config *c);
/** `"base_lr":0.01,…` of all effective solver fields, and `"base_lr":"file",…`: members of two JSON
 *  objects. */
void ct_config_json(const ct_config *c, ct_json_writer *values, ct_json_writer *origins);

/** "topk:density=0.01,min_bytes=4096" into solver->compression. CT_ERR_CONFIG. */
ct_status ct_config_compression(Ct__SolverParameter *solver, const char *spec, const char *who);

#endif
