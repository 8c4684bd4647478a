#!/usr/bin/env python3
"""Makes those files of tests/fuzz/corpus that are images, blobs, texts, or what stands beside others. Needs Pillow.

Usage: tests/fuzz/make_corpus.py [FOLDER]

Targets that read several kinds tell them by the first byte (tests/fuzz/fuzz_NAME.c).
"""
import gzip
import io
import json
import os
import struct
import sys

from PIL import Image

from protobuf_wire import field, varint

FOLDER = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus")


def write(name, data):
    with open(os.path.join(FOLDER, name), "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


# ---- images: 7 x 5 pixels in what encoders can make of them
def images():
    rgb = Image.new("RGB", (7, 5))
    rgb.putdata([(x * 30, y * 50, (x * y * 13) % 256) for y in range(5) for x in range(7)])
    turned = Image.Exif()
    turned[0x0112] = 6
    gray, alpha = rgb.convert("L"), rgb.convert("RGBA")
    alpha.putalpha(gray)
    shades = Image.new("I;16", (7, 5))
    forms = {
        "rgb.jpg": (rgb, {}), "gray.jpg": (gray, {}), "cmyk.jpg": (rgb.convert("CMYK"), {}),
        "progressive.jpg": (rgb, dict(progressive=True)), "turned.jpg": (rgb, dict(exif=turned)),
        "rgb.png": (rgb, {}), "gray.png": (gray, {}), "palette.png": (rgb.quantize(5), {}), "alpha.png": (alpha, {}),
        "bits.png": (rgb.convert("1"), {}), "shades.png": (shades, {}), "turned.png": (rgb, dict(exif=turned)),
        "lossless.webp": (rgb, dict(lossless=True)), "lossy.webp": (rgb, {}), "alpha.webp": (alpha, dict(lossless=True)),
        "turned.webp": (rgb, dict(exif=turned)),
        "rgb.tif": (rgb, {}), "lzw.tif": (rgb, dict(compression="tiff_lzw")), "deflate.tif": (rgb, dict(compression="tiff_adobe_deflate")),
        "gray.tif": (gray, {}), "bits.tif": (rgb.convert("1"), dict(compression="group4")), "palette.tif": (rgb.quantize(5), {}),
        "turned.tif": (rgb, dict(exif=turned)), "jpeg.tif": (rgb, dict(compression="jpeg")), "pack.tif": (rgb, dict(compression="packbits")),
    }
    for name, (image, how) in forms.items():
        f = io.BytesIO()
        image.save(f, {"jpg": "JPEG", "tif": "TIFF"}.get(name[-3:], name[name.index(".") + 1:].upper()), **how)
        write("image_" + name, f.getvalue())
    f = io.BytesIO()
    rgb.save(f, "PNG")
    write("image_large_chunk.png", f.getvalue()[:33] + b"\x57EBPeXIfMM" + f.getvalue()[33:])  # of 1.4 GB, as it says
    f = io.BytesIO()
    rgb.save(f, "WEBP", save_all=True, append_images=[rgb.rotate(180)])
    write("image_animated.webp", f.getvalue())


# ---- Caffe's blobs, by hand
def blob(dims, values, new=True, double=False):
    shape = field(7, field(1, b"".join(map(varint, dims)))) if new else b"".join(field(i + 1, d) for i, d in enumerate(dims))
    return shape + field(8 if double else 5, struct.pack(f"<{len(values)}{'d' if double else 'f'}", *values))


def blobs():
    six, two = [0.5, -1, 2, 3, 4, 5], [0.25, 1]
    write("mean.binaryproto", blob([1, 3, 1, 2], six, new=False))
    write("mean_double.binaryproto", blob([1, 3, 1, 2], six, new=False, double=True))
    write("mean_shape.binaryproto", blob([3, 1, 2], six))
    for name, more in (("plain", b""), ("weights", field(2, "/nowhere/s_iter_7.caffemodel")), ("event", field(6, 5))):
        write(f"state_{name}.solverstate", field(1, 7) + field(3, blob([2, 3], six)) + field(3, blob([2], two)) + field(4, 1) + more)
    v1 = field(4, "ip") + field(5, 14) + field(6, blob([1, 1, 2, 3], six, new=False)) + field(6, blob([1, 1, 1, 2], two, new=False))
    write("model_v1.caffemodel", field(1, "old") + field(2, v1))
    v0 = field(1, "ip") + field(2, "innerproduct") + field(50, blob([1, 1, 2, 3], six, new=False)) + field(50, blob([1, 1, 1, 2], two, new=False))
    write("model_v0.caffemodel", field(1, "older") + field(2, field(1, v0)))


# ---- MNIST, CIFAR-10
def records():
    images = struct.pack(">4i", 0x803, 2, 2, 3) + bytes(range(12))
    labels = struct.pack(">2i", 0x801, 2) + b"\x05\x07"
    for i, data in enumerate((images, labels, gzip.compress(images, mtime=0), gzip.compress(labels, mtime=0), bytes(3073),
                              gzip.compress(bytes(6146), mtime=0))):
        write(f"records_{i}", bytes([i]) + data)


# ---- texts, and what stands in lines
def texts():
    kinds = ["the cat saw\nthe dog\n", "the cat saw the dog and the other dog saw the cat", "the\ncat\n<eos>\n<unk>\n", "cat\ndog\nhorse\n",
             struct.pack("<8H", 1, 2, 3, 70, 5, 6, 7, 8), "# clients\nkey-one\nkey-two\n", "a.jpg a.xml\nb c.jpg b.xml\n",
             'item { name: "none" label: 0 display_name: "background" }\nitem { name: "cat" label: 1 display_name: "cat" }\n',
             "cortado shards 1\nsamples 10\nstripes 4\nfiles 2\n"]
    for i, text in enumerate(kinds):
        write(f"words_{i}", bytes([i]) + (text if isinstance(text, bytes) else text.encode()))
    head = struct.pack("<3i", 20240520, 1, 4) + bytes(1012)
    write("words_llmc", bytes([4]) + head + struct.pack("<4H", 1, 2, 3, 4))
    write("words_llama", bytes([4]) + struct.pack("<3i", 20240801, 7, 2) + bytes(1012) + struct.pack("<2i", 1, 100000))


# ---- what runs leave
def runs():
    metrics = '{"event":"run","net":"n"}\n{"event":"train","iter":1,"loss":2.5,"lr":0.1}\n{"event":"test","iter":2,"accuracy":0.5}\n{"event":"done"}\n'
    log = ("I0101 solver.cpp] Iteration 20 (5 iter/s), loss = 1.25\nI Train net output #0: loss = 1.25 (* 1 = 1.25 loss)\n"
           "I Iteration 20, lr = 0.01\nI Iteration 40, Testing net (#0)\nI Test net output #1: accuracy = 0.5\n")
    span = dict(ph="X", pid=0, tid=0)
    trace = dict(otherData=dict(iterations="10-11"), traceEvents=[
        dict(span, ts=0, dur=90, args=dict(kind="iteration")), dict(span, ts=1, dur=40, args=dict(kind="forward")),
        dict(span, ts=50, dur=20, args=dict(kind="wait for gradients")), dict(span, tid=3, ts=5, dur=60, args=dict(kind="bucket"))])
    write("run_metrics", bytes([0]) + metrics.encode())
    write("run_log_far", bytes([0]) + b"Iteration 1, Testing net (#1e300)\n Test net output #0: a = 1\n")
    write("run_log", bytes([0]) + log.encode())
    for i, what in enumerate((json.loads("{}"), dict(confusion=[[1, 2], [3, 4]], classes=["a", "b"]), dict(layers=[dict(name="c", ms=1)]), trace)):
        write(f"run_{i}", bytes([2 * i + 1]) + (metrics if i == 0 else json.dumps(what)).encode())
    write("run_study", bytes([129]) + json.dumps(dict(define=dict(kind="run", nodes=2), status="ok", result={})).encode())
    write("run_notes_bad", bytes([128]) + b'{"command":"x"}')
    write("run_notes", bytes([128]) + b'[{"command":"x","when":"2026"}]')


# ---- what stands beside others, what the environment says
def beside():
    config = dict(model_type="llama", num_attention_heads=4, num_key_value_heads=2, hidden_size=8, rms_norm_eps=1e-5, rope_theta=10000.0)
    write("beside_config", bytes([0]) + json.dumps(config).encode())
    chat = dict(chat_template=[dict(name="default", template="{% for m in messages %}<|im_start|>{{m.role}}{% endfor %}")])
    write("beside_chat", bytes([1]) + json.dumps(chat).encode())
    write("beside_chat_plain", bytes([1]) + json.dumps(dict(chat_template="<|start_header_id|>")).encode())
    write("beside_index", bytes([2]) + json.dumps(dict(metadata={}, weight_map={"model.embed_tokens.weight": "model-1.safetensors"})).encode())
    write("beside_best", bytes([3]) + b"accuracy HIGHER\n20 0.5\n10 0.25\n")
    sweep = ('solver: "s" metric: "accuracy" vary { field: "base_lr" from: 1e-4 to: 0.1 log: true steps: 4 }\n'
             'vary { field: "momentum" value: "0" value: "0.9" } set: "max_iter=20" at_once: 2 search: RANDOM runs: 3\n')
    write("beside_sweep", bytes([4]) + sweep.encode())
    write("environment", "CORTADO_ITERATIONS=5\nCORTADO_SET=base_lr=1;max_iter=2\nCORTADO_SIMD=avx2\nCORTADO_ITRATIONS=1\nCORTADO_OVERWRITE=true\n"
          "SLURM_MEM_PER_CPU=100\nSLURM_CPUS_ON_NODE=4\nSLURM_STEP_NUM_TASKS=2\nSLURM_JOB_ID=7\nSLURM_RESTART_COUNT=1\n"
          "SLURM_TOPOLOGY_ADDR=s.n1\nSLURM_TOPOLOGY_ADDR_PATTERN=switch.node\nSLURM_JOB_NODELIST=n[1-4]\nSLURMD_NODENAME=n1\n")


# ---- the body of a form, as `curl -F` makes it
def forms():
    part = '--b\r\nContent-Disposition: form-data; name="a"; filename="a b.png"\r\nContent-Type: image/png\r\n\r\nbytes\r\n'
    write("request_form", "\x00" + 2 * part + '--b\r\nContent-Disposition: form-data; name="n"\r\n\r\n5\r\n--b--\r\n')


# ---- prototxts, of today and of Caffe before 2014: good ones
def old_nets():
    data = 'input: "data" input_dim: 1 input_dim: 3 input_dim: 4 input_dim: 4\n'
    write("prototxt_v1", (data + 'layers { name: "c" type: CONVOLUTION bottom: "data" top: "c" blobs_lr: 1 blobs_lr: 2 weight_decay: 1 '
          "convolution_param { num_output: 2 kernel_size: 3 } }\n"
          'layers { name: "l" type: SOFTMAX_LOSS bottom: "c" bottom: "data" top: "l" include { phase: TRAIN } }\n').encode())
    write("prototxt_v0", (data + 'layers { layer { name: "p" type: "padding" pad: 1 } bottom: "data" top: "p" }\n'
          'layers { layer { name: "c" type: "conv" num_output: 2 kernelsize: 3 weight_filler { type: "xavier" } blobs_lr: 1 } bottom: "p" top: "c" }\n'
          'layers { layer { name: "s" type: "softmax_loss" } bottom: "c" bottom: "data" }\n').encode())
    write("prototxt_repeat", ('input: "x" input_shape { dim: 1 dim: 8 }\nrepeat { count: 3 prefix: "b%d_" bottom: "x" top: "y"\n'
          '  layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" param { name: "w" } inner_product_param { num_output: 8 } }\n'
          '  repeat { count: 2 prefix: "c%d_" bottom: "a" top: "c" layer { name: "r" type: "ReLU" bottom: "a" top: "c" } }\n'
          '  layer { name: "e" type: "Eltwise" bottom: "c" bottom: "x" top: "y" } }\n').encode())
    write("prototxt_solver", (b'net: "n" test_iter: 2 test_interval: 5 base_lr: 0.1 lr_policy: "multistep" stepvalue: 3 stepvalue: 5\n'
          b'max_iter: 9 solver_type: ADAM compression { type: TOPK density: 0.01 } comm { bucket_mb: 1 } outer { local_iter: 3 }\n'))


for make in (images, blobs, records, texts, runs, beside, forms, old_nets):
    make()
