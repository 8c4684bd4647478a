#include "framework/tools/tools.h"

#define JOB "train test time"

const ct_option ct_option_table[] = {
    { "solver", CT_OPTION_TEXT, "train check", "FILE", "the solver prototxt" },
    { "model", CT_OPTION_TEXT, "test time check", "FILE", "the net prototxt" },
    { "weights", CT_OPTION_TEXT, "train test", "FILE[,FILE]",
      "weights to start from, by layer name: .caffemodel or .caffemodel.h5" },
    { "snapshot", CT_OPTION_TEXT, "train", "FILE|auto",
      "resume from a .solverstate.h5; auto: the newest good one of snapshot_prefix, else start" },
    { "iterations", CT_OPTION_COUNT, JOB, "N",
      "train: max_iter; test: batches (50); time: timed steps (10)" },
    { "set", CT_OPTION_LIST, "train test time check", "FIELD=VALUE",
      "override, repeatable: a solver field (base_lr, comm.bucket_mb), batch_size (every data "
      "layer "
      "of the phase: TRAIN for train, time and check, TEST for test), or layer[NAME].field.sub" },
    { "metrics", CT_OPTION_TEXT, "train test", "FILE", "write JSON lines, one object a line" },
    { "json", CT_OPTION_TEXT, "time check", "FILE", "write the result as JSON" },
    { "compression", CT_OPTION_TEXT, "train time check", "TYPE[:FIELD=VALUE,...]",
      "gradient compression: none, bf16, topk; for example topk:density=0.01,min_bytes=65536" },
    { "allreduce", CT_OPTION_TEXT, "train time", "NAME", "auto, impi, ring, rhd or hier" },
    { "topology", CT_OPTION_TEXT, JOB, "SPEC", "auto, or NODESxRANKS to pretend one" },
    { "overlap", CT_OPTION_CHOICE, "train time", "true|false",
      "send gradients while backward still runs" },
    { "deterministic", CT_OPTION_FLAG, JOB, NULL,
      "bitwise the same result for the same ranks and placement" },
    { "reproducible_sum", CT_OPTION_FLAG, "train time", NULL,
      "bitwise the same sums over ranks whatever their placement, the algorithm and timing" },
    { "global_batch_size", CT_OPTION_COUNT, "train time check", "N",
      "samples of all ranks in a step, instead of batch_size a rank" },
    { "seed", CT_OPTION_COUNT, "train time", "N", "random_seed" },
    { "solver_mode", CT_OPTION_CHOICE, JOB, "cpu|gpu|CPU|GPU", "where to compute" },
    { "gpu", CT_OPTION_TEXT, JOB, "ID|all", "solver_mode GPU, and which one" },
    { "phase", CT_OPTION_CHOICE, "time check", "TRAIN|TEST", "the phase of the net (TRAIN)" },
    { "level", CT_OPTION_COUNT, "test time check", "N", "the level of the net's state" },
    { "stage", CT_OPTION_TEXT, "test time check", "NAME[,NAME]", "the stages of the net's state" },
    { "ranks", CT_OPTION_COUNT, "check", "N", "how many ranks to reckon with (1)" },
    { "sigint_effect", CT_OPTION_CHOICE, "train", "stop|snapshot|none",
      "what Ctrl-C does at the end of the step (stop)" },
    { "sighup_effect", CT_OPTION_CHOICE, "train", "stop|snapshot|none", "the same (snapshot)" },
    { "threads", CT_OPTION_COUNT, JOB " info", "N",
      "threads a rank; otherwise OMP_NUM_THREADS, otherwise a fair share of the cores" },
    { "config_reference", CT_OPTION_FLAG, "info", NULL,
      "print the reference of all prototxt fields, as Markdown" },
    { "log", CT_OPTION_CHOICE, "*", "error|warn|info|debug", "how much to log (info)" },
};
const int ct_option_table_n = sizeof(ct_option_table) / sizeof(ct_option_table[0]);
