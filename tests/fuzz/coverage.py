#!/usr/bin/env python3
"""How much of the reading code the corpora reach: lines, by file.

Usage: tests/fuzz/coverage.py [--lines]

`make fuzz-coverage` has built build/fuzz/cover/fuzz_NAME with clang's counters. Each reads all its inputs: those that a campaign
begins with, and what has grown in build/fuzz/fuzz_NAME. READING lists the files that read what comes from outside.
--lines adds those that nothing reached to build/fuzz/missed.txt. Exits with 1 below LEAST per cent.
"""
import glob
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LEAST = 90
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from campaign import SEEDS  # noqa: E402
READING = {
    "framework/base": "file_map gguf json option utf8",
    "framework/proto": "diagnose expand hints lexer message parse repeat upgrade upgrade_old wire",
    "framework/data": "class_names convert_annotated convert_mnist_cifar10 convert_text convert_tokens datum image image_jpeg image_list "
                      "image_png image_table image_tiff image_webp lmdb_file reader_hdf5 stripes text_parts token_file voc window_list words",
    "framework/net": "engine_plan",
    "framework/snapshot": "best_sets caffe_state h5_read hf_config lm_names model model_binary model_npz model_tensors named_tensor "
                          "rank_state safetensors snapshot_read zip",
    "framework/text": "encode normalise read_gguf read_json read_ranks split token_table tokenizer unicode word_list",
    "cli/onnx/read": "*", "cli/profile": "profile", "cli/report": "run_data run_log trace_data", "cli/scale": "study",
    "cli/sweep": "sweep_plan", "planner": "forward_json parallel solver_json",
    "serve/api": "chat_template classify completion completion_text embeddings fields infer keys multipart transaction", "topology": "discover machine machine_file names node_class topo_text",
}


def sources():
    for folder, names in READING.items():
        for name in names.split():
            found = sorted(glob.glob(os.path.join(ROOT, folder, name + ".c")))
            if not found:
                sys.exit(f"no {folder}/{name}.c")
            yield from (os.path.relpath(f, ROOT) for f in found)


def replay(program, inputs, work, profiles):
    """Runs the inputs; where one ends the process, the halves of them, and leaves out that one."""
    if not inputs:
        return
    out = os.path.join(work, f"{len(profiles)}.profraw")
    env = dict(os.environ, LLVM_PROFILE_FILE=out, TMPDIR=work, OMP_NUM_THREADS="1", FUZZ_SEEDS="")
    env.pop("FUZZ_SEEDS")
    done = subprocess.run([program, "-rss_limit_mb=4096", *inputs], cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False)
    if done.returncode == 0:
        profiles.append(out)
    elif len(inputs) > 1:
        replay(program, inputs[:len(inputs) // 2], work, profiles)
        replay(program, inputs[len(inputs) // 2:], work, profiles)


def main(argv):
    if set(argv) - {"--lines"}:
        sys.exit(__doc__)
    files = list(sources())
    programs = sorted(p for p in glob.glob(os.path.join(ROOT, "build/fuzz/cover/fuzz_*")) if os.access(p, os.X_OK) and os.path.isfile(p))
    with tempfile.TemporaryDirectory(prefix="fz", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as work:
        merged = []
        for program in programs:
            folders = [os.path.join(ROOT, f) for f in (*SEEDS, "build/fuzz/" + os.path.basename(program))]
            inputs = sorted(p for f in folders for p in glob.glob(os.path.join(f, "*")) if os.path.isfile(p))
            profiles = []
            for at in range(0, len(inputs), 500):
                replay(program, inputs[at:at + 500], work, profiles)
            one = os.path.join(work, os.path.basename(program) + ".profdata")
            subprocess.run(["llvm-profdata", "merge", "-sparse", "-o", one, *profiles], check=True)
            for p in profiles:
                os.unlink(p)
            merged.append(one)
        every = os.path.join(work, "all.profdata")
        subprocess.run(["llvm-profdata", "merge", "-sparse", "-o", every, *merged], check=True)
        where = ["-instr-profile=" + every, programs[0], *[a for p in programs[1:] for a in ("-object", p)], *files]
        out = subprocess.run(["llvm-cov", "export", "-summary-only", *where], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        if argv:
            with open(os.path.join(ROOT, "build/fuzz/missed.txt"), "w", encoding="utf-8") as f:
                subprocess.run(["llvm-cov", "show", *where], cwd=ROOT, stdout=f, check=True)
    lines = {os.path.relpath(f["filename"], ROOT): f["summary"]["lines"] for f in json.loads(out)["data"][0]["files"]}
    print("| file | lines | reached | % |\n|---|---|---|---|")
    total = covered = 0
    for name in files:
        n, reached = (lines[name]["count"], lines[name]["covered"]) if name in lines else (0, 0)
        total, covered = total + n, covered + reached
        print(f"| {name} | {n} | {reached} | {100 * reached / n if n else 0:.1f} |")
    print(f"| all | {total} | {covered} | {100 * covered / total:.1f} |")
    sys.exit(0 if 100 * covered >= LEAST * total else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
