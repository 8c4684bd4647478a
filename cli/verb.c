#include "cli/verb.h"

#include <string.h>

/* ---- the verbs */

const ct_verb ct_verb_table[] = {
    { "new", "net, solver and job file of a model, fitted to a set: --from=MODEL --data=DIR",
      "cortado new --from=MODEL --data=DIR --to=DIR [--weights=FILE] [--tokenizer=FILE]",
      CT_VERB_ON_FIRST, NULL, ct_verb_new },
    { "train", "train a net: --solver=FILE",
      "cortado train --solver=FILE [--run=DIR] [--snapshot=FILE|auto] [--weights=FILE] "
      "[--set=FIELD=VALUE]...",
      CT_VERB_IN_JOB, NULL, ct_verb_train },
    { "find_rate", "the loss at learning rates that rise, and which one to take: --solver=FILE",
      "cortado find_rate --solver=FILE [--from=RATE] [--to=RATE] [--iterations=N] [--csv=FILE] "
      "[--json=FILE] [--plot=FILE.svg]",
      CT_VERB_IN_JOB, NULL, ct_verb_find_rate },
    { "sweep", "train with settings that vary, and rank them: FILE --to=DIR",
      "cortado sweep FILE --to=DIR [--table] [--only=N] [--job_array=FILE]", CT_VERB_ON_FIRST, NULL,
      ct_verb_sweep },
    { "test", "score a trained net: --run=DIR, or --model=FILE --weights=FILE",
      "cortado test --run=DIR|--model=FILE --weights=FILE [--iterations=N|--report=FILE]",
      CT_VERB_IN_JOB, NULL, ct_verb_test },
    { "predict",
      "by a trained net classes of pictures, boxes in them, or how texts go on: --run=DIR FILES",
      "cortado predict --run=DIR|--model=FILE --weights=FILE [--format=table|csv|json] "
      "FILES|DIRS|--prompt=TEXT",
      CT_VERB_IN_JOB, NULL, ct_verb_predict },
    { "report", "one page of runs: curves, scores, times: RUNS --to=FILE.html",
      "cortado report RUN... --to=FILE.html", CT_VERB_ON_FIRST, NULL, ct_verb_report },
    { "extract", "blobs of a trained net as HDF5: --model=FILE --weights=FILE --blobs=NAME",
      "cortado extract --model=FILE --weights=FILE --blobs=NAME[,NAME] --to=FILE.h5 "
      "[--iterations=N]",
      CT_VERB_IN_JOB, NULL, ct_verb_extract },
    { "generate", "go on with a text: --model=FILE --weights=FILE --tokenizer=FILE --prompt=TEXT",
      "cortado generate --model=FILE --weights=FILE --tokenizer=FILE --prompt=TEXT "
      "[--max_tokens=N] [--temperature=T] [--top_p=P] [--seed=N]",
      CT_VERB_IN_JOB, NULL, ct_verb_generate },
    { "serve", "answer requests over HTTP: --model=FILE --weights=FILE --tokenizer=FILE",
      "cortado serve --model=FILE --weights=FILE [--tokenizer=FILE] "
      "[--listen=ADDRESS:PORT|unix:PATH] [--api_key_file=FILE]",
      CT_VERB_ALONE, NULL, ct_verb_serve },
    { "time", "time a training step, layer by layer: --model=FILE",
      "cortado time --model=FILE [--iterations=N] [--json=FILE] [--data]", CT_VERB_IN_JOB, NULL,
      ct_verb_time },
    { "check", "shapes, parameters, operations, memory, traffic; no MPI, no data",
      "cortado check --model=FILE|--solver=FILE [--phase=TRAIN|TEST] [--ranks=N] [--json[=FILE]]",
      CT_VERB_ALONE, NULL, ct_verb_check },
    { "plan", "which rank runs what of a net, and what is made again; chains, pipelines",
      "cortado plan --model=FILE|--solver=FILE [--ranks=N] [--machine=M] [--memory_gib=X] "
      "[--out=FILE] [--json[=FILE]]; "
      "--chain=FILE, --pipeline=FILE",
      CT_VERB_ALONE, NULL, ct_verb_plan },
    { "info", "what was built in, and the machine as seen",
      "cortado info [--topology[=SPEC]] [--config-reference]", CT_VERB_ALONE, NULL, ct_verb_info },
    { "bench",
      "micro-benchmarks, checked while they are timed: bench comm, bench codec, bench serve",
      "cortado bench comm|codec|serve [--repeat=N] [--json[=FILE]]; cortado bench KIND --help",
      CT_VERB_IN_JOB, ct_bench_form, ct_verb_bench },
    { "scale", "the scaling study: measured, simulated, modelled, and its report",
      "cortado scale --solver=FILE --ranks=1,2,4 [--out=DIR]; --machine=NAME "
      "--nodes=1,2,...,1024 --net=NAME --profile=FILE; --report=DIR",
      CT_VERB_ALONE, ct_scale_form, ct_verb_scale },
    { "simulate", "collectives or training steps on a described machine (needs SimGrid)",
      "cortado simulate --machine=NAME --nodes=N --bench=BYTES|--profile=FILE|--pass=FILE",
      CT_VERB_ALONE, ct_simulate_form, ct_verb_simulate },
    { "convert", "data sets: mnist, cifar10, images, text, digits; weights; old nets and solvers",
      "cortado convert KIND --to=PATH [--option=value …]", CT_VERB_ON_FIRST, ct_convert_form,
      ct_verb_convert },
    { NULL, NULL, NULL, CT_VERB_ALONE, NULL, NULL },
};

