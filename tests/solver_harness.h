/** @file solver_harness.h  Solvers from text, on one or several pretended ranks, for tests. */
#ifndef CT_SOLVER_HARNESS_H
#define CT_SOLVER_HARNESS_H

#include "framework/base/text.h"
#include "framework/solver/solver.h"
#include "tests/thread_ranks.h"

/** Cortado's layers, and one more:
 *
 *  Probe  bottom: any; top: a loss. Weights: 5 x 1 (filler: gaussian, std 1) and 3 (zeros). Its
 *         gradient is known: probe_gradient(), a function of the weight and the micro-step; the
 * loss is the micro-step + 1, or NaN from micro-step `num_output` on (inner_product_param), where
 *         that is given. */
const ct_layer_ops *const *test_solver_table(void);
double probe_gradient(int weight, int element, int64_t micro_step, double value);

typedef struct test_solver {
    Ct__SolverParameter *param;
    ct_solver *solver;
} test_solver;

/** Parses a SolverParameter; the test fails where it does not read. */
Ct__SolverParameter *test_solver_parse(const char *text);
/** A solver of this text. rank NULL: alone. stop, report: may be NULL. */
ct_status test_solver_create(const char *text, thread_rank *rank, volatile int *stop,
                             struct ct_report *report, test_solver *t_p);
/** The same, whose optimiser's states lie where `open` says. */
ct_status test_solver_create_stored(const char *text, thread_rank *rank, ct_storage_open_fn open,
                                    void *ctx, test_solver *t_p);
/** The same of further options; the text's and the rank's are set here. */
ct_status test_solver_create_with(const char *text, thread_rank *rank, ct_solver_options *o,
                                  test_solver *t_p);
void test_solver_destroy(test_solver *t);

/** Weights of a net, or of a file, into a file, in the format of its name (ct_model_save). */
ct_status test_weights_save(const char *file, const ct_net *net);
ct_status test_weights_convert(const char *from, const char *to);

/** Every log line from here on goes into the text that test_log_all() returns. Threads may log. */
void test_log_all_start(void);
const char *test_log_all(void);
void test_log_all_stop(void); /* frees it; the log goes to stderr again */

/** Fails, with the whole log, where it does not hold the text. */
void test_log_holds(const char *text);

/** Set-up and tear-down of a test with files: a directory of its own, and its log collected, which
 *  is printed at the end where CORTADO_TEST_LOG is set. */
int test_solver_setup(void **state);
int test_solver_teardown(void **state);
const char *test_solver_dir(void); /* of the test that runs */

/** A new directory, and its removal with the files in it. */
void test_directory_make(char *path, size_t size);
void test_directory_remove(const char *path);

#endif
