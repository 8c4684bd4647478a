#!/usr/bin/env python3
"""Steps of texts that grow, of a net of GPT-2's shape: cortado and llama.cpp in turn, on the same machine and threads.

Usage: tests/bench/decode_llama.py DIR [--rounds=3] [--threads=2] [--context=128] [--steps=32] [--types=F32,F16,BF16]

CORTADO names the program, LLAMA llama.cpp's llama-batched-bench. DIR gets a file of random weights for each type of llama.cpp's,
written by the package gguf. Cortado runs models/gpt2 with weights from its fillers, in F32, and in BF16 for types of 16 bits.
Both make tokens behind `context` others, for 1 and for 8 texts; llama.cpp's context grows by `steps` meanwhile. Printed are
milliseconds a step (a token of each text): the median of the rounds, and the ratio of the two.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WIDTH, BLOCKS, HEADS, TOKENS, POSITIONS = 768, 12, 12, 50257, 1024
TEXTS = (1, 8)


def write_gguf(path, kind):
    import gguf
    import numpy

    random = numpy.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(POSITIONS)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(BLOCKS)
    writer.add_feed_forward_length(4 * WIDTH)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-5)
    writer.add_vocab_size(TOKENS)
    writer.add_tokenizer_model("no_vocab")
    stored = {"F32": gguf.GGMLQuantizationType.F32, "F16": gguf.GGMLQuantizationType.F16, "BF16": gguf.GGMLQuantizationType.BF16}[kind]

    def matrix(name, rows, columns):
        values = random.standard_normal((rows, columns), dtype=numpy.float32) * 0.02
        writer.add_tensor(name, gguf.quantize(values, stored), raw_dtype=stored)

    def vector(name, count, value):
        writer.add_tensor(name, numpy.full(count, value, dtype=numpy.float32))

    def norm(name):
        vector(f"{name}.weight", WIDTH, 1)
        vector(f"{name}.bias", WIDTH, 0)

    matrix("token_embd.weight", TOKENS, WIDTH)
    writer.add_tensor("position_embd.weight", random.standard_normal((POSITIONS, WIDTH), dtype=numpy.float32) * 0.02)
    for block in range(BLOCKS):
        norm(f"blk.{block}.attn_norm")
        norm(f"blk.{block}.ffn_norm")
        for name, rows, columns in (("attn_qkv", 3 * WIDTH, WIDTH), ("attn_output", WIDTH, WIDTH), ("ffn_up", 4 * WIDTH, WIDTH),
                                    ("ffn_down", WIDTH, 4 * WIDTH)):
            matrix(f"blk.{block}.{name}.weight", rows, columns)
            vector(f"blk.{block}.{name}.bias", rows, 0)
    norm("output_norm")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def run(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    return done.stdout


def llama(path, args):
    """Milliseconds a step for each number of texts."""
    out = run([os.environ["LLAMA"], "-m", path, "-c", str(max(TEXTS) * (args.context + args.steps)), "-npp", str(args.context), "-ntg",
               str(args.steps), "-npl", ",".join(map(str, TEXTS)), "-t", str(args.threads), "--output-format", "jsonl"])
    rows = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return {row["pl"]: row["t_tg"] / args.steps * 1e3 for row in rows}


def cortado(precision, args):
    out = run([os.environ.get("CORTADO", os.path.join(ROOT, "cortado")), "bench", "serve", "--model=" + os.path.join(ROOT, "models/gpt2/deploy.prototxt"),
               "--shapes=" + ",".join(f"{n}x1@{args.context + args.steps // 2}" for n in TEXTS), f"--precision={precision}",
               f"--threads={args.threads}", f"--repeat={args.steps}", "--json", "--log=error"])
    return {row["batch"]: row["ms"] for row in map(json.loads, out.splitlines())}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--steps", type=int, default=32)
    parser.add_argument("--types", default="F32,F16,BF16")
    args = parser.parse_args()
    os.makedirs(args.dir, exist_ok=True)
    print(f"{'type':5s} {'texts':>5s} {'cortado':>9s} {'llama.cpp':>9s} {'llama.cpp / cortado':>20s}   milliseconds a step, medians of {args.rounds}")
    for kind in args.types.split(","):
        path = os.path.join(args.dir, f"gpt2_{kind}.gguf")
        if not os.path.exists(path):
            write_gguf(path + ".part", kind)
            os.rename(path + ".part", path)
        rounds = [(cortado("F32" if kind == "F32" else "BF16", args), llama(path, args)) for _ in range(args.rounds)]
        for n in TEXTS:
            ours, theirs = (statistics.median(pair[which][n] for pair in rounds) for which in (0, 1))
            print(f"{kind:5s} {n:5d} {ours:9.2f} {theirs:9.2f} {theirs / ours:20.2f}", flush=True)


if __name__ == "__main__":
    main()