const ct_verb *ct_verb_find(const char *name)
{
    for (const ct_verb *v = ct_verb_table; v->name != NULL; v++) {
        if (strcmp(v->name, name) == 0) return v;
    }
    return NULL;
}

bool ct_verb_form_of(const ct_verb *verb, int i, ct_verb_form *form_p)
{
    if (verb->form != NULL) return verb->form(i, form_p);
    *form_p = (ct_verb_form){ verb->name, verb->summary, ct_option_table, ct_option_table_n };
    return i == 0;
}

const ct_exit_code ct_exit_code_table[] = {
    { 0, "finished" },
    { 1, "run-time failure" },
    { 2, "usage or config" },
    { 3, "data or I/O" },
    { 4, "launch mismatch" },
    { 5, "diverged" },
    { 6, "watchdog" },
    { 75, "stopped early with a snapshot" },
    { 76, "stopped before the first step" },
    { 0, NULL },
};

/* ---- the options of all verbs */

#define JOB "train test time extract find_rate"

const ct_option ct_option_table[] = {
    { "from", CT_OPTION_TEXT, "new", "MODEL|DIR",
      "a model that comes with cortado, as quick or resnet50, or a folder as those" },
    { "data", CT_OPTION_TEXT, "new", "DIR",
      "sets as cortado convert makes them: train_lmdb, train.bin or train.h5, …" },
    { "to", CT_OPTION_TEXT, "new", "DIR", "the folder, which must be new" },
    { "weights", CT_OPTION_TEXT, "new", "FILE",
      "weights to start from; the last layer starts anew and learns faster; of texts tables of "
      "other vocabularies, of boxes layers for another number of classes start anew" },
    { "tokenizer", CT_OPTION_TEXT, "new", "FILE",
      "what made the tokens of the set, where no tokenizer.json lies beside them; or bytes" },
    { "solver", CT_OPTION_TEXT, "train time check plan find_rate", "FILE", "the solver prototxt" },
    { "files", CT_OPTION_REST, "predict", "FILES|DIRS",
      "pictures, and folders of them at any depth, or texts; they may stand without --files=" },
    { "sweep", CT_OPTION_REST, "sweep", "FILE", "what varies; it may stand without --sweep=" },
    { "to", CT_OPTION_TEXT, "sweep", "DIR",
      "the folder of the sweep, with its runs; the sweep goes on "
      "with what is there" },
    { "table", CT_OPTION_FLAG, "sweep", NULL, "rank what is there, and start nothing" },
    { "only", CT_OPTION_COUNT, "sweep", "N",
      "do run N alone, from 1 on, as a task of a job array" },
    { "job_array", CT_OPTION_OUT, "sweep", "FILE",
      "write a job file for SLURM with a task for each run, and start nothing" },
    { "runs", CT_OPTION_REST, "report", "RUNS",
      "folders of train --run, files of --metrics, or logs; they may stand without --runs=" },
    { "to", CT_OPTION_OUT, "report", "FILE", "the page, HTML that needs nothing beside it" },
    { "format", CT_OPTION_CHOICE, "predict", "table|csv|json",
      "of what goes to standard output: the best class of each file, its boxes, or the text alone; "
      "json has all numbers (table)" },
    { "model", CT_OPTION_TEXT, "test time check plan extract generate serve predict", "FILE",
      "the net prototxt" },
    { "weights", CT_OPTION_TEXT, "train test extract generate serve predict find_rate",
      "FILE[,FILE]",
      "weights to start from, by layer name: .caffemodel, .caffemodel.h5, .npz, .safetensors or "
      ".gguf" },
    { "snapshot", CT_OPTION_TEXT, "train", "FILE|auto",
      "resume from a .solverstate.h5, or a .solverstate of Caffe; auto: the newest good one of "
      "snapshot_prefix, else start" },
    { "iterations", CT_OPTION_COUNT, JOB, "N",
      "train: max_iter; test and extract: batches (50; test with --run the whole set); time: timed "
      "steps (10), with "
      "--data batches (100); find_rate: steps (100)" },
    { "set", CT_OPTION_LIST, "train test time check plan extract generate find_rate", "FIELD=VALUE",
      "override, repeatable: a solver field (base_lr, comm.bucket_mb), batch_size (every data "
      "layer "
      "of the phase: TRAIN for train, time, check and plan, TEST for test), or "
      "layer[NAME].field.sub" },
    { "memory_data", CT_OPTION_TEXT, "train test time extract find_rate", "FILE",
      "what MemoryData layers read: an HDF5 file with a data set for each top, or a list of such" },
    { "strict", CT_OPTION_FLAG, "train test time check plan extract generate", NULL,
      "refuse fields of forks that are ignored otherwise, as hints for engines" },
    { "metrics", CT_OPTION_OUT, "train test", "FILE", "write JSON lines, one object a line" },
    { "tensorboard", CT_OPTION_TEXT, "train", "DIR",
      "write the numbers of the metrics as event files for TensorBoard into this folder" },
    { "overwrite", CT_OPTION_FLAG, "train test", NULL,
      "write over the metrics and snapshots that an earlier run left; otherwise a run from the "
      "start "
      "ends with 2 where there are such. With --snapshot it changes nothing" },
    { "run", CT_OPTION_TEXT, "train", "DIR",
      "keep the run in this new folder: configuration, log, metrics, snapshots; --snapshot=auto "
      "goes on with one that is there" },
    { "run", CT_OPTION_TEXT, "test predict", "DIR",
      "the folder of a training: its net and its best weights, or newest, where --model and "
      "--weights name "
      "no others" },
    { "report", CT_OPTION_OUT, "test", "FILE",
      "over the whole test set, as JSON: of a net of classes confusion, precision and recall of "
      "each class, calibration, the surest mistakes; of one that finds boxes average precision; "
      "of one of texts loss, perplexity, bits a byte" },
    { "crops", CT_OPTION_CHOICE, "test predict", "1|2|5|10",
      "take the mean of the probabilities of so many crops of each picture: the middle; that and "
      "the same mirrored; the middle and the corners; those five and the same mirrored. test: over "
      "the whole test set" },
    { "trace", CT_OPTION_OUT, "train time", "FILE",
      "what ran when on every rank, for chrome://tracing or ui.perfetto.dev" },
    { "trace_iterations", CT_OPTION_TEXT, "train time", "A-B",
      "the iterations to trace (the fourth to the eighth of the run)" },
    { "blobs", CT_OPTION_TEXT, "extract", "NAME[,NAME]", "what to write, one data set each" },
    { "to", CT_OPTION_OUT, "extract", "FILE", "the HDF5 file" },
    { "tokenizer", CT_OPTION_TEXT, "generate serve predict", "FILE",
      "what made the net's tokens: tokenizer.json, a file of ranks, a GGUF, or bytes; of a net of "
      "words, its vocabulary (generate, predict)" },
    { "pattern", CT_OPTION_TEXT, "new generate serve predict", "NAME",
      "how a file of ranks splits: gpt2, cl100k, o200k or llama3" },
    { "listen", CT_OPTION_TEXT, "serve", "ADDRESS:PORT|unix:PATH",
      "where to listen (127.0.0.1:8080); port 0: any that is free, which is printed" },
    { "name", CT_OPTION_TEXT, "serve", "NAME", "what clients call the model (the net's name)" },
    { "api_key_file", CT_OPTION_TEXT, "serve", "FILE",
      "a key a line: clients must show one of them; health and / need none" },
    { "batching", CT_OPTION_CHOICE, "serve", "PACKED|PADDED",
      "requests side by side, or padded to the longest of a batch, to compare (PACKED)" },
    { "max_queue", CT_OPTION_COUNT, "serve", "N",
      "texts that may wait; others are refused with 429 (256)" },
    { "labels", CT_OPTION_TEXT, "serve", "FILE",
      "names of the classes of a net of pictures, one a line" },
    { "max_batch_tokens", CT_OPTION_TEXT, "serve", "N|AUTO",
      "tokens, or pictures, of a batch; AUTO: as many as give 0.95 of the best speed (AUTO)" },
    { "kv_mb", CT_OPTION_COUNT, "serve", "N",
      "memory for keys and values of completions, in MiB (1024)" },
    { "precision", CT_OPTION_CHOICE, "serve", "F32|BF16",
      "of products, what lies between them, and keys and values (F32)" },
    { "chat_template", CT_OPTION_TEXT, "serve", "CHATML|LLAMA3|ZEPHYR|NONE",
      "how messages become tokens (as the tokenizer's file says)" },
    { "max_wait_ms", CT_OPTION_TEXT, "serve", "MS",
      "how long a text may wait for others to run with (0)" },
    { "deadline_ms", CT_OPTION_TEXT, "serve", "MS",
      "refuse, or give up, what cannot be answered so soon (never)" },
    { "watchdog_seconds", CT_OPTION_COUNT, "serve", "N",
      "end a job with a rank that has not answered a batch for so long; 0: never (300)" },
    { "prompt", CT_OPTION_TEXT, "generate predict", "TEXT", "what the net goes on with" },
    { "max_tokens", CT_OPTION_COUNT, "generate predict", "N",
      "end after so many new tokens, if the end token has not come before (64)" },
    { "temperature", CT_OPTION_TEXT, "generate predict", "T",
      "scores are divided by it before a token is drawn; 0: the most probable one (0)" },
    { "top_p", CT_OPTION_TEXT, "generate predict", "P",
      "draw from the most probable tokens alone, that have this probability together (1)" },
    { "seed", CT_OPTION_SEED, "generate predict", "N",
      "of what is drawn: the same text again (1)" },
    { "data", CT_OPTION_FLAG, "time", NULL,
      "time the data layers alone: how many images/s they could deliver" },
    { "dump_batches", CT_OPTION_OUT, "time", "FILE.npz",
      "with --data: write the first --iterations batches, of all ranks, and time nothing" },
    { "json", CT_OPTION_OUT, "time find_rate", "FILE", "write the result as JSON" },
    { "from", CT_OPTION_TEXT, "find_rate", "RATE", "the rate of the first step (1e-6)" },
    { "to", CT_OPTION_TEXT, "find_rate", "RATE", "the rate of the last step (10)" },
    { "csv", CT_OPTION_OUT, "find_rate", "FILE", "write rate, loss and mean loss of each step" },
    { "plot", CT_OPTION_OUT, "find_rate", "FILE.svg", "draw the loss over the rate, as SVG" },
    { "json", CT_OPTION_MAYBE, "check plan serve", "FILE",
      "write the result as JSON (serve: of --check); without FILE to stdout, and nothing else goes "
      "there" },
    { "chain", CT_OPTION_TEXT, "plan", "FILE",
      "a strategy for each block of the chain in this JSON file, and what is made again" },
    { "pipeline", CT_OPTION_TEXT, "plan", "FILE",
      "where the layers in this JSON file are cut into stages" },
    { "dot", CT_OPTION_OUT, "check", "FILE",
      "draw the net (the first phase checked): Graphviz's text, or with its program \"dot\" a "
      "picture, FILE.svg, .png or .pdf" },
    { "data_shape", CT_OPTION_LIST, "check plan time", "[TOP:]CxHxW",
      "the shape of a sample, before cropping, where neither a data set nor the net says it; of "
      "several tops or layers: data:3x224x224,label:1; repeatable" },
    { "plan", CT_OPTION_TEXT, "train time", "FILE",
      "engines by timing, kept in FILE: what it has is replayed, what it lacks timed and added; "
      "deterministic: nothing is timed" },
    { "plan", CT_OPTION_TEXT, "serve", "FILE",
      "what batches cost, kept in FILE: a start that finds it there measures nothing" },
    { "check", CT_OPTION_FLAG, "serve", NULL,
      "open everything, print memory, budget and tokens/s, and end without listening" },
    { "engines", CT_OPTION_FLAG, "time", NULL, "also time the engines that were not chosen" },
    { "balance", CT_OPTION_FLAG, "time", NULL,
      "how evenly each layer's work is split over the threads; needs OMP_WAIT_POLICY=passive" },
    { "limits", CT_OPTION_CHOICE, "time info", "true|false",
      "measure what processor and memory can do at most, for the shares of it (true)" },
    { "limits", CT_OPTION_TEXT, "plan check", "GFLOPS,GBS",
      "what the machine does at most: 10^9 operations and 10^9 bytes of memory a second; otherwise "
      "measured, in less than a second" },
    { "roofline", CT_OPTION_OUT, "time", "FILE",
      "draw operations a second over operations a byte, as SVG" },
    { "compression", CT_OPTION_TEXT, "train time check", "TYPE[:FIELD=VALUE,...]",
      "gradient compression; for example redsync:density=0.001,exchange=oktopk" },
    { "allreduce", CT_OPTION_TEXT, "train time", "NAME",
      "auto, an algorithm, or by size: tree<64K,rhd<4M,hier" },
    { "topology", CT_OPTION_TEXT, JOB, "SPEC",
      "auto, slurm, slurm:FILE, a machine file, a ready machine, or NODESxRANKS to pretend one" },
    { "topology", CT_OPTION_MAYBE, "info", "SPEC",
      "draw the machine that is named or, in a job, the job's tree" },
    { "overlap", CT_OPTION_CHOICE, "train time", "true|false",
      "send gradients while backward still runs" },
    { "progress", CT_OPTION_CHOICE, "train time", "AUTO|POLL|THREAD",
      "who moves messages while layers compute (AUTO)" },
    { "deterministic", CT_OPTION_FLAG, JOB, NULL,
      "bitwise the same result for the same ranks and placement" },
    { "deterministic", CT_OPTION_FLAG, "serve", NULL,
      "the same bytes for a request alone and in any batch, also where it gives no seed" },
    { "reproducible_sum", CT_OPTION_FLAG, "train time", NULL,
      "bitwise the same sums over ranks whatever their placement, the algorithm and timing" },
    { "global_batch_size", CT_OPTION_COUNT, "train time check plan find_rate", "N",
      "samples of all ranks in a step, instead of batch_size a rank" },
    { "seed", CT_OPTION_SEED, "train time find_rate", "N", "random_seed" },
    { "solver_mode", CT_OPTION_CHOICE, JOB, "cpu|gpu|CPU|GPU", "where to compute" },
    { "gpu", CT_OPTION_TEXT, JOB, "ID|all", "solver_mode GPU, and which one" },
    { "share_gpu", CT_OPTION_FLAG, JOB, NULL,
      "ranks of a node may use one GPU; otherwise that is an error" },
    { "phase", CT_OPTION_CHOICE, "time", "TRAIN|TEST", "the phase of the net (TRAIN)" },
    { "phase", CT_OPTION_CHOICE, "check", "TRAIN|TEST",
      "the phase of the net; both if not given, with --solver the nets that it trains and tests" },
    { "level", CT_OPTION_COUNT, "test time check plan extract generate", "N",
      "the level of the net's state" },
    { "stage", CT_OPTION_TEXT, "test time check plan extract generate", "NAME[,NAME]",
      "the stages of the net's state" },
    { "stage", CT_OPTION_TEXT, "train", "DIR",
      "copy LMDB sets and HDF5 files to DIR, a disk of each node, and read them there" },
    { "stage_dir", CT_OPTION_TEXT, "test time extract", "DIR", "the same as train's --stage" },
    { "ranks", CT_OPTION_SOME, "check plan", "N", "how many ranks to reckon with (1)" },
    { "memory_gib", CT_OPTION_TEXT, "plan", "X",
      "what a rank may have resident, the runtime included; otherwise all is kept" },
    { "largest", CT_OPTION_TEXT, "plan", "layers",
      "how many copies of the net's repeat fit the GPUs of a node of --machine, its memory and, if "
      "--tiers says so, files; modelled" },
    { "tiers", CT_OPTION_TEXT, "plan", "NAME,NAME",
      "where model state may lie on a machine with GPUs: device,host (the default) or "
      "device,host,file" },
    { "usable", CT_OPTION_TEXT, "plan", "X",
      "the share of each GPU's and of the node's memory that may be taken, instead of what the "
      "machine says" },
    { "state_bytes", CT_OPTION_TEXT, "plan", "N",
      "bytes a parameter of weights and states, instead of the solver's (12 with Adam)" },
    { "attention", CT_OPTION_CHOICE, "plan", "flash|reference",
      "reference: attention keeps its probabilities for backward (flash)" },
    { "top", CT_OPTION_COUNT, "plan", "K", "also list the K fastest plans that fit" },
    { "out", CT_OPTION_OUT, "plan", "FILE", "write the plan as a parallel file" },
    { "nodes", CT_OPTION_SOME, "check", "N",
      "on how many nodes: says what compression would gain there" },
    { "ranks_per_node", CT_OPTION_SOME, "check", "N", "ranks on each of them (1)" },
    { "ranks_per_node", CT_OPTION_SOME, "plan", "N",
      "ranks on each node of the machine (1; without --machine all are on this one)" },
    { "machine", CT_OPTION_TEXT, "check", "NAME|FILE|SPEC",
      "the machine they are part of; with --parallel the step that it would take there" },
    { "machine", CT_OPTION_TEXT, "plan", "NAME|FILE|SPEC",
      "the machine whose first nodes the ranks are on (this one)" },
    { "fix", CT_OPTION_LIST, "plan", "WHAT",
      "plans of this kind alone: data, tensor=K, stages=K or micro_batches=K; repeatable" },
    { "profile", CT_OPTION_TEXT, "check", "FILE",
      "how long the net computes: cortado time --json on one of them; with --parallel as in plan" },
    { "parallel", CT_OPTION_TEXT, "train test time check", "FILE",
      "what of the net runs on which rank, what backward makes again" },
    { "parallel", CT_OPTION_TEXT, "serve", "FILE|tensor:N",
      "the ranks of the job run one net together, by this file; otherwise they are replicas" },
    { "profile", CT_OPTION_TEXT, "plan", "FILE[,FILE]",
      "times of layers in place of operations and bytes: cortado time --json on a rank; two files "
      "of "
      "unlike batches tell what does not grow with the batch" },
    { "images_per_s", CT_OPTION_TEXT, "check", "S", "of one rank alone, instead of the profile's" },
    { "sigint_effect", CT_OPTION_CHOICE, "train", "stop|snapshot|none",
      "what Ctrl-C does at the end of the step (stop)" },
    { "sighup_effect", CT_OPTION_CHOICE, "train", "stop|snapshot|none", "the same (snapshot)" },
    { "start_seconds", CT_OPTION_COUNT, JOB " predict", "N",
      "end a job whose start is silent for so long; 0: never (600)" },
    { "threads", CT_OPTION_COUNT, JOB " info generate predict", "N",
      "threads a rank; otherwise OMP_NUM_THREADS, otherwise a fair share of the cores" },
    { "data", CT_OPTION_TEXT, "info", "PATH",
      "what a data set is: samples, bytes, shards, index; an LMDB or an HDF5 file" },
    { "picture", CT_OPTION_OUT, "info", "FILE",
      "with --data: samples of the set with their labels, evenly spread over it, as PNG" },
    { "model", CT_OPTION_TEXT, "info", "FILE",
      "with --picture: the samples as this net gets them in training, cropped, mirrored, scaled" },
    { "gpus", CT_OPTION_FLAG, "info", NULL,
      "list the GPUs, and what the first one really does; fails where none works" },
    { "layers", CT_OPTION_FLAG, "info", NULL,
      "list the layer types: bottoms, tops, whether gradients pass, whether on GPUs too" },
    { "config_reference", CT_OPTION_FLAG, "info", NULL,
      "print the reference of all prototxt fields, as Markdown" },
    { "manual", CT_OPTION_TEXT, "info", "VERB|cortado",
      "print the page of the manual on this verb, or on all of them, as mdoc" },
    { "completion", CT_OPTION_CHOICE, "info", "bash|zsh",
      "print what makes this shell complete verbs, options and their values" },
    { "log", CT_OPTION_CHOICE, "*", "error|warn|info|debug", "how much to log (info)" },
};
const int ct_option_table_n = sizeof(ct_option_table) / sizeof(ct_option_table[0]);
