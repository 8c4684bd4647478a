#!/usr/bin/env python3
"""How much of the reading code the corpora reach: lines, by file.

Usage: tests/fuzz/coverage.py [--lines]

`make fuzz-coverage` has built build/fuzz/cover/fuzz_NAME with clang's counters. Each reads all its inputs: those that a campaign
begins with, and what has grown in build/fuzz/fuzz_NAME. READING lists the files that read what comes from outside.
Lines that only a failed allocation or a failed disk reaches stand apart, and do not count: of a function that was reached, a
statement that nothing reached and that names what FAILURE does; or a block within it that ends with such a return.
--lines writes the sources with counts to build/fuzz/missed.txt. Exits with 1 below LEAST per cent.
"""
import glob
import os
import re
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


FAILURE = re.compile(r"CT_ERR_NOMEM|CT_ERR_IO|no_memory\b|\"no memory|strerror\(")
ENDS = re.compile(r"\s*(return|status =|\(void\)fail\(|goto)\b[^?]*$")


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


def of_failure(lines):
    """The numbers of unreached lines that only failures reach. lines: (count or None, text)."""
    out, entered, blocks, start, text = set(), False, [], 0, ""
    for i, (count, code) in enumerate(lines):
        code = re.sub(r"/\*.*?\*/|//.*", "", re.sub(r'"(?:[^"\\]|\\.)*"', lambda m: m.group() if "no memory" in m.group() else '""', code))
        if code.startswith("{"):
            entered, blocks = bool(count), []
        text += code
        for c in code:
            if c == "{":
                blocks.append(i)
        stripped = code.rstrip()
        if stripped.endswith("}") or (stripped.endswith(";") and text.count("(") == text.count(")")):
            span = range(start, i + 1)
            if entered and FAILURE.search(text):
                out.update(k for k in span if lines[k][0] == 0)
                # a block that ends here with nothing else
                if ENDS.match(text) and len(blocks) > 1 and i + 1 < len(lines) and lines[i + 1][1].strip().startswith("}") and lines[i][0] == 0:
                    out.update(k for k in range(blocks[-1], i + 2) if lines[k][0] == 0)
        if stripped.endswith((";", "{", "}")) and text.count("(") == text.count(")"):
            start, text = i + 1, ""
        for c in code:
            if c == "}" and blocks:
                blocks.pop()
    return out


def counted(shown):
    """By file of `llvm-cov show`: lines, those reached, those that only failures reach."""
    rows, at = {}, None
    lines = {}
    for line in shown.splitlines():
        if line.endswith(".c:") and "|" not in line:
            at = os.path.relpath(line[:-1], ROOT)
            lines[at] = []
        m = re.match(r" *\d+\| *([\d.]+[kMGE]?)?\|(.*)", line)
        if m and at:
            lines[at].append((None if m[1] is None else 0 if m[1] == "0" else 1, m[2]))
    for name, of in lines.items():
        failure = of_failure(of)
        rows[name] = (sum(c is not None for c, _ in of), sum(c == 1 for c, _ in of), len(failure))
    return rows


def main(argv):
    if set(argv) - {"--lines"}:
        sys.exit(__doc__)
    files = list(sources())
    programs = sorted(p for p in glob.glob(os.path.join(ROOT, "build/fuzz/cover/fuzz_*")) if os.access(p, os.X_OK) and os.path.isfile(p))
    with tempfile.TemporaryDirectory(prefix="fz", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as work:
        merged = []
        for program in programs:
            folders = [os.path.join(ROOT, f) for f in (*SEEDS, "build/fuzz/" + os.path.basename(program))]
            made = os.path.join(work, "seeds." + os.path.basename(program))
            os.mkdir(made)
            subprocess.run([program, "-runs=0"], cwd=ROOT, env=dict(os.environ, LLVM_PROFILE_FILE="/dev/null", TMPDIR=work, FUZZ_SEEDS=made),
                           stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            inputs = sorted(p for f in (*folders, made) for p in glob.glob(os.path.join(f, "*")) if os.path.isfile(p))
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
        out = subprocess.run(["llvm-cov", "show", *where], cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True, errors="replace").stdout
    rows = counted(out)
    if argv:
        with open(os.path.join(ROOT, "build/fuzz/missed.txt"), "w", encoding="utf-8") as f:
            f.write(out)
    print("| file | lines | of failures | others | reached | % |\n|---|---|---|---|---|---|")
    every = [(*rows.get(name, (0, 0, 0)), name) for name in files]
    every.append((*(sum(r[k] for r in every) for k in range(3)), "all"))
    for n, reached, failure, name in every:
        print(f"| {name} | {n} | {failure} | {n - failure} | {reached} | {100 * reached / (n - failure) if n > failure else 0:.1f} |")
    n, reached, failure, _ = every[-1]
    sys.exit(0 if 100 * reached >= LEAST * (n - failure) else 1)


if __name__ == "__main__":
    main(sys.argv[1:])
