#include "framework/tools/tools.h"
#include "framework/tools/verb_convert.h"

static ct_status run_convert(ct_call *call)
{
    return ct_verb_convert(call->argc, call->argv);
}

const ct_verb ct_verb_table[] = {
    { "train", "train a net: --solver=FILE",
      "cortado train --solver=FILE [--snapshot=FILE|auto] [--weights=FILE] [--set=FIELD=VALUE]...",
      true, false, ct_verb_train },
    { "test", "score a trained net: --model=FILE --weights=FILE",
      "cortado test --model=FILE --weights=FILE [--iterations=N]", true, false, ct_verb_test },
    { "extract", "blobs of a trained net as HDF5: --model=FILE --weights=FILE --blobs=NAME,…",
      "cortado extract --model=FILE --weights=FILE --blobs=NAME[,NAME] --to=FILE.h5 "
      "[--iterations=N]",
      true, false, ct_verb_extract },
    { "time", "time a training step, layer by layer: --model=FILE",
      "cortado time --model=FILE [--iterations=N] [--json=FILE] [--data]", true, false,
      ct_verb_time },
    { "check", "shapes, parameters, operations, memory, traffic; no MPI, no data",
      "cortado check --model=FILE|--solver=FILE [--phase=TRAIN|TEST] [--ranks=N] [--json[=FILE]]",
      false, false, ct_verb_check },
    { "info", "what was built in, and the machine as seen",
      "cortado info [--topology[=SPEC]] [--config-reference]", false, false, ct_verb_info },
    { "bench", "micro-benchmarks, checked while they are timed: bench comm, bench codec",
      "cortado bench comm|codec [--repeat=N] [--json[=FILE]]; cortado bench KIND --help", true,
      true, ct_verb_bench },
    { "scale", "the scaling study: measured, simulated, modelled, and its report",
      "cortado scale --solver=FILE --ranks=1,2,4 [--out=DIR]", false, true, ct_verb_scale },
    { "simulate", "collectives or training steps on a described machine (needs SimGrid)",
      "cortado simulate --machine=NAME --nodes=N --bench=BYTES|--profile=FILE", false, true,
      ct_verb_simulate },
    { "convert", "data sets: mnist, cifar10, images, text, digits; weights; old nets and solvers",
      "cortado convert KIND --to=PATH", false, true, run_convert },
    { NULL, NULL, NULL, false, false, NULL },
};
